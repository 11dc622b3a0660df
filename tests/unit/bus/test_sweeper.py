"""The sweeper: what nobody publishes is published after all, and whoever is at work is left alone."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from parley.bus.sweeper import CHATS_AT_ONCE_MAX, SWEEP_AFTER_MS, SWEEP_SECONDS, Sweeper
from tests.harness.clock import VirtualClock, run_virtual
from tests.harness.jobs import supervised
from tests.unit.bus.world import World

SWEEP_AFTER_SECONDS = SWEEP_AFTER_MS / 1000


def sweeper_of(world: World) -> Sweeper:
    return Sweeper(world.outbox, world.log, world.another(), world.metrics, world.clock)


def run(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def play(clock: VirtualClock) -> None:
        await scenario(World(clock))

    with structlog.testing.capture_logs():
        run_virtual(play)


def test_what_a_dead_node_left_behind_is_published() -> None:
    """A chat whose mark stands still is published from there, once, and no longer listed."""

    async def scenario(world: World) -> None:
        world.log.store("a", 1, 2, 3)
        world.outbox.marks = {"a": 1}
        async with supervised(world.clock, sweeper_of(world).job):
            await asyncio.sleep(SWEEP_AFTER_SECONDS)
            assert world.sink.records == []
            await asyncio.sleep(2 * SWEEP_SECONDS)
            assert (world.sink.sequences("a"), world.sink.nodes("a")) == ([2, 3], [None, None])
            assert await world.outbox.unpublished() == {}
            await asyncio.sleep(100)
            assert world.sink.sequences("a") == [2, 3]
            assert world.told("parley_chats_swept_total") == 1

    run(scenario)


def test_a_mark_that_moves_is_left_alone() -> None:
    """As long as somebody publishes, however far behind, nobody else does."""

    async def scenario(world: World) -> None:
        world.log.store("a", *range(1, 1000))
        sweeper = sweeper_of(world)
        for mark in range(100):
            world.outbox.marks = {"a": mark}
            assert await sweeper.sweep(world.clock()) == []
            await asyncio.sleep(SWEEP_AFTER_SECONDS - 1)
        assert world.sink.records == []

    run(scenario)


def test_two_sweepers_do_no_harm() -> None:
    """They may publish something twice; each chat stays whole, and its mark reaches the head."""

    async def scenario(world: World) -> None:
        world.log.store("a", *range(1, 1201))
        sweepers = [sweeper_of(world), sweeper_of(world)]
        for _ in range(2):
            for sweeper in sweepers:
                await sweeper.sweep(world.clock())
            await asyncio.sleep(SWEEP_AFTER_SECONDS)
        await asyncio.sleep(10)
        assert list(dict.fromkeys(world.sink.sequences("a"))) == list(range(1, 1201))
        assert world.outbox.marks == {"a": 1200}

    run(scenario)


def test_a_mark_that_was_lost_on_the_way_is_told_again() -> None:
    """If the publisher knows better than the store, nothing is published, and the store is told."""

    async def scenario(world: World) -> None:
        sweeper = Sweeper(world.outbox, world.log, world.publisher, world.metrics, world.clock)
        world.publisher.publish([world.log.store("a", 1, 2)])
        await asyncio.sleep(1)
        world.outbox.marks = {}
        await sweeper.sweep(world.clock())
        await asyncio.sleep(SWEEP_AFTER_SECONDS)
        await sweeper.sweep(world.clock())
        await asyncio.sleep(1)
        assert (world.sink.sequences("a"), world.outbox.marks) == ([1, 2], {"a": 2})

    run(scenario)


def test_a_long_list_is_swept_in_pieces() -> None:
    """After a long outage a sweep takes so many chats and no more, until all are done."""

    async def scenario(world: World) -> None:
        count = 2 * CHATS_AT_ONCE_MAX + 1
        for number in range(count):
            world.log.store(f"{number}", 1)
        sweeper = sweeper_of(world)
        await sweeper.sweep(world.clock())
        await asyncio.sleep(SWEEP_AFTER_SECONDS)
        taken = []
        for _ in range(4):
            taken.append(len(await sweeper.sweep(world.clock())))
            await asyncio.sleep(2)
        assert taken == [CHATS_AT_ONCE_MAX, CHATS_AT_ONCE_MAX, 1, 0]
        assert len(world.sink.records) == count

    run(scenario)


def test_a_store_that_is_away_is_asked_again() -> None:
    """A sweeper outlives the store's absence."""

    async def scenario(world: World) -> None:
        world.log.store("a", 1)
        world.outbox.is_down = True
        async with supervised(world.clock, sweeper_of(world).job):
            await asyncio.sleep(60)
            world.outbox.is_down = False
            await asyncio.sleep(60)
            assert world.sink.sequences("a") == [1]

    run(scenario)
