"""Group commit for numbers: one addition for all who wait."""

import asyncio

import pytest

from parley.errors import InconsistentCounterError, StoreUnavailable
from parley.sequencing.batches import CoalescingAllocator
from tests.harness.allocator import MemoryAllocator
from tests.waiting import eventually


async def test_what_is_asked_at_once_is_one_addition() -> None:
    """Callers of one turn share one allocation, and each gets his block in the order of asking."""
    counters = MemoryAllocator(a=10)
    allocator = CoalescingAllocator(counters)
    lasts = await asyncio.gather(*(allocator.allocate("a", count, count) for count in (1, 5, 2)))
    assert lasts == [11, 16, 18]
    assert counters.asked == [("a", 8, 5)]


async def test_who_comes_meanwhile_shares_the_next() -> None:
    """While one allocation is under way, everybody else waits for a single second one."""
    counters = MemoryAllocator(a=0)
    counters.gate.clear()
    allocator = CoalescingAllocator(counters)
    first = asyncio.create_task(allocator.allocate("a", 1, 0))
    await eventually(lambda: len(counters.asked) == 1)
    others = [asyncio.create_task(allocator.allocate("a", 1, 0)) for _ in range(9)]
    await asyncio.sleep(0)
    counters.gate.set()
    assert await asyncio.gather(first, *others) == list(range(1, 11))
    assert counters.asked == [("a", 1, 0), ("a", 9, 0)]


async def test_chats_do_not_wait_for_each_other() -> None:
    """A slow counter holds up nobody but those who ask for it."""
    counters = MemoryAllocator(a=0, b=0)
    allocator = CoalescingAllocator(counters)
    counters.gate.clear()
    slow = asyncio.create_task(allocator.allocate("a", 1, 0))
    await eventually(lambda: len(counters.asked) == 1)
    quick = asyncio.create_task(allocator.allocate("b", 1, 0))
    await eventually(lambda: len(counters.asked) == 2)
    counters.gate.set()
    assert [await slow, await quick] == [1, 1]


async def test_a_failure_is_told_to_all_who_shared_it() -> None:
    """Everybody whose numbers were asked for hears of the failure, and the next caller is served."""
    counters = MemoryAllocator(a=0)
    counters.trouble = StoreUnavailable("away")
    allocator = CoalescingAllocator(counters)
    asked = [allocator.allocate("a", 1, 0) for _ in range(3)]
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 3
    counters.trouble = None
    assert await allocator.allocate("a", 1, 0) == 1


async def test_an_unforeseen_failure_leaves_nobody_waiting() -> None:
    """An error that no allocator should raise reaches its callers all the same."""
    counters = MemoryAllocator(a=0)
    counters.trouble = RuntimeError("boom")
    with pytest.raises(RuntimeError, match="boom"):
        await CoalescingAllocator(counters).allocate("a", 1, 0)


async def test_the_highest_floor_counts() -> None:
    """What one caller knows about the log protects all who share the allocation."""
    allocator = CoalescingAllocator(MemoryAllocator(a=7))
    asked = [allocator.allocate("a", 1, floor) for floor in (0, 9)]
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [InconsistentCounterError] * 2


async def test_who_gave_up_before_the_start_is_not_counted() -> None:
    """Nothing is taken for a caller who no longer waits."""
    counters = MemoryAllocator(a=0)
    counters.gate.clear()
    allocator = CoalescingAllocator(counters)
    first = asyncio.create_task(allocator.allocate("a", 1, 0))
    await eventually(lambda: len(counters.asked) == 1)
    gone, stays = (asyncio.create_task(allocator.allocate("a", count, 0)) for count in (50, 1))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    counters.gate.set()
    assert [await first, await stays] == [1, 2]


async def test_who_gave_up_later_loses_only_his_own() -> None:
    """The block of a caller who left is given to nobody else."""
    counters = MemoryAllocator(a=0)
    counters.gate.clear()
    allocator = CoalescingAllocator(counters)
    gone, stays = (asyncio.create_task(allocator.allocate("a", count, 0)) for count in (50, 1))
    await eventually(lambda: len(counters.asked) == 1)
    gone.cancel()
    counters.gate.set()
    assert await stays == 51
    assert await allocator.allocate("a", 1, 0) == 52


async def test_an_allocation_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than the limit is asked for in turns, and a single caller is never split."""
    monkeypatch.setattr("parley.sequencing.batches.NUMBERS_AT_ONCE_MAX", 10)
    counters = MemoryAllocator(a=0)
    allocator = CoalescingAllocator(counters)
    counts = (6, 4, 1, 25, 3)
    assert await asyncio.gather(*(allocator.allocate("a", count, 0) for count in counts)) == [
        6,
        10,
        11,
        36,
        39,
    ]
    assert [count for _, count, _ in counters.asked] == [10, 1, 25, 3]


async def test_idle_waits_for_what_is_under_way() -> None:
    """It returns only after the last number was given."""
    counters = MemoryAllocator(a=0)
    counters.gate.clear()
    allocator = CoalescingAllocator(counters)
    asked = asyncio.create_task(allocator.allocate("a", 1, 0))
    await eventually(lambda: len(counters.asked) == 1)
    idle = asyncio.create_task(allocator.idle())
    await asyncio.sleep(0)
    assert not idle.done()
    counters.gate.set()
    await idle
    assert await asked == 1
