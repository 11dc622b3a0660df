"""Tables of Cassandra that an older version made: told, brought up to date with all that is in them, used."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from parley.errors import ConfigError, ParleyError
from parley.model import Appended
from parley.store.cassandra.connection import Address, CassandraConnection
from parley.store.cassandra.schema import (
    ADDED_COLUMNS,
    MARK,
    SCHEMA,
    VERSION,
)
from tests.contracts.acting import head_of, message, posting, stored
from tests.contracts.attachments import new_attachment
from tests.contracts.cassandra_engine import REPLICATION, CassandraOpenStore
from tests.contracts.life_world import LifeWorld, edit
from tests.contracts.old_stores import (
    CASSANDRA,
    KIND_OF_BOOK,
    OldStore,
    assert_served,
    assert_whole,
    what_it_held,
    write_cassandra,
)
from tests.services import cassandra_address

pytestmark = pytest.mark.timeout(180)

FIRST = 2
LACKED = {"amendments", "message_marks", "attachment_lists", "attachments", "books"}
"""The tables that version 2 did not have: it knew neither links and reports, nor the life of messages, nor
files."""
LACKED_KINDS = {"AmendmentNote", "Attachment", "MessageMark", *KIND_OF_BOOK.values()}
"""The records that those tables held."""


class OldKeyspace:
    """One of a test alone. Each node connects anew, and so knows nothing of the tables before."""

    def __init__(self) -> None:
        host, port = cassandra_address()
        keyspace = f"t{secrets.token_hex(5)}"
        self.address = Address(contact_points=(host,), port=port, keyspace=keyspace)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[CassandraConnection]:
        connection = CassandraConnection(self.address)
        await asyncio.to_thread(connection.connect)
        try:
            yield connection
        finally:
            await asyncio.to_thread(connection.shutdown)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[CassandraOpenStore]:
        async with self.connection() as connection:
            store = CassandraOpenStore(connection, None, {})
            await store.open()
            try:
                yield store
            finally:
                await store.close()

    async def init(self, after: Callable[[str], None] = lambda _: None) -> tuple[list[str], list[str]]:
        """What `parley store init` does: the tables that it made, and what it said."""
        said: list[str] = []

        def report(line: str) -> None:
            said.append(line)
            after(line)

        async with self.connection() as connection:
            operator = CassandraOpenStore(connection, None, {}).make_operator()
            made = await operator.create(report)
            await operator.close()
        return made, said


@asynccontextmanager
async def an_old_keyspace(version: int) -> AsyncIterator[tuple[OldKeyspace, OldStore]]:
    """With everything in it that this version could keep, and what that was."""
    keyspace, old = OldKeyspace(), what_it_held("cassandra-3", has_marks=version != FIRST)
    lacked, columns = set[str](), set[str]()
    if version == FIRST:
        lacked, columns = LACKED, {name for added in ADDED_COLUMNS.values() for name in added}
        old.records = {kind: rows for kind, rows in old.records.items() if kind not in LACKED_KINDS}
    async with keyspace.connection() as connection:
        await asyncio.to_thread(write_cassandra, connection, REPLICATION, version, lacked, columns)
        try:
            yield keyspace, old
        finally:
            await asyncio.to_thread(connection.execute, f"DROP KEYSPACE {keyspace.address.keyspace}")


async def assert_refused(keyspace: OldKeyspace, version: int) -> None:
    with pytest.raises(
        ConfigError, match=f"has the old version {version}: run parley store init|has no table"
    ):
        async with keyspace.served():
            pass


@pytest.mark.parametrize("version", [FIRST, CASSANDRA])
async def test_an_old_version_is_raised_with_what_is_in_it(version: int) -> None:
    """A server does not start before; then every log and record is there, and the new parts work."""
    async with an_old_keyspace(version) as (keyspace, old):
        await assert_refused(keyspace, version)
        _, said = await keyspace.init()
        assert f"upgraded from version {version} to {VERSION}" in said
        async with keyspace.served() as store:
            await assert_whole(store, old)
            await assert_served(store, old)
            await use_everything(store, old)
        made, said = await keyspace.init()
        assert made == []
        assert not any("upgraded" in line or "moved" in line for line in said)


async def use_everything(store: CassandraOpenStore, old: OldStore) -> None:
    """A message, an edit of it, who may post, and a file, in a chat of the old version."""
    ann, chat = old.people["ann"], old.chats["group"]
    head = await head_of(store, chat)
    first = await stored(store, message(chat, ann, "another"))
    assert isinstance(first, Appended)
    assert first.sequence == head + 1
    await LifeWorld(store).done(edit(chat, ann, first.message_id, "edited"))
    await stored(store, posting(chat, ann, slow_mode_seconds=30))
    found = await store.directory.chat(chat)
    assert found is not None
    assert found.slow_mode_seconds == 30
    file = new_attachment(chat, 7, user_id=ann)
    await store.attachments.add(file)
    assert await store.attachments.get(chat, file.attachment_id) == file


async def test_a_raise_that_was_cut_short_is_done_later() -> None:
    """The version comes last: until everything has moved no server starts, and init moves the rest."""

    def die(line: str) -> None:
        if "webhooks: " in line and "moved" in line:
            raise ParleyError("the command was killed")

    async with an_old_keyspace(CASSANDRA) as (keyspace, old):
        with pytest.raises(ParleyError, match="killed"):
            await keyspace.init(die)
        await assert_refused(keyspace, CASSANDRA)
        await keyspace.init()
        async with keyspace.served() as store:
            await assert_whole(store, old)


async def test_the_old_version_is_a_sentence() -> None:
    """With every table there, the version alone stops a server."""
    async with an_old_keyspace(CASSANDRA) as (keyspace, _), keyspace.connection() as connection:
        await keyspace.init()
        await asyncio.to_thread(connection.use_keyspace)
        lower = f"UPDATE {SCHEMA} SET version = {FIRST} WHERE name = '{MARK}'"
        await asyncio.to_thread(connection.execute, lower)
        with pytest.raises(ConfigError, match=f"has the old version {FIRST}: run parley store init"):
            async with keyspace.served():
                pass
