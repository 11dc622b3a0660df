"""What an operator is told of the log: how long allocations take, how many numbers are lost, which lines."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from structlog.testing import capture_logs

from parley.model import Draft
from tests.contracts.acting import add_group, add_people, message, outcome, said, stored
from tests.contracts.cassandra_engine import CassandraOpenStore
from tests.contracts.dynamodb_engine import DynamoOpenStore
from tests.contracts.engines import Engine, OpenStore, SqliteEngine
from tests.contracts.test_log_sealing import Gate

ELSEWHERE_SECONDS = 20.0
"""What passes outside of an allocation."""
PLACES = {"atomic": "before_write", "two_phase": "after_allocate"}
"""A point of the way: at the commit that allocates, or after the allocation."""


class LeapingTime:
    """A time that passes by leaps alone, at one point of the way."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def fault_point(self, label: str) -> None:
        if label == self._label:
            self._now += ELSEWHERE_SECONDS


def latencies(store: OpenStore) -> list[float]:
    return [seconds for _, seconds in store.metrics.allocation._samples]


async def test_an_allocation_is_timed_without_what_is_around_it(engine: Engine) -> None:
    """Time that passes before the commit that allocates, or after the numbers are taken, is not its own."""
    # On SQLite in atomic the point lies within: statements and COMMIT are one transaction.
    is_within = isinstance(engine, SqliteEngine) and engine.sequencing == "atomic"
    time = LeapingTime(PLACES[engine.sequencing])
    async with engine.opened(fault_point=time.fault_point) as store:
        store.metrics.now = time.now
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await stored(store, message(chat, ann))
        assert time.now() >= ELSEWHERE_SECONDS
        assert latencies(store) == [ELSEWHERE_SECONDS if is_within else 0.0]


async def test_an_append_that_allocates_nothing_is_not_timed(engine: Engine) -> None:
    """A retry is answered from its key: there is no allocation that could be slow."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        draft = message(chat, ann)
        await stored(store, draft)
        before = len(latencies(store))
        await stored(store, draft)
        assert len(latencies(store)) == before == 1


async def test_each_stored_message_is_an_allocation_without_a_gap(engine: Engine) -> None:
    """In every mode the rate knows of the numbers that came to something."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        await said(store, await add_group(store, ann), ann, "a", "b", "c")
        assert totals(store) == (0, 3)


async def test_a_number_lost_to_a_crash_is_counted_where_it_is_sealed(engine: Engine) -> None:
    """Whoever took it is gone and cannot say so: of three numbers one came to nothing."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await said(store, chat, ann, "a")
        store.abandon(chat, 2, store.clock())
        await said(store, chat, ann, "b")
        assert totals(store) == (1, 3)
        assert store.metrics.voids_sealed._value.get() == 1


async def test_a_number_lost_to_a_crash_is_counted_at_the_next_start(sqlite: SqliteEngine) -> None:
    """The start seals what the process before it has taken and not written, and counts it once."""
    async with sqlite.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await said(store, chat, ann, "a")
        store.abandon(chat, 2, store.clock())
        await store.reopen()
        await said(store, chat, ann, "b")
        assert totals(store) == (1, 3)


async def test_a_retry_answered_from_its_key_is_no_conflict(tmp_path: Path) -> None:
    """The client repeats what is stored, the index says so, and nothing stood in the way of a write."""
    async with SqliteEngine("atomic", tmp_path).opened() as store:
        (ann,) = await add_people(store, "ann")
        draft = message(await add_group(store, ann), ann)
        await stored(store, draft)
        await stored(store, draft)
        assert store.metrics.conflicts.rate() == 0.0


async def test_a_counter_that_moved_is_a_conflict(tmp_path: Path) -> None:
    """Memory was wrong about the head, which nobody told: the append decides again, and is counted."""
    async with SqliteEngine("atomic", tmp_path).opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await said(store, chat, ann, "a")
        state = store.store.log._states.known(chat)
        assert state is not None
        state.allocated += 1
        await said(store, chat, ann, "b")
        assert store.metrics.conflicts.rate() == 0.5


def totals(store: OpenStore) -> tuple[float, float]:
    """What the rate of gaps divides: numbers that came to nothing, and all numbers."""
    slots = store.metrics.gaps._slots
    return sum(slot[1] for slot in slots), sum(slot[2] for slot in slots)


# Log lines


def lines_of(captured: Sequence[Mapping[str, Any]], draft: Draft) -> list[str]:
    return [line["event"] for line in captured if line.get("request_id") == draft.request_id]


def named(chat: str, sender: str, request_id: str, client_id: str = "") -> Draft:
    draft = message(chat, sender, client_id=client_id)
    draft.request_id = request_id
    return draft


async def test_a_message_is_told_from_allocation_to_persistence(engine: Engine) -> None:
    """`Sequence allocated` and `Message persisted` carry the id of the request."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        draft = named(await add_group(store, ann), ann, "first")
        with capture_logs() as captured:
            await stored(store, draft)
        assert lines_of(captured, draft) == ["Sequence allocated", "Message persisted"]


async def test_a_retry_is_told_as_a_duplicate(engine: Engine) -> None:
    """It takes no number, and whoever stored the original is long done: that is no race."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        draft = named(await add_group(store, ann), ann, "retry")
        await stored(store, draft)
        with capture_logs() as captured:
            await stored(store, draft)
        assert lines_of(captured, draft) == ["Duplicate message detected"]


async def test_a_race_is_told(engine: Engine) -> None:
    """Of two that send one message at once, the one that comes second says that it lost."""
    gate = Gate()
    async with engine.opened(fault_point=gate) as store, beside(store) as rival:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        winner, loser = named(chat, ann, "winner"), named(chat, ann, "loser")
        loser.client_key, loser.client_message_id = winner.client_key, winner.client_message_id
        with capture_logs() as captured:
            if engine.sequencing == "two_phase":
                late = asyncio.create_task(stored(store, loser))
                await gate.reached.wait()
                await stored(rival, winner)
                gate.opened.set()
                await late
            else:
                await said(store, chat, ann, "known")
                await asyncio.gather(stored(store, winner), stored(store, loser))
        assert lines_of(captured, loser)[-2:] == ["Race condition resolved", "Duplicate message detected"]
        assert "Race condition resolved" not in lines_of(captured, winner)


@asynccontextmanager
async def beside(store: OpenStore) -> AsyncIterator[OpenStore]:
    """Whoever else may write: another node where there are many, another append where there is one."""
    other: DynamoOpenStore | CassandraOpenStore
    if isinstance(store, DynamoOpenStore):
        other = DynamoOpenStore(store._allocator_name, {})
        other.prefix = store.prefix
    elif isinstance(store, CassandraOpenStore):
        other = CassandraOpenStore(store.connection, store._allocator_name, {})
    else:
        yield store
        return
    other.clock = store.clock
    await other.open()
    try:
        yield other
    finally:
        await other.close()


async def test_a_missing_counter_is_critical_until_it_is_recovered(engine: Engine) -> None:
    """`COUNTER_MISSING` names the chat, and so does `Counter recovered`."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await said(store, chat, ann, "a")
        store.set_counter(chat, None)
        with capture_logs() as captured:
            await outcome(store, named(chat, ann, "refused"))
            store.recover_counter(chat)
        told = [(line["event"], line["log_level"]) for line in captured if line.get("chat_id") == chat]
        assert ("COUNTER_MISSING", "critical") in told
        assert ("Counter recovered", "warning") in told
