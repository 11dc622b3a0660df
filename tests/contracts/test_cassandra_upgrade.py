"""Tables of Cassandra that an older version made: told, brought up to date with all that is in them, used."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from parley.errors import ConfigError
from parley.model import Appended
from parley.store.cassandra.client import Cassandra
from parley.store.cassandra.connection import Address, CassandraConnection
from parley.store.cassandra.schema import (
    ADDED_COLUMNS,
    AMENDMENTS,
    ATTACHMENT_LISTS,
    ATTACHMENTS,
    BOOKS,
    DESCRIBE_COLUMNS,
    MARK,
    MESSAGE_MARKS,
    SCHEMA,
    TABLES,
    VERSION,
    create_tables,
)
from tests.contracts.acting import head_of, message, posting, stored
from tests.contracts.attachments import new_attachment
from tests.contracts.cassandra_engine import BUCKET_POSITIONS, REPLICATION, CassandraOpenStore
from tests.contracts.cold_world import synced
from tests.contracts.full_store import FullStore
from tests.contracts.life_world import LifeWorld, edit
from tests.contracts.test_transfer import all_records, transfer_of
from tests.services import cassandra_address

pytestmark = pytest.mark.timeout(180)

OLD = 2
KEY = "chat_id"
"""Of the tables that got columns."""
ADDED_TABLES = {AMENDMENTS, ATTACHMENT_LISTS, ATTACHMENTS, BOOKS, MESSAGE_MARKS}
"""What version 2 did not have: it knew neither links and reports, nor the life of messages, nor files."""
ADDED_KINDS = {"AmendmentNote", "Attachment", "KeptMark", "KeptRecord"}
"""The records that those tables hold."""


class Keyspace:
    """One of this test alone. Each node connects anew, and so knows nothing of the tables before."""

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

    async def init(self) -> tuple[list[str], list[str]]:
        """What `parley store init` does: the tables that it made, and what it said."""
        said: list[str] = []
        async with self.connection() as connection:
            cassandra = Cassandra(connection, is_shared=True)
            made = await create_tables(cassandra, REPLICATION, said.append, BUCKET_POSITIONS)
        return made, said

    async def run(self, *statements: str) -> None:
        async with self.connection() as connection:
            await asyncio.to_thread(connection.use_keyspace)
            for statement in statements:
                await asyncio.to_thread(connection.execute, statement)

    async def make_old(self) -> None:
        """Tables as version 2 had them, with the rows that are in them."""
        for table in ADDED_COLUMNS:
            await self._without_added(table)
        await self.run(
            *(f"DROP TABLE {name}" for name in sorted(ADDED_TABLES)),
            f"UPDATE {SCHEMA} SET version = {OLD} WHERE name = '{MARK}'",
        )

    async def _without_added(self, table: str) -> None:
        """The table as if it had never had the new columns: where one is dropped and added again, Cassandra
        takes older writes for dropped, and some of ours carry a number instead of a time."""
        async with self.connection() as connection:
            cassandra = Cassandra(connection, is_shared=True)
            await cassandra.use_keyspace()
            there = await cassandra.rows(DESCRIBE_COLUMNS, cassandra.keyspace, table)
            names = {row["column_name"] for row in there} - {KEY, *ADDED_COLUMNS[table]}
            times = ", ".join(f"{name}, WRITETIME({name}) AS at_{name}" for name in sorted(names))
            rows = await cassandra.rows(f"SELECT {KEY}, {times} FROM {table}")
            added = "".join(f", {name} {kind}" for name, kind in ADDED_COLUMNS[table].items())
            old = " ".join(TABLES[table].split()).replace(added, "")
            assert old != " ".join(TABLES[table].split())
            await cassandra.define(f"DROP TABLE {table}")
            await cassandra.define(f"CREATE TABLE {table} ({old})")
            for row in rows:
                for name in names:
                    if row[name] is not None:
                        cell = f"UPDATE {table} USING TIMESTAMP ? SET {name} = ? WHERE {KEY} = ?"
                        await cassandra.write(cell, row[f"at_{name}"], row[name], row[KEY])


@asynccontextmanager
async def an_old_keyspace() -> AsyncIterator[tuple[Keyspace, FullStore, dict[str, object]]]:
    """With everything in it that version 2 could keep; its logs and records as they were."""
    keyspace = Keyspace()
    await keyspace.init()
    try:
        async with keyspace.served() as store:
            full = await FullStore(store).fill()
            before = await kept(store, full)
        await keyspace.make_old()
        yield keyspace, full, before
    finally:
        await keyspace.run(f"DROP KEYSPACE {keyspace.address.keyspace}")


async def kept(store: CassandraOpenStore, full: FullStore) -> dict[str, object]:
    """The logs, and every record of a kind that version 2 had."""
    async with transfer_of(store) as transfer:
        records = await all_records(transfer)
    found: dict[str, object] = {kind: rows for kind, rows in records.items() if kind not in ADDED_KINDS}
    for chat in (full.group, full.direct, full.left, full.lively):
        found[chat] = await synced(store.log, chat)
    return found


async def test_an_old_version_is_raised_with_what_is_in_it() -> None:
    """A server does not start before; then every log and record is there, and the new parts work."""
    async with an_old_keyspace() as (keyspace, full, before):
        with pytest.raises(ConfigError, match="run parley store init"):
            async with keyspace.served():
                pass
        made, said = await keyspace.init()
        added = [name for name in TABLES if name in ADDED_TABLES]
        assert made == [f"{keyspace.address.keyspace}.{name}" for name in added]
        assert f"upgraded from version {OLD} to {VERSION}" in said
        async with keyspace.served() as store:
            assert await kept(store, full) == before
            await use_everything(store, full)
        again, said = await keyspace.init()
        assert again == []
        assert not any("upgraded" in line for line in said)


async def use_everything(store: CassandraOpenStore, full: FullStore) -> None:
    """A message, an edit of it, who may post, and a file, in a chat of the old version."""
    ann, chat = full.people["ann"], full.group
    head = await head_of(store, chat)
    first = await stored(store, message(chat, ann, "after the upgrade"))
    assert isinstance(first, Appended)
    assert first.sequence == head + 1
    await LifeWorld(store).done(edit(chat, ann, first.message_id, "edited"))
    await stored(store, posting(chat, ann, slow_mode_seconds=30))
    found = await store.directory.chat(chat)
    assert found is not None
    assert found.slow_mode_seconds == 30
    file = new_attachment(chat, user_id=ann)
    await store.engine.attachments.add(file)
    assert await store.engine.attachments.get(chat, file.attachment_id) == file
    assert await store.engine.links.page("", 10) == []


async def test_a_raise_that_was_cut_short_is_done_later() -> None:
    """The version comes last: with only some of the new tables no server starts, and init makes the rest."""
    async with an_old_keyspace() as (keyspace, full, before):
        await keyspace.init()
        await keyspace.run(
            f"DROP TABLE {BOOKS}", f"UPDATE {SCHEMA} SET version = {OLD} WHERE name = '{MARK}'"
        )
        with pytest.raises(ConfigError, match="run parley store init"):
            async with keyspace.served():
                pass
        made, _ = await keyspace.init()
        assert made == [f"{keyspace.address.keyspace}.{BOOKS}"]
        async with keyspace.served() as store:
            assert await kept(store, full) == before


async def test_the_old_version_is_a_sentence() -> None:
    """With every table there, the version alone stops a server."""
    keyspace = Keyspace()
    await keyspace.init()
    try:
        await keyspace.run(f"UPDATE {SCHEMA} SET version = {OLD} WHERE name = '{MARK}'")
        with pytest.raises(ConfigError, match=f"has the old version {OLD}: run parley store init"):
            async with keyspace.served():
                pass
    finally:
        await keyspace.run(f"DROP KEYSPACE {keyspace.address.keyspace}")
