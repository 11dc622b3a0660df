"""The `Allocator` port: a number is given once, whatever happens to its taker."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from parley.errors import CounterMissingError, InconsistentCounterError, StoreUnavailable
from parley.store.ports import Allocator
from tests.contracts.allocators import KINDS, Kind, new_chat

CALLERS = 100
ROUNDS = 30

T = TypeVar("T")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


async def test_numbers_start_at_one(kind: Kind) -> None:
    """A new chat's first number is 1, and blocks follow each other."""
    async with kind() as world:
        chat = new_chat()
        await world.allocator.create(chat)
        assert await world.allocator.last(chat) == 0
        assert [await world.allocator.allocate(chat, count, 0) for count in (1, 5, 2)] == [1, 6, 8]
        assert await world.allocator.last(chat) == 8


async def test_a_hundred_callers_get_successive_blocks(kind: Kind) -> None:
    """Callers at the same time share all numbers from the first to the last, none twice, none left out."""
    async with kind() as world:
        chat = new_chat()
        await world.allocator.create(chat)
        counts = [1 + caller % 3 for caller in range(CALLERS)]
        lasts = await asyncio.gather(*(world.allocator.allocate(chat, count, 0) for count in counts))
        given = [
            number
            for last, count in zip(lasts, counts, strict=True)
            for number in range(last - count + 1, last + 1)
        ]
        assert sorted(given) == list(range(1, sum(counts) + 1))


async def test_chats_count_for_themselves(kind: Kind) -> None:
    """Numbers of one chat say nothing about another's, even when asked for together."""
    async with kind() as world:
        chats = [new_chat() for _ in range(10)]
        await asyncio.gather(*map(world.allocator.create, chats))
        assert await asyncio.gather(*(world.allocator.allocate(chat, 2, 0) for chat in chats)) == [2] * 10


async def test_a_missing_counter_gives_nothing(kind: Kind) -> None:
    """A counter that is not there is told, and is not there afterwards either."""
    async with kind() as world:
        chat = new_chat()
        assert await world.allocator.last(chat) is None
        with pytest.raises(CounterMissingError):
            await world.allocator.allocate(chat, 1, 0)
        assert await world.allocator.last(chat) is None


async def test_a_missing_counter_does_not_harm_its_neighbours(kind: Kind) -> None:
    """Whoever asks at the same time for a chat that is well gets his number."""
    async with kind() as world:
        well, missing = new_chat(), new_chat()
        await world.allocator.create(well)
        outcomes = await asyncio.gather(
            world.allocator.allocate(missing, 1, 0),
            world.allocator.allocate(well, 1, 0),
            return_exceptions=True,
        )
        assert isinstance(outcomes[0], CounterMissingError)
        assert outcomes[1] == 1


async def test_a_counter_behind_the_log_gives_nothing(kind: Kind) -> None:
    """A counter that has lost data is told with both numbers, and does not move."""
    async with kind() as world:
        chat = new_chat()
        await world.allocator.create(chat)
        await world.allocator.allocate(chat, 7, 0)
        with pytest.raises(InconsistentCounterError) as behind:
            await world.allocator.allocate(chat, 1, 8)
        assert (behind.value.counter, behind.value.max_sequence) == (7, 8)
        assert await world.allocator.last(chat) == 7
        assert await world.allocator.allocate(chat, 1, 7) == 8


async def test_creating_again_changes_nothing(kind: Kind) -> None:
    """A counter that exists stays as it is."""
    async with kind() as world:
        chat = new_chat()
        await world.allocator.create(chat)
        await world.allocator.allocate(chat, 5, 0)
        await world.allocator.create(chat)
        assert await world.allocator.last(chat) == 5


async def test_restoring_never_lowers(kind: Kind) -> None:
    """An operator brings back a lost counter and raises one that fell back, but lowers none."""
    async with kind() as world:
        chat = new_chat()
        assert await world.allocator.restore(chat, 40) == 40
        assert await world.allocator.restore(chat, 39) == 40
        assert await world.allocator.restore(chat, 42) == 42
        assert await world.allocator.allocate(chat, 1, 42) == 43


@pytest.mark.parametrize("count", [0, -1])
async def test_a_block_has_a_number(kind: Kind, count: int) -> None:
    """Nothing that is asked for can make a counter stand still or go back."""
    async with kind() as world:
        chat = new_chat()
        await world.allocator.create(chat)
        with pytest.raises(ValueError):
            await world.allocator.allocate(chat, count, 0)
        assert await world.allocator.last(chat) == 0


async def test_large_numbers_are_exact(kind: Kind) -> None:
    """Numbers up to the largest that travels are given without rounding."""
    async with kind() as world:
        chat = new_chat()
        large = 2**53 - 10
        assert await world.allocator.restore(chat, large) == large
        assert await world.allocator.allocate(chat, 3, large) == large + 3
        assert await world.allocator.last(chat) == large + 3


async def test_a_lost_answer_burns_its_numbers(kind: Kind) -> None:
    """When the counter moved and nobody heard of it, nobody gets those numbers later."""
    async with kind() as world:
        chat = new_chat()
        await world.allocator.create(chat)
        await world.allocator.allocate(chat, 3, 0)
        await persistently(lambda: world.hasty.last(chat))  # what greets a service must not be what is lost
        world.line.loses_answers = True
        with pytest.raises(StoreUnavailable):
            await world.hasty.allocate(chat, 5, 3)
        world.line.loses_answers = False
        last = await world.allocator.allocate(chat, 1, 3)
        assert last >= 3 + 5 + 1
        assert (last - 3 - 1) % 5 == 0


async def test_a_lost_request_moves_nothing(kind: Kind) -> None:
    """When the counter was never reached, the next number is the one it would have been."""
    async with kind() as world:
        chat = new_chat()
        await world.allocator.create(chat)
        world.line.loses_requests = True
        with pytest.raises(StoreUnavailable):
            await world.hasty.allocate(chat, 5, 0)
        world.line.loses_requests = False
        assert await world.allocator.allocate(chat, 1, 0) == 1


async def test_a_service_out_of_reach_gives_nothing(kind: Kind) -> None:
    """Without a connection there is no number, and the same allocator works again later."""
    async with kind() as world:
        chat = new_chat()
        await world.allocator.create(chat)
        world.line.refuses = True
        world.line.cut()
        with pytest.raises(StoreUnavailable):
            await world.hasty.allocate(chat, 1, 0)
        world.line.refuses = False
        assert await persistently(lambda: world.hasty.allocate(chat, 1, 0)) >= 1


@pytest.mark.randomised
async def test_cuts_never_give_a_number_twice(kind: Kind, seed: int) -> None:
    """Under connections that break at any moment, callers who try again never share a number."""
    chance = random.Random(seed)
    async with kind() as world:
        chat = new_chat()
        await world.allocator.create(chat)
        callers = [asyncio.create_task(take_several(world.allocator, chat)) for _ in range(10)]
        for _ in range(ROUNDS):
            await asyncio.sleep(chance.random() * 0.02)
            world.line.cut()
        given = [number for numbers in await asyncio.gather(*callers) for number in numbers]
        assert len(set(given)) == len(given) == 10 * 10
        last = await persistently(lambda: world.allocator.last(chat))
        assert last is not None
        assert max(given) <= last


async def test_a_caller_who_gives_up_takes_nothing_from_others(kind: Kind) -> None:
    """A cancelled call may burn its numbers, and no other caller gets them or an answer meant for it."""
    async with kind() as world:
        chat = new_chat()
        await world.allocator.create(chat)
        given: list[int] = []
        for turn in range(ROUNDS):
            doomed = asyncio.create_task(world.allocator.allocate(chat, 1, 0))
            for _ in range(turn):
                await asyncio.sleep(0)
            doomed.cancel()
            given.append(await world.allocator.allocate(chat, 1, 0))
            if not doomed.cancelled() and doomed.done():
                given.append(doomed.result())
        assert len(set(given)) == len(given)


async def take_several(allocator: Allocator, chat: str) -> list[int]:
    return [await persistently(lambda: allocator.allocate(chat, 1, 0)) for _ in range(10)]


async def persistently(ask: Callable[[], Awaitable[T]]) -> T:
    """Try until there is an answer."""
    while True:
        try:
            return await ask()
        except StoreUnavailable:
            await asyncio.sleep(0.01)
