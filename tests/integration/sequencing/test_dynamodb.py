"""The counter in DynamoDB under faults that no emulator throws, and what an operator finds in the table."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from parley.errors import StoreUnavailable
from parley.store.dynamodb.allocator import DynamoAllocator
from parley.store.dynamodb.driver import Dynamo, Fault, Faults
from parley.store.dynamodb.schema import COUNTERS
from parley.testing.dynamodb_faults import (
    RandomFaults,
    conflict,
    server_error_done,
    server_error_not_done,
    throttle,
    timeout_done,
    timeout_not_done,
)
from tests.contracts.allocators import PATIENT_SECONDS, REGION, make_table, new_chat, prefix
from tests.harness.clock import VirtualClock
from tests.harness.fault_plans import Planned
from tests.services import dynamodb_endpoint


@asynccontextmanager
async def counters(faults: Faults | None = None) -> AsyncIterator[tuple[DynamoAllocator, Dynamo]]:
    endpoint = await asyncio.to_thread(dynamodb_endpoint)
    await make_table(endpoint)
    dynamo = Dynamo(endpoint, REGION, prefix=prefix(), faults=faults, answer_seconds=PATIENT_SECONDS)
    await dynamo.open()
    chance = random.Random(7).random
    try:
        yield DynamoAllocator(dynamo, clock=VirtualClock(), random=chance, deadline_seconds=20), dynamo
    finally:
        await dynamo.close()


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (throttle, 4),
        (conflict, 4),
        (timeout_not_done, 4),
        (server_error_not_done, 4),
        (timeout_done, 8),
        (server_error_done, 8),
    ],
)
async def test_a_fault_costs_numbers_at_most(fault: Fault, expected: int) -> None:
    """An allocation that meets a fault takes other numbers, and those that were lost are given to nobody."""
    plan = Planned(UpdateItem=[None, fault])
    async with counters(plan) as (allocator, _):
        chat = new_chat()
        await allocator.create(chat)
        assert await allocator.allocate(chat, 4, 0) == expected
        assert await allocator.allocate(chat, 1, 0) == expected + 1


async def test_faults_by_chance_never_give_a_number_twice() -> None:
    """Under every fault at once, concurrent callers get distinct numbers, in blocks of their own."""
    shares = {"throttle": 0.1, "timeout_done": 0.15, "timeout_not_done": 0.1, "server_error": 0.15}
    async with counters(RandomFaults(shares, seed=3)) as (allocator, _):
        chat = new_chat()
        await allocator.create(chat)
        lasts = await asyncio.gather(*(allocator.allocate(chat, 3, 0) for _ in range(40)))
        blocks = [set(range(last - 2, last + 1)) for last in lasts]
        assert len(set().union(*blocks)) == 3 * 40


async def test_creating_and_restoring_survive_lost_answers() -> None:
    """Verbs that may be repeated are, and change nothing the second time."""
    lost = [timeout_done, timeout_done, None]
    async with counters(Planned(UpdateItem=lost * 2)) as (allocator, _):
        chat = new_chat()
        await allocator.create(chat)
        assert await allocator.restore(chat, 9) == 9
        assert await allocator.last(chat) == 9


async def test_patience_ends() -> None:
    """When every answer is lost, the caller is told in time, and may try again with nothing stored."""
    async with counters(Planned(UpdateItem=[None, *[timeout_done] * 100_000])) as (_, dynamo):
        allocator = DynamoAllocator(dynamo, clock=VirtualClock(), random=lambda: 1.0, deadline_seconds=0.5)
        chat = new_chat()
        await allocator.create(chat)
        with pytest.raises(StoreUnavailable):
            await allocator.allocate(chat, 1, 0)


async def test_an_operator_finds_the_trail() -> None:
    """The row says when the counter was made, used and recovered, and from which number."""
    async with counters() as (allocator, dynamo):
        chat = new_chat()
        await allocator.create(chat)
        await allocator.allocate(chat, 3, 0)
        now = "2026-01-01T00:00:00.000Z"
        row = {"chat_id": chat, "sequence_counter": 3, "created_at": now, "updated_at": now}
        assert await dynamo.get(COUNTERS, {"chat_id": chat}) == row
        await allocator.restore(chat, 8)
        trail = {"recovered_at": now, "recovered_from_sequence": 8}
        assert await dynamo.get(COUNTERS, {"chat_id": chat}) == {**row, "sequence_counter": 8, **trail}


async def test_a_row_without_its_counter_is_a_missing_one() -> None:
    """Restoring puts the counter back and leaves everything else in the row as it is."""
    async with counters() as (allocator, dynamo):
        chat = new_chat()
        await dynamo.put(COUNTERS, {"chat_id": chat, "membership_revision": "r1"})
        assert await allocator.last(chat) is None
        assert await allocator.restore(chat, 5) == 5
        row = await dynamo.get(COUNTERS, {"chat_id": chat})
        assert row is not None
        assert (row["membership_revision"], row["sequence_counter"]) == ("r1", 5)
