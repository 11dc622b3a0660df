"""What is promised of trims, copies and new epochs on Cassandra alone: they go over its buckets."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from parley.checks.recovery import recover
from parley.errors import EntriesTrimmed
from parley.model import Appended
from parley.store.cassandra.chat_state import READ_FENCE
from parley.store.cassandra.connection import Statement
from parley.store.cassandra.schema import KEYS, LOG
from parley.store.ports import Entries
from parley.store.rows import ArchiveMark
from tests.contracts.acting import (
    add_group,
    add_people,
    contents,
    entries_of,
    head_of,
    message,
    new_id,
    outcome,
    read_all,
    resolved,
    said,
    stored,
)
from tests.contracts.cassandra_engine import BUCKET_POSITIONS, CassandraEngine, CassandraOpenStore
from tests.contracts.test_cassandra_log import MODES, two_nodes
from tests.contracts.test_transfer import copied, in_memory, transfer_of

LONG = 2 * BUCKET_POSITIONS + 10
"""Entries of a log with two closed buckets and an open one."""


def engine_of(mode: str) -> CassandraEngine:
    return CassandraEngine(None if mode == "atomic" else "cassandra")


def tier_of(store: CassandraOpenStore) -> Entries:
    return store.store.entries


async def long_chat(store: CassandraOpenStore, entries: int = LONG) -> tuple[str, str, str]:
    """Ann, her group with a long log, and the client's id of its first message."""
    (ann,) = await add_people(store, "ann")
    chat, first_id = await add_group(store, ann), new_id()
    await stored(store, message(chat, ann, "1", first_id))
    await said(store, chat, ann, *(str(number) for number in range(2, entries + 1)))
    return ann, chat, first_id


async def trim(store: CassandraOpenStore, chat: str, through: int) -> None:
    mark = ArchiveMark(archived_through=through, version=1, manifest="digest")
    assert await tier_of(store).record(chat, mark)
    await tier_of(store).trim(chat, through)


def left_in(store: CassandraOpenStore, chat: str, bucket: int) -> list[int]:
    """The positions in a bucket, and 0 for each key of a client."""
    rows = store.rows.execute(f"SELECT sequence FROM {LOG} WHERE chat_id = '{chat}' AND bucket = {bucket}")
    return [row["sequence"] for row in rows if row["sequence"] is not None]


@pytest.mark.parametrize("mode", MODES)
async def test_a_trim_empties_whole_buckets(mode: str) -> None:
    """Nothing but the fence is left of them; what follows reads as before, and a retry is answered."""
    async with engine_of(mode).opened() as store:
        ann, chat, first_id = await long_chat(store)
        through = BUCKET_POSITIONS + 5
        await trim(store, chat, through)
        assert left_in(store, chat, 0) == []
        assert [at for at in left_in(store, chat, 1) if at] == [*range(through + 1, 2 * BUCKET_POSITIONS + 1)]
        for after in (0, BUCKET_POSITIONS, through - 1):
            with pytest.raises(EntriesTrimmed):
                await store.log.read(chat, after, 10)
        assert resolved(await store.log.read(chat, through, 1_000)) == [*range(through + 1, LONG + 1)]
        await store.reopen()
        again = await outcome(store, message(chat, ann, "1", first_id))
        assert isinstance(again, Appended)
        assert (again.sequence, again.deduplicated) == (1, True)
        assert (await stored(store, message(chat, ann, "next"))).sequence == LONG + 1
        assert store.breaches() == []


@pytest.mark.parametrize("mode", MODES)
async def test_a_fully_archived_log_of_buckets_gets_its_true_head_back(mode: str) -> None:
    """Its counter is lost, and there is no entry in any bucket."""
    async with engine_of(mode).opened() as store:
        ann, chat, _ = await long_chat(store)
        await trim(store, chat, LONG)
        assert [at for bucket in range(3) for at in left_in(store, chat, bucket) if at] == []
        store.set_counter(chat, None)
        async with store.operator() as operator:
            found = await recover(operator, chat, apply=True, seal_holes=True)
        assert (found.counter, found.voids) == (LONG, [])
        await store.reopen()
        assert await head_of(store, chat) == LONG
        assert (await stored(store, message(chat, ann, "next"))).sequence == LONG + 1


async def test_a_counter_below_the_mark_stops_the_chat() -> None:
    """Somebody has set it back: no number that was archived is given again."""
    async with engine_of("atomic").opened() as store:
        ann, chat, _ = await long_chat(store, 9)
        await trim(store, chat, 9)
        store.rows.execute(
            f"UPDATE {LOG} SET sequence_counter = 4, written_through = 4, last_sequence = 4"
            f" WHERE chat_id = '{chat}' AND bucket = 0 IF is_closed = false"
        )
        await store.reopen()
        assert not isinstance(await outcome(store, message(chat, ann, "again")), Appended)
        assert [at for at in left_in(store, chat, 0) if at] == []


async def test_a_writer_that_was_asleep_does_not_write_below_the_mark() -> None:
    """Its number was sealed, archived and trimmed meanwhile, in a bucket that is still open."""
    holding, released, held = asyncio.Event(), asyncio.Event(), False

    async def wait() -> None:
        holding.set()
        await released.wait()

    def hold(label: str) -> Any:
        nonlocal held
        if label != "after_allocate" or held:
            return None
        held = True
        return wait()

    async with two_nodes("two_phase", fault_point=hold) as (one, two):
        ann, ben = await add_people(one, "ann", "ben")
        chat = await add_group(one, ann, ben)
        late = asyncio.create_task(stored(two, message(chat, ann, "late")))
        await holding.wait()
        assert (await stored(one, message(chat, ben, "2"))).sequence == 2
        assert (await stored(one, message(chat, ben, "3"))).sequence == 3
        assert (await two.log.read(chat, 0, 10)).head == 3, (
            "it knows that it was overtaken, not that it is late"
        )
        await trim(one, chat, 2)
        released.set()
        assert (await late).sequence == 4
        assert [at for at in left_in(one, chat, 0) if at] == [3, 4]
        assert contents(entries_of(await one.log.read(chat, 2, 10))) == ["3", "late"]
        assert one.breaches() == []


async def test_a_late_seal_does_not_write_below_the_mark() -> None:
    """Neither in an emptied bucket nor in the open one."""
    async with engine_of("two_phase").opened() as store:
        _, chat, _ = await long_chat(store)
        await trim(store, chat, LONG - 2)
        for at in (3, BUCKET_POSITIONS + 1, LONG - 2):
            assert not await store.store.log._prefixes.put_void(chat, at)
        assert left_in(store, chat, 0) == left_in(store, chat, 1) == []


async def test_an_emptied_bucket_is_not_opened_again() -> None:
    """By a node that saw the bucket before it closed, and slept since."""
    async with engine_of("atomic").opened() as store:
        _, chat, _ = await long_chat(store)
        states, cassandra = store.store._states, store.store.cassandra
        closed = await cassandra.row(READ_FENCE, chat, 0)
        assert closed is not None
        await trim(store, chat, 2 * BUCKET_POSITIONS)
        await states.open_next(chat, 0, closed)
        emptied = await cassandra.row(READ_FENCE, chat, 1)
        assert emptied is not None
        assert emptied["is_closed"] is True
        assert await head_of(store, chat) == LONG


async def test_a_trim_that_died_is_finished_by_the_next() -> None:
    """The mark is set, and the node died before the second bucket: nothing is read there, and it goes."""
    async with two_nodes("atomic") as (one, two):
        _, chat, _ = await long_chat(one)
        through = 2 * BUCKET_POSITIONS + 4
        deleted = 0

        def second_bucket(statements: Sequence[Statement]) -> bool:
            nonlocal deleted
            deleted += any(cql.startswith(f"DELETE FROM {LOG}") for cql, _ in statements)
            return deleted > 1

        two.store.cassandra._deadline_seconds = 0.2
        two.faults.loses_request = second_bucket
        with pytest.raises(Exception, match="did not"):
            await trim(two, chat, through)
        mark = (await tier_of(one).marks([chat]))[chat]
        assert (mark.trimmed_through, mark.is_trimming) == (through, True)
        assert (left_in(one, chat, 0), bool(left_in(one, chat, 1))) == ([], True)
        assert one.breaches() == []
        await tier_of(one).trim(chat, through)
        assert not (await tier_of(one).marks([chat]))[chat].is_trimming
        assert left_in(one, chat, 1) == []
        assert [at for at in left_in(one, chat, 2) if at] == [*range(through + 1, LONG + 1)]


async def test_a_long_log_is_copied_into_buckets() -> None:
    """Old buckets are closed, their keys answer retries, and the log goes on in the last one."""
    async with in_memory() as first, engine_of("atomic").opened() as store:
        first.clock.advance(store.clock() - first.clock())
        ann, chat, first_id = await long_chat(first)  # type: ignore[arg-type]
        await copied(first, store)
        await store.reopen()
        assert contents(await read_all(store, chat)) == [str(number) for number in range(1, LONG + 1)]
        again = await outcome(store, message(chat, ann, "1", first_id))
        assert isinstance(again, Appended)
        assert (again.sequence, again.deduplicated) == (1, True)
        assert len(
            store.rows.execute(f"SELECT chat_id FROM {KEYS} WHERE chat_id = '{chat}' ALLOW FILTERING")
        ) == (2 * BUCKET_POSITIONS)
        assert (await stored(store, message(chat, ann, "next"))).sequence == LONG + 1
        assert store.breaches() == []


async def test_a_new_epoch_goes_on_in_the_next_bucket() -> None:
    """It was given to the open bucket, and every later one takes it over."""
    async with engine_of("atomic").opened() as store:
        ann, chat, _ = await long_chat(store, 5)
        async with transfer_of(store) as transfer:
            assert await transfer.begin_anew(store.clock()) == 1
        await store.reopen()
        await said(store, chat, ann, *(str(number) for number in range(BUCKET_POSITIONS)))
        epochs = {entry.epoch for entry in (await read_all(store, chat))[5:]}
        assert epochs == {store.clock() // 1_000}
        assert store.breaches() == []


async def test_a_torn_snapshot_does_not_hide_a_log() -> None:
    """The table of chats is a moment newer than the log, and names a bucket that the log has not."""
    async with engine_of("atomic").opened() as store:
        ann, chat, _ = await long_chat(store, 5)
        store.rows.execute(f"UPDATE chats USING TIMESTAMP 99 SET bucket = 2 WHERE chat_id = '{chat}'")
        await store.reopen()
        async with transfer_of(store) as transfer:
            assert await transfer.begin_anew(store.clock()) == 1
        await store.reopen()
        assert await head_of(store, chat) == 5
        assert (await stored(store, message(chat, ann, "next"))).sequence == 6
        assert store.breaches() == []
