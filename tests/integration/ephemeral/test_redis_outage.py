"""Redis killed, paused, emptied and refusing under use: nobody is held up, and it heals by itself."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import msgspec
from structlog.testing import capture_logs

from parley.clock import wall_clock
from parley.ephemeral.ports import Node, Presence
from parley.ephemeral.redis.client import CALL_SECONDS_MAX
from parley.ephemeral.redis.engine import RedisEphemeral
from parley.ephemeral.redis.registry import RedisRegistry
from parley.ephemeral.signals import UserChangedSignal
from parley.gateway.device_leases import DeviceLeases
from tests.fakes import KEYS
from tests.integration.ephemeral.own_redis import OwnRedis
from tests.waiting import eventually

A, B = Node("a", "http://127.0.0.1:1", ("gateway",)), Node("b", "http://127.0.0.1:2", ("ingest",))
EARLY, LATE = [f"usr_early_{n}" for n in range(300)], [f"usr_late_{n}" for n in range(300)]


@asynccontextmanager
async def node(redis: OwnRedis) -> AsyncIterator[RedisEphemeral]:
    engine = RedisEphemeral(redis.url, KEYS, wall_clock)
    await engine.start()
    await eventually(lambda: engine.is_listening)
    try:
        yield engine
    finally:
        await engine.close()


@asynccontextmanager
async def devices_of(engine: RedisEphemeral, node_id: str) -> AsyncIterator[DeviceLeases]:
    devices = DeviceLeases(engine.registry, node_id, lambda _: None)
    devices.start()
    try:
        yield devices
    finally:
        await devices.close()


async def seconds_of(work: Awaitable[object]) -> float:
    loop = asyncio.get_running_loop()
    started = loop.time()
    await work
    return loop.time() - started


async def test_everything_held_is_back_after_redis_lost_all(own_redis: OwnRedis) -> None:
    """Killed and started again empty: who was here before and who came meanwhile are found by other nodes."""
    async with node(own_redis) as one, node(own_redis) as two, devices_of(one, "a") as devices:

        async def two_finds(*user_ids: str) -> bool:
            found = await two.registry.whereabouts(user_ids)
            return two.available and found == {user_id: {"phone": "a"} for user_id in user_ids}

        for user_id in EARLY:
            devices.arrived(user_id, "phone")
        await eventually(lambda: two_finds(*EARLY))
        await own_redis.kill()
        await eventually(lambda: not one.available and not two.available)
        for user_id in LATE:
            devices.arrived(user_id, "phone")
        await eventually(lambda: knows(one, *EARLY, *LATE))
        await own_redis.start_empty()
        await eventually(lambda: two_finds(*EARLY, *LATE))
        assert all(presence.is_online for presence in await two.registry.presences([*EARLY, *LATE]))


async def knows(engine: RedisEphemeral, *user_ids: str) -> bool:
    return all(presence.is_online for presence in await engine.registry.presences(user_ids))


async def test_a_restart_that_no_call_noticed_is_noticed(own_redis: OwnRedis) -> None:
    """Who only waits for news finds out that Redis was away, and registers again long before a renewal."""
    async with node(own_redis) as one, devices_of(one, "a") as devices:
        devices.arrived("usr_ann", "phone")
        await eventually(lambda: in_redis(own_redis, "presence:usr_ann"))
        await own_redis.start_empty()
        await eventually(lambda: in_redis(own_redis, "presence:usr_ann"))


async def in_redis(own_redis: OwnRedis, key: str) -> bool:
    async with own_redis.asked() as redis:
        return bool(await redis.exists(key))


async def test_changes_are_heard_again(own_redis: OwnRedis) -> None:
    """A watch that stood before the outage hears what changes after it."""
    async with node(own_redis) as one, node(own_redis) as two:
        heard: list[Presence] = []
        two.registry.watch(heard.append)
        await own_redis.kill()
        await eventually(lambda: not two.is_listening)
        await own_redis.start_empty()
        await eventually(lambda: one.is_listening and two.is_listening)
        await one.registry.connected([("usr_ann", "phone")], "a")
        await eventually(lambda: [presence.user_id for presence in heard] == ["usr_ann"])


async def test_signals_reach_those_here_and_later_all(own_redis: OwnRedis) -> None:
    """While Redis is away only this node hears what it tells; the rest is counted, and not told later."""
    async with node(own_redis) as one, node(own_redis) as two:
        without, with_it = UserChangedSignal("without"), UserChangedSignal("with")
        here: list[UserChangedSignal] = []
        there: list[UserChangedSignal] = []
        one.signals.subscribe(UserChangedSignal, here.append)
        two.signals.subscribe(UserChangedSignal, there.append)
        await own_redis.kill()
        await eventually(lambda: not one.is_listening and not two.is_listening)
        one.signals.publish(without)
        assert here == [without]
        await eventually(lambda: one.signals.dropped == 1)
        await own_redis.start_empty()
        await eventually(lambda: one.is_listening and two.is_listening)
        one.signals.publish(with_it)
        await eventually(lambda: there == [with_it])
        assert here == [without, with_it]


async def test_the_last_known_nodes_are_answered(own_redis: OwnRedis) -> None:
    """While Redis is away, and after it is back without its data, nodes that were alive are still listed."""
    async with node(own_redis) as one, node(own_redis) as two:
        await one.nodes.announce(A)
        await two.nodes.announce(B)
        assert await one.nodes.alive() == [A, B]
        await own_redis.kill()
        assert await one.nodes.alive() == [A, B]
        await own_redis.start_empty()
        await eventually(lambda: one.available and one.is_listening)
        assert await one.nodes.alive() == [A, B]


async def test_rates_go_on_alone(own_redis: OwnRedis) -> None:
    """While Redis is away this node still counts, from where it was, and shares again afterwards."""
    async with node(own_redis) as one, node(own_redis) as two:
        assert await one.rates.take("tests", "ann", 8, 0.001, 10) == 0
        await own_redis.kill()
        assert await one.rates.take("tests", "ann", 8, 0.001, 10) > 0
        assert await one.rates.take("tests", "ann", 2, 0.001, 10) == 0
        assert await one.rates.report("messages", {"ann": 1.0}, 50, 500) == {}
        await own_redis.start_empty()
        await eventually(lambda: one.available and two.available)
        assert await one.rates.take("tests", "ben", 8, 0.001, 10) == 0
        assert await two.rates.take("tests", "ben", 8, 0.001, 10) > 0


async def test_a_redis_that_hangs_holds_up_nobody(own_redis: OwnRedis) -> None:
    """One call waits as long as a call may, those after it do not wait, and it heals when it wakes."""
    async with node(own_redis) as one:
        assert await one.rates.take("tests", "ann", 1, 1, 1_000) == 0
        async with own_redis.paused():
            calls = [one.rates.take("tests", "ann", 1, 1, 1_000) for _ in range(200)]
            assert await seconds_of(asyncio.gather(*calls)) < 4 * CALL_SECONDS_MAX
            assert not one.available
            looks = [one.registry.presences(["usr_ann"]) for _ in range(200)]
            assert await seconds_of(asyncio.gather(*looks)) < 4 * CALL_SECONDS_MAX

        async def is_shared_again() -> bool:
            return await one.rates.report("messages", {"ann": 1.0}, 50, 500) == {"ann": 499.0}

        await eventually(is_shared_again)


async def test_an_outage_is_logged_once(own_redis: OwnRedis) -> None:
    """However many calls fail, one line says that Redis is lost and one that it is back, and no traceback."""
    async with node(own_redis) as one:
        with capture_logs() as lines:
            await own_redis.kill()
            for _ in range(50):
                await one.registry.renew([("usr_ann", "phone")], "a")
                await one.nodes.announce(A)
            await eventually(lambda: not one.available)
            await own_redis.start_empty()
            await eventually(lambda: one.available and one.is_listening)
        assert [line["event"] for line in lines] == ["redis lost", "redis is back"]
        assert not any("exc_info" in line for line in lines)


async def test_a_redis_that_was_never_there_is_found_when_it_comes(own_redis: OwnRedis) -> None:
    """A node starts without Redis, and uses it from the moment it is there."""
    await own_redis.kill()
    engine = RedisEphemeral(own_redis.url, KEYS, wall_clock)
    await engine.start()
    async with devices_of(engine, "a") as devices:
        devices.arrived("usr_ann", "phone")
        await eventually(lambda: not engine.available)
        await own_redis.start_empty()
        await eventually(lambda: in_redis(own_redis, "presence:usr_ann"))
    await engine.close()


async def test_a_redis_that_refuses_is_as_good_as_away(own_redis: OwnRedis) -> None:
    """Full, it takes no writes: nobody is harmed, and it is used again when there is room."""
    async with node(own_redis) as one, own_redis.asked() as redis, devices_of(one, "a") as devices:
        await redis.config_set("maxmemory-policy", "noeviction")
        await redis.config_set("maxmemory", "1")
        devices.arrived("usr_ann", "phone")
        await eventually(lambda: not one.available)
        assert (await one.registry.presences(["usr_ann"]))[0].is_online
        await redis.config_set("maxmemory", "0")
        await eventually(lambda: in_redis(own_redis, "presence:usr_ann"))


async def test_nothing_is_left_behind(own_redis: OwnRedis) -> None:
    """Every key goes by itself when nobody renews it."""
    engine = RedisEphemeral(own_redis.url, KEYS, wall_clock, node_lease_seconds=3, device_lease_seconds=3)
    await engine.nodes.announce(A)
    await engine.registry.connected([("usr_ann", "phone"), ("usr_ann", "laptop")], "a")
    await engine.rates.take("tests", "ann", 1, 2, 10)
    await engine.rates.report("messages", {"ann": 1.0}, 2, 10)

    async def is_empty() -> bool:
        await engine.registry.renew([], "b")
        return not await redis.keys()

    async with own_redis.asked() as redis:
        kept = sorted(await redis.keys())
        await eventually(is_empty)
    await engine.close()
    assert kept == [
        b"devices:usr_ann",
        b"nodes",
        b"presence:usr_ann",
        b"presence_leases",
        b"rate:messages:ann",
        b"rate:tests:ann",
    ]


async def test_presence_is_kept_under_the_names_of_the_design(own_redis: OwnRedis) -> None:
    """`presence:{user_id}` holds status and last_active for a minute; `presence_channel` tells of changes."""
    async with node(own_redis) as one, own_redis.asked() as redis, redis.pubsub() as channel:
        await channel.subscribe("presence_channel")
        await channel.get_message(timeout=5)
        await one.registry.connected([("usr_ann", "phone")], "a")
        kept = msgspec.json.decode(await redis.get("presence:usr_ann") or b"")
        assert 0 < await redis.pttl("presence:usr_ann") <= 60_000
        assert abs(kept.pop("last_active") - wall_clock()) < 10_000
        assert kept == {"status": "online"}
        (told,) = msgspec.json.decode((await channel.get_message(timeout=5))["data"])
        assert abs(told.pop("last_active") - wall_clock()) < 10_000
        assert told == {"user_id": "usr_ann", "status": "online"}


async def test_nonsense_on_the_channel_is_passed_over(own_redis: OwnRedis) -> None:
    """What another program says on the channels neither ends the listening nor counts as an outage."""
    async with node(own_redis) as one, own_redis.asked() as redis:
        for channel in ("presence_channel", "signals_channel"):
            await redis.publish(channel, "nonsense")
            await redis.publish(channel, b"\xff\xfe")
        heard: list[Presence] = []
        one.registry.watch(heard.append)
        await one.registry.connected([("usr_ann", "phone")], "a")
        await eventually(lambda: [presence.user_id for presence in heard] == ["usr_ann"])
        assert one.available


async def test_who_renews_in_time_is_not_ended(own_redis: OwnRedis) -> None:
    """Between finding that a lease ran out and ending it, its node may have renewed it: then it holds."""
    async with node(own_redis) as one:
        await one.registry.connected([("usr_ann", "phone")], "a")
        assert isinstance(one.registry, RedisRegistry)
        await one.registry._ended(["usr_ann", "usr_never_seen"])
        assert [presence.is_online for presence in await one.registry.presences(["usr_ann"])] == [True]


async def test_nobody_has_a_lease_while_redis_is_away(own_redis: OwnRedis) -> None:
    """The answer is that it is not known; when Redis is back, empty, the first to ask gets it."""
    async with node(own_redis) as one, node(own_redis) as two:
        assert await one.leases.hold("sweep", "a.1", 60.0) is True
        await own_redis.kill()
        assert await one.leases.hold("sweep", "a.1", 60.0) is None
        assert await two.leases.hold("sweep", "b.1", 60.0) is None
        assert await two.job_records.all() is None
        await own_redis.start_empty()

        async def two_has_it() -> bool:
            return await two.leases.hold("sweep", "b.1", 60.0) is True

        await eventually(two_has_it)
        assert await one.leases.hold("sweep", "a.1", 60.0) in (False, None)
