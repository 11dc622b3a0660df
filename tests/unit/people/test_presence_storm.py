"""Presence when everybody comes at once: work in proportion to what changes, in turns, without reads."""

import asyncio
from itertools import pairwise

from parley.model import Relation
from parley.people.presence import RETURN_SECONDS
from parley.people.presence_publisher import FLAP_SECONDS, FRAMES_PER_TURN
from tests.harness.clock import VirtualClock, run_virtual
from tests.unit.people.world import Connection, PresenceWorld, in_world, presence_world, quiet, soon

WATCHED_EACH = 50


def crowd(count: int) -> list[str]:
    return [f"usr_{number}" for number in range(count)]


async def all_subscribe(world: PresenceWorld, user_ids: list[str]) -> list[Connection]:
    """Each watches the next fifty, so each is watched by fifty."""
    connections = [Connection(user_id) for user_id in user_ids]
    watched = [*user_ids, *user_ids[:WATCHED_EACH]]
    await asyncio.gather(
        *(
            world.presences.subscribe(connection, watched[at + 1 : at + 1 + WATCHED_EACH])
            for at, connection in enumerate(connections)
        )
    )
    return connections


class Work:
    """What a storm of reconnects cost."""

    def __init__(self, world: PresenceWorld) -> None:
        self.frames = world.frames
        self.encodings = world.encodings
        self.reads = len(world.relations.reads)
        self.asked = world.registry.asked


def storm_of(count: int) -> Work:
    """Everybody's phone is cut off and comes back at once; their laptops, on another node, see it happen."""

    async def scenario(clock: VirtualClock) -> Work:
        async with presence_world(clock) as world:
            user_ids = crowd(count)
            await world.registry.come(*user_ids)
            await all_subscribe(world, user_ids)
            phones = await all_subscribe(world, user_ids)
            await quiet()
            world.frames = world.encodings = world.registry.asked = 0
            world.relations.reads.clear()
            for connection in phones:
                world.presences.unsubscribe(connection)
            await world.registry.go(*user_ids)
            await soon()
            await asyncio.gather(world.registry.come(*user_ids), all_subscribe(world, user_ids))
            await quiet()
            return Work(world)

    return run_virtual(scenario)


def test_a_storm_of_reconnects_costs_in_proportion() -> None:
    """One read for each who subscribes, one frame for each change that is seen, encoded once for all."""
    for count in (100, 200):
        work = storm_of(count)
        assert work.reads == count
        assert work.asked == count * WATCHED_EACH
        assert work.frames == 2 * count * WATCHED_EACH
        assert work.encodings == 2 * count


def test_changes_cost_no_reads() -> None:
    """All go and come, again and again: a frame for what is different when it is quiet, and nothing read."""

    async def scenario(world: PresenceWorld) -> None:
        user_ids = crowd(400)
        await world.registry.come(*user_ids)
        connections = await all_subscribe(world, user_ids)
        await quiet()
        reads, asked = len(world.relations.reads), world.registry.asked
        for _ in range(10):
            await world.registry.go(*user_ids)
            await world.registry.come(*user_ids)
            await world.registry.go(*user_ids)
        await quiet()
        assert (len(world.relations.reads), world.registry.asked) == (reads, asked)
        assert world.frames == 400 * WATCHED_EACH
        assert all(len(connection.told) == WATCHED_EACH for connection in connections)
        assert world.encodings == 400

    in_world(scenario)


def test_others_have_their_turn_meanwhile() -> None:
    """However much is to be told, nobody waits for more than a bounded part of it."""

    async def scenario(world: PresenceWorld) -> None:
        watching = [await world.watches(f"usr_{number}", "usr_star") for number in range(3_000)]
        turns: list[int] = []

        async def look() -> None:
            while world.frames < len(watching):
                turns.append(world.frames)
                await asyncio.sleep(0)

        looking = asyncio.create_task(look())
        await world.registry.come("usr_star")
        await looking
        assert len(watching) == world.frames
        steps = [after - before for before, after in pairwise(turns)]
        assert max(steps) <= FRAMES_PER_TURN
        assert all(len(connection.told) == 1 for connection in watching)

    in_world(scenario)


def test_somebody_whom_thousands_watch_is_judged_in_few_reads() -> None:
    """A changed setting of a star is read in batches, not once for each who watches."""

    async def scenario(world: PresenceWorld) -> None:
        watching = [await world.watches(f"usr_{number}", "usr_star") for number in range(1_200)]
        world.relations.reads.clear()
        world.relations.hold(Relation.BLOCK, *(("usr_star", f"usr_{number}") for number in range(1_200)))
        world.presences.user_changed("usr_star")
        await quiet()
        assert world.relations.reads == [
            ("relationships", 501),
            ("relationships", 501),
            ("relationships", 201),
        ]
        assert all(connection.told == [("usr_star", "offline", "unavailable")] for connection in watching)

    in_world(scenario)


def test_after_an_outage_all_are_looked_at_in_batches() -> None:
    """Everybody who is watched is asked for once, and each viewer's rights are read once."""

    async def scenario(world: PresenceWorld) -> None:
        user_ids = crowd(600)
        await world.registry.come(*user_ids)
        await all_subscribe(world, user_ids)
        world.relations.reads.clear()
        world.registry.asked = 0
        world.registry.return_()
        await asyncio.sleep(RETURN_SECONDS + FLAP_SECONDS)
        assert world.registry.asked == 600
        assert world.relations.reads == [("relationships", WATCHED_EACH + 1)] * 600
        assert world.frames == 0

    in_world(scenario)
