"""What is promised of the log on Cassandra alone: its buckets, lost answers, and effects of changes."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from parley.errors import ConfigError, StoreUnavailable
from parley.ids import Ids
from parley.model import Action, Appended, Relation, Role
from parley.records.kinds import Kinds
from parley.store.cassandra.allocator import CassandraAllocator
from parley.store.cassandra.client import Cassandra
from parley.store.cassandra.connection import Address, CassandraConnection, Statement
from parley.store.cassandra.consents import PUT_JOINING, READ_ALL_JOINING
from parley.store.cassandra.schema import LOG, check_tables
from parley.store.cassandra.store import CassandraStore
from parley.telemetry import Metrics
from tests.contracts.acting import (
    add_group,
    add_people,
    change,
    code_of,
    contents,
    head_of,
    message,
    new_chat,
    new_id,
    outcome,
    read_all,
    said,
    sequences,
    stored,
    told,
)
from tests.contracts.cassandra_engine import BUCKET_POSITIONS, CassandraEngine, CassandraOpenStore
from tests.contracts.cassandra_faults import FaultyConnection, appends
from tests.services import cassandra_address

MODES = ("atomic", "two_phase")


class SecondNode(CassandraOpenStore):
    """Another node on the same keyspace, whose requests and answers may be lost."""

    def __init__(self, first: CassandraOpenStore, mode: str, options: dict[str, Any]) -> None:
        self.faults = FaultyConnection(first.connection)
        super().__init__(self.faults, None if mode == "atomic" else "cassandra", options)
        self.clock = first.clock

    async def close(self) -> None:
        await self.store.close()


@asynccontextmanager
async def two_nodes(mode: str, **options: Any) -> AsyncIterator[tuple[CassandraOpenStore, SecondNode]]:
    engine = CassandraEngine(None if mode == "atomic" else "cassandra")
    async with engine.opened() as one:
        two = SecondNode(one, mode, options)
        await two.open()
        try:
            yield one, two
        finally:
            await two.close()


@pytest.mark.parametrize("mode", MODES)
async def test_two_nodes_go_from_bucket_to_bucket_together(mode: str) -> None:
    """Both write at once over several buckets: every number once, every message once, none lost."""
    async with two_nodes(mode) as (one, two):
        ann, ben = await add_people(one, "ann", "ben")
        chat = await add_group(one, ann, ben)

        async def write(node: CassandraOpenStore, who: str) -> list[str]:
            texts = [f"{who} {n}" for n in range(BUCKET_POSITIONS + 8)]
            for start in range(0, len(texts), 12):
                drafts = [message(chat, who, text) for text in texts[start : start + 12]]
                result = await node.log.append(drafts)
                assert [told(one) for one in result.outcomes] == ["stored"] * len(drafts)
            return texts

        wrote = await asyncio.gather(write(one, ann), write(two, ben))
        entries = await read_all(one, chat)
        assert sorted(contents(entries)) == sorted(wrote[0] + wrote[1])
        assert sequences(entries) == sorted(set(sequences(entries)))
        assert await head_of(two, chat) > 2 * BUCKET_POSITIONS
        assert one.breaches() == []


@pytest.mark.parametrize("mode", MODES)
async def test_a_retry_finds_its_original_in_an_older_bucket(mode: str) -> None:
    """Its key was copied before the next bucket opened, so no node stores the message again."""
    async with two_nodes(mode) as (one, two):
        (ann,) = await add_people(one, "ann")
        chat = await add_group(one, ann)
        first_id = new_id()
        first = await stored(one, message(chat, ann, "first", first_id))
        await said(one, chat, ann, *(str(n) for n in range(2 * BUCKET_POSITIONS)))
        for node in (one, two):
            again = await outcome(node, message(chat, ann, "first", first_id))
            assert isinstance(again, Appended)
            assert (again.sequence, again.deduplicated) == (first.sequence, True)
        assert await two.log.find_key(chat, message(chat, ann, "", first_id).client_key or b"") is not None
        assert contents(await read_all(one, chat)).count("first") == 1


async def test_a_node_that_died_between_two_buckets_is_followed() -> None:
    """It had closed one and not opened the next: any node opens it, with the keys of the closed one."""
    async with two_nodes("atomic") as (one, two):
        (ann,) = await add_people(one, "ann")
        chat = await add_group(one, ann)
        ids = [new_id() for _ in range(BUCKET_POSITIONS)]
        await one.log.append([message(chat, ann, str(n), ids[n]) for n in range(BUCKET_POSITIONS)])
        one.rows.execute(
            f"UPDATE {LOG} SET is_closed = true WHERE chat_id = '{chat}' AND bucket = 0 IF EXISTS"
        )
        retries = await two.log.append([message(chat, ann, "0", ids[0]), message(chat, ann, "next")])
        assert [told(one) for one in retries.outcomes] == ["deduplicated", "stored"]
        assert await head_of(one, chat) == BUCKET_POSITIONS + 1
        assert one.breaches() == []


async def test_nothing_is_written_into_a_closed_bucket() -> None:
    """A node that still believes in the closed one loses its condition, and goes on in the next."""
    async with two_nodes("atomic") as (one, two):
        ann, ben = await add_people(one, "ann", "ben")
        chat = await add_group(one, ann, ben)
        await said(two, chat, ben, "warm")  # two remembers the first bucket
        await said(one, chat, ann, *(str(n) for n in range(BUCKET_POSITIONS)))
        assert (await stored(two, message(chat, ben, "late"))).sequence == BUCKET_POSITIONS + 2
        assert sequences(await read_all(one, chat)) == list(range(1, BUCKET_POSITIONS + 3))


@pytest.mark.parametrize("mode", MODES)
async def test_a_lost_answer_is_resolved_before_anybody_is_answered(mode: str) -> None:
    """The batch was applied: the log is asked, the messages are acknowledged, and stand there once."""
    async with two_nodes(mode) as (one, two):
        (ann,) = await add_people(one, "ann")
        chat = await add_group(one, ann)
        two.faults.loses_answer = lambda statements: appends(statements) and two.faults.lost == 0
        result = await two.log.append([message(chat, ann, "a"), message(chat, ann, "b")])
        assert [told(one) for one in result.outcomes] == ["stored", "stored"]
        assert two.faults.lost == 1
        assert contents(await read_all(one, chat)) == ["a", "b"]


@pytest.mark.parametrize("mode", MODES)
async def test_a_lost_request_is_made_again(mode: str) -> None:
    """The batch never arrived: the identical one does, and stands there once."""
    async with two_nodes(mode) as (one, two):
        (ann,) = await add_people(one, "ann")
        chat = await add_group(one, ann)
        two.faults.loses_request = lambda statements: appends(statements) and two.faults.lost == 0
        assert told(await outcome(two, message(chat, ann, "a"))) == "stored"
        assert contents(await read_all(one, chat)) == ["a"]


async def test_without_an_answer_in_time_the_outcome_is_unknown() -> None:
    """Neither acknowledged nor refused; a retry finds out."""
    async with two_nodes("atomic") as (one, two):
        (ann,) = await add_people(one, "ann")
        chat = await add_group(one, ann)
        lost = message(chat, ann, "lost", new_id())
        two.store.cassandra._deadline_seconds = 0.2

        def serial_reads_too(statements: Sequence[Statement]) -> bool:
            return appends(statements) or "sequence = ?" in statements[0][0]

        two.faults.loses_answer = serial_reads_too
        assert await code_of(two, lost) == "outcome_unknown"
        assert told(await outcome(one, lost)) == "deduplicated"
        assert contents(await read_all(one, chat)) == ["lost"]


async def test_a_change_is_not_seen_before_its_effects() -> None:
    """Its node died after the commit: whoever learns of the entry has written what it changes."""
    async with two_nodes("atomic") as (one, two):
        ann, ben = await add_people(one, "ann", "ben")
        chat = await add_group(one, ann, ben)
        two.store.cassandra._deadline_seconds = 0.2

        def effects(statements: Sequence[Statement]) -> bool:
            return "DELETE FROM chat_memberships" in statements[0][0]

        two.faults.loses_request = effects
        assert await code_of(two, change(chat, ann, Action.REMOVED, ben)) == "outcome_unknown"
        assert await one.directory.role(chat, ben) is Role.MEMBER
        assert await head_of(one, chat) == 1
        assert await one.directory.role(chat, ben) is None
        assert await code_of(one, message(chat, ben, "still here?")) == "not_a_member"
        assert one.breaches() == []


async def test_a_late_effect_of_an_older_change_changes_nothing() -> None:
    """A slow node writes the effects of a removal after the person has joined again: they stay."""
    async with two_nodes("atomic") as (one, two):
        ann, ben = await add_people(one, "ann", "ben")
        chat = await add_group(one, ann, ben)
        held: list[Statement] = []

        def note(statements: Sequence[Statement]) -> None:
            if "chat_memberships" in statements[0][0] and "DELETE" in statements[0][0]:
                held.extend(statements)

        two.faults.before = note
        await stored(two, change(chat, ann, Action.REMOVED, ben))
        await stored(one, change(chat, ann, Action.JOINED, ben))
        assert held
        await one.store.cassandra.write_all(held)
        assert await one.directory.role(chat, ben) is Role.MEMBER


async def test_a_block_ends_an_addition_that_has_begun() -> None:
    """The consent was read, and then taken away: the join is decided again, and refused."""
    async with two_nodes("atomic") as (one, two):
        ann, ben = await add_people(one, "ann", "ben")
        chat = await add_group(one, ann)
        blocked = threading.Event()

        def block_first(statements: Sequence[Statement]) -> None:
            """Between the reservation and the batch of the join."""
            if appends(statements) and not blocked.is_set():
                blocked.set()

                def set_block() -> None:
                    async def work() -> None:
                        async with one.operator() as beside:
                            relations = Kinds(beside, two.clock).relations
                            await relations.set_relation(ben, ann, Relation.BLOCK, "2026-01-01")

                    asyncio.run(work())

                thread = threading.Thread(target=set_block)
                thread.start()
                thread.join()

        two.faults.before = block_first
        assert await code_of(two, change(chat, ann, Action.JOINED, ben)) == "blocked"
        assert await one.directory.role(chat, ben) is None


async def test_what_a_dead_node_was_about_to_do_never_happens() -> None:
    """Whom it was to put into a chat, or into one that has not begun, is fenced: neither happens any more."""
    async with two_nodes("atomic") as (one, two):
        ann, ben = await add_people(one, "ann", "ben")
        chat, begun = await add_group(one, ann), new_chat(one, ann)
        for chat_id in (chat, begun.chat_id):
            await one.store.cassandra.write(PUT_JOINING, ben, chat_id, "of a dead node")
        await one.directory.fence(ben, [])
        rows = await one.store.cassandra.rows(READ_ALL_JOINING, ben)
        assert [row["chat_id"] for row in rows if row["chat_id"] is not None] == []
        with pytest.raises(StoreUnavailable):
            await two.directory.create_chat(begun, [ben])
        await stored(two, change(chat, ann, Action.JOINED, ben))
        assert await one.directory.chat_ids_of(ben) == [chat]


async def test_closing_leaves_no_thread_of_its_own() -> None:
    """What the driver started ends with it, except the one thread that all its loops share."""
    host, port = cassandra_address()
    before = {thread.name for thread in threading.enumerate()}
    cassandra = Cassandra(CassandraConnection(Address(contact_points=(host,), port=port)))
    await cassandra.connect()
    await cassandra.rows("SELECT cluster_name FROM system.local")
    await cassandra.close()
    names = {thread.name for thread in threading.enumerate()} - before
    assert not {name for name in names if "asyncio" not in name and "event_loop" not in name}


async def test_a_store_that_is_not_there_is_unavailable() -> None:
    """Never an error of the driver."""
    cassandra = Cassandra(CassandraConnection(Address(contact_points=("127.0.0.1",), port=1)))
    with pytest.raises(StoreUnavailable, match="does not answer"):
        await cassandra.connect()
    await cassandra.close()


async def test_an_allocator_takes_other_numbers_after_a_lost_answer() -> None:
    """Numbers may be lost, and are never given twice."""
    async with two_nodes("two_phase") as (one, two):
        (ann,) = await add_people(one, "ann")
        chat = await add_group(one, ann)
        two.faults.loses_answer = lambda statements: (
            two.faults.lost == 0 and "SET sequence_counter" in statements[0][0]
        )
        allocator = CassandraAllocator(two.store.cassandra, clock=two.clock, random=random.random)
        assert await allocator.allocate(chat, 2, 0) == 4
        assert two.faults.lost == 1


async def test_a_server_starts_only_on_its_tables() -> None:
    """Without its keyspace it says what to run."""
    async with CassandraEngine(None).opened() as store:
        assert await check_tables(store.store.cassandra) == BUCKET_POSITIONS
        elsewhere = CassandraStore(
            Cassandra(
                CassandraConnection(
                    Address(
                        contact_points=store.connection.address.contact_points,
                        port=store.connection.address.port,
                        keyspace="nowhere",
                    )
                )
            ),
            clock=store.clock,
            ids=Ids(random.getrandbits),
            metrics=Metrics(store.clock),
        )
        try:
            with pytest.raises(ConfigError, match="run parley store init"):
                await elsewhere.open()
        finally:
            await elsewhere.close()
