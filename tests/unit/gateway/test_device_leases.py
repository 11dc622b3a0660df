"""Device leases: who is connected is told in few calls, renewed in time, and told again when forgotten."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

import pytest

from parley.ephemeral.attention import people_there
from parley.ephemeral.local import LocalRegistry
from parley.ephemeral.ports import DEVICE_LEASE_SECONDS, DEVICE_RENEW_SECONDS, Device, Presence
from parley.gateway import device_leases
from parley.gateway.device_leases import STEP_SECONDS, DeviceLeases
from parley.wire.limits import ATTENTION_SECONDS
from tests.harness.clock import START_MS, VirtualClock, run_virtual

ANN, BEN = ("usr_ann", "phone"), ("usr_ben", "phone")
CALL_SECONDS = 0.01


class SlowRegistry(LocalRegistry):
    """A registry over a network, which counts its calls and may forget everything."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.calls: list[tuple[str, int]] = []
        self._tell_returned: Callable[[], None] = lambda: None

    async def connected(self, devices: Sequence[Device], node_id: str) -> None:
        await self._travel("connected", devices)
        await super().connected(devices, node_id)

    async def disconnected(self, devices: Iterable[Device], node_id: str) -> list[Presence]:
        devices = list(devices)
        await self._travel("disconnected", devices)
        return await super().disconnected(devices, node_id)

    async def renew(self, devices: Sequence[Device], node_id: str) -> list[Presence]:
        await self._travel("renew", devices)
        return await super().renew(devices, node_id)

    def on_return(self, returned: Callable[[], None]) -> Callable[[], None]:
        self._tell_returned = returned
        return lambda: None

    def forget(self) -> None:
        self._people.clear()
        self._leases.clear()
        self._tell_returned()

    async def _travel(self, verb: str, devices: Sequence[Device]) -> None:
        self.calls.append((verb, len(devices)))
        await asyncio.sleep(CALL_SECONDS)


class World:
    """Device leases over a slow registry."""

    def __init__(self, clock: VirtualClock) -> None:
        self.registry = SlowRegistry(clock)
        self.gone: list[Presence] = []
        self.devices = DeviceLeases(self.registry, "a", self.gone.extend)

    async def present(self) -> set[str]:
        return set(await self.registry.whereabouts(["usr_ann", "usr_ben", *crowd_ids()]))


@asynccontextmanager
async def at_work(clock: VirtualClock) -> AsyncIterator[World]:
    world = World(clock)
    world.devices.start()
    try:
        yield world
    finally:
        await world.devices.close()


def crowd_ids() -> list[str]:
    return [f"usr_{number}" for number in range(2_000)]


def crowd_comes(devices: DeviceLeases) -> None:
    for user_id in crowd_ids():
        devices.arrived(user_id, "phone")


def crowd_is_heard(devices: DeviceLeases) -> None:
    for user_id in crowd_ids():
        devices.heard(user_id, "phone")


async def told() -> None:
    """Long enough for what has happened to be told, and shorter than a step."""
    await asyncio.sleep(STEP_SECONDS / 2)


def test_a_crowd_costs_few_calls() -> None:
    """Two thousand who come at once, and then go, are told of in a handful of calls."""

    async def scenario(clock: VirtualClock) -> None:
        async with at_work(clock) as world:
            crowd_comes(world.devices)
            await told()
            assert len(await world.present()) == 2_000
            for user_id in crowd_ids():
                world.devices.left(user_id, "phone", clean=True)
            await asyncio.sleep(STEP_SECONDS / 4)
            assert await world.present() == set()
            assert len([verb for verb, _ in world.registry.calls if verb != "renew"]) <= 6

    run_virtual(scenario)


def test_who_is_heard_in_time_never_runs_out() -> None:
    """However long a device heartbeats it stays registered, and each time it is heard is one renewal."""

    async def scenario(clock: VirtualClock) -> None:
        async with at_work(clock) as world:
            crowd_comes(world.devices)
            await asyncio.sleep(1)
            world.registry.calls.clear()
            for _ in range(40):
                await asyncio.sleep(DEVICE_RENEW_SECONDS)
                crowd_is_heard(world.devices)
                crowd_is_heard(world.devices)
            assert world.gone == []
            assert len(await world.present()) == 2_000
            await told()
            assert sum(count for _, count in world.registry.calls) == 40 * 2_000
            assert len(world.registry.calls) <= 40 * (2 + DEVICE_RENEW_SECONDS / STEP_SECONDS)

    run_virtual(scenario)


def test_a_silent_device_runs_out() -> None:
    """A socket that says nothing holds no lease; whoever is heard meanwhile does, and so does who is back."""

    async def scenario(clock: VirtualClock) -> None:
        async with at_work(clock) as world:
            world.devices.arrived(*ANN)
            world.devices.arrived(*BEN)
            for _ in range(2):
                await asyncio.sleep(DEVICE_RENEW_SECONDS)
                world.devices.heard(*BEN)
            await asyncio.sleep(2 * STEP_SECONDS)
            assert await world.present() == {"usr_ben"}
            assert world.gone == [Presence("usr_ann", False, START_MS + round(CALL_SECONDS * 1000))]
            world.devices.heard(*ANN)
            await told()
            assert await world.present() == {"usr_ann", "usr_ben"}

    run_virtual(scenario)


def test_a_lost_connection_leaves_its_lease() -> None:
    """Who is cut off is online until the lease ends, also if a renewal was under way; then they are gone."""

    async def scenario(clock: VirtualClock) -> None:
        async with at_work(clock) as world:
            world.devices.arrived(*ANN)
            await told()
            world.devices.heard(*ANN)
            world.devices.left(*ANN, clean=False)
            world.devices.heard(*ANN)
            await asyncio.sleep(DEVICE_LEASE_SECONDS - 2 * STEP_SECONDS)
            assert (await world.present(), world.gone) == ({"usr_ann"}, [])
            await asyncio.sleep(3 * STEP_SECONDS)
            assert await world.present() == set()
            assert [presence.user_id for presence in world.gone] == ["usr_ann"]

    run_virtual(scenario)


def test_who_is_back_in_time_was_never_gone() -> None:
    """A device that lost its connection and has a new one, here, goes with that one, and nobody noticed."""

    async def scenario(clock: VirtualClock) -> None:
        async with at_work(clock) as world:
            changes: list[bool] = []
            world.registry.watch(lambda presence: changes.append(presence.is_online))
            world.devices.arrived(*ANN)
            await told()
            world.devices.left(*ANN, clean=False)
            await asyncio.sleep(DEVICE_LEASE_SECONDS / 2)
            world.devices.arrived(*ANN)
            await asyncio.sleep(DEVICE_LEASE_SECONDS - STEP_SECONDS)
            assert changes == [True]
            world.devices.left(*ANN, clean=True)
            await told()
            assert changes == [True, False]

    run_virtual(scenario)


def test_who_loses_one_of_two_connections_is_still_here() -> None:
    """A lost socket of a device that has another one neither ends nor renews anything."""

    async def scenario(clock: VirtualClock) -> None:
        async with at_work(clock) as world:
            world.devices.arrived(*ANN)
            world.devices.arrived(*ANN)
            world.devices.left(*ANN, clean=False)
            await told()
            assert await world.present() == {"usr_ann"}
            world.devices.left(*ANN, clean=True)
            world.devices.left(*ANN, clean=True)
            await told()
            assert await world.present() == set()

    run_virtual(scenario)


def test_who_goes_is_told_once_with_the_time() -> None:
    """A clean close is told at once; a listener that fails ends nothing."""

    async def scenario(clock: VirtualClock) -> None:
        async with at_work(clock) as world:
            for device in (ANN, ("usr_ann", "laptop")):
                world.devices.arrived(*device)
            await told()
            world.devices.left(*ANN, clean=True)
            await told()
            assert world.gone == []
            world.devices.left("usr_ann", "laptop", clean=True)
            left_ms = clock()
            await told()
            assert world.gone == [Presence("usr_ann", False, left_ms + round(CALL_SECONDS * 1000))]
            world.devices._gone = _fail
            world.devices.arrived(*ANN)
            await told()
            world.devices.left(*ANN, clean=True)
            await told()
            world.devices.arrived(*BEN)
            await told()
            assert await world.present() == {"usr_ben"}

    run_virtual(scenario)


def test_a_device_leaves_with_its_last_connection() -> None:
    """A second socket of the same device keeps it here when the first one goes."""

    async def scenario(clock: VirtualClock) -> None:
        async with at_work(clock) as world:
            for _ in range(3):
                world.devices.arrived(*ANN)
            for _ in range(2):
                world.devices.left(*ANN, clean=True)
            await told()
            assert await world.present() == {"usr_ann"}
            world.devices.left(*ANN, clean=True)
            await told()
            assert await world.present() == set()

    run_virtual(scenario)


def test_who_is_back_before_it_was_told_has_never_left() -> None:
    """Coming and going faster than the registry hears ends in what is true."""

    async def scenario(clock: VirtualClock) -> None:
        async with at_work(clock) as world:
            changes: list[bool] = []
            world.registry.watch(lambda presence: changes.append(presence.is_online))
            world.devices.arrived(*ANN)
            await asyncio.sleep(CALL_SECONDS / 2)
            world.devices.left(*ANN, clean=True)
            world.devices.arrived(*ANN)
            world.devices.arrived(*BEN)
            world.devices.left(*BEN, clean=True)
            await told()
            assert await world.present() == {"usr_ann"}
            assert changes == [True]

    run_virtual(scenario)


def test_everybody_is_told_of_again_when_forgotten() -> None:
    """A registry that lost everything is given all who are here at once, without waiting for a renewal."""

    async def scenario(clock: VirtualClock) -> None:
        async with at_work(clock) as world:
            crowd_comes(world.devices)
            await told()
            world.registry.forget()
            assert await world.present() == set()
            await asyncio.sleep(10 * CALL_SECONDS)
            assert len(await world.present()) == 2_000

    run_virtual(scenario)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many changes are told of later: who came when heard, who went by the end of a lease."""
    monkeypatch.setattr(device_leases, "CHANGES_WAITING_MAX", 100)

    async def scenario(clock: VirtualClock) -> None:
        async with at_work(clock) as world:
            crowd_comes(world.devices)
            await told()
            assert len(await world.present()) == 100
            crowd_is_heard(world.devices)
            await told()
            assert len(await world.present()) == 2_000
            for user_id in crowd_ids():
                world.devices.left(user_id, "phone", clean=True)
            await asyncio.sleep(DEVICE_LEASE_SECONDS + 2 * STEP_SECONDS)
            assert await world.present() == set()

    run_virtual(scenario)


def test_a_node_that_closes_leaves_nobody_behind() -> None:
    """Whoever is still registered when the devices closes is taken out, and told to be gone."""

    async def scenario(clock: VirtualClock) -> None:
        async with at_work(clock) as world:
            world.devices.arrived(*ANN)
            await told()
            world.devices.arrived(*BEN)
        assert await world.present() == set()
        assert [presence.user_id for presence in world.gone] == ["usr_ann"]

    run_virtual(scenario)


def test_nobody_here_still_ends_what_ran_out_elsewhere() -> None:
    """A node without connections tells of people whose node has died."""

    async def scenario(clock: VirtualClock) -> None:
        async with at_work(clock) as world:
            await world.registry.connected([ANN], "dead")
            gone: list[str] = []
            world.registry.watch(lambda presence: gone.append(presence.user_id))
            await asyncio.sleep(DEVICE_LEASE_SECONDS + 2 * STEP_SECONDS)
            assert gone == ["usr_ann"]

    run_virtual(scenario)


def test_closing_waits_for_what_is_being_told() -> None:
    """Who goes offline by a call that is under way when the devices closes is told to be gone."""

    async def scenario(clock: VirtualClock) -> None:
        async with at_work(clock) as world:
            world.devices.arrived(*ANN)
            await told()
            world.devices.left(*ANN, clean=True)
            await asyncio.sleep(CALL_SECONDS / 2)
        assert [presence.user_id for presence in world.gone] == ["usr_ann"]

    run_virtual(scenario)


def _fail(gone: list[Presence]) -> None:
    raise ZeroDivisionError(gone)


# Whether somebody looks


async def there(world: World) -> bool:
    await told()
    return bool(await people_there(world.registry, ["usr_ann"]))


def test_a_device_that_nobody_looks_at_is_left_alone_after_two_minutes() -> None:
    """Not before, and until somebody looks again; it stays connected all the while."""

    async def scenario(clock: VirtualClock) -> None:
        async with at_work(clock) as world:
            world.devices.arrived(*ANN)
            assert await there(world)
            for _ in range(2):  # saying it again changes nothing
                world.devices.attention("conn_1", *ANN, is_looking=False)
                await asyncio.sleep(ATTENTION_SECONDS / 2 - 4 * STEP_SECONDS)
                world.devices.heard(*ANN)
                assert await there(world)
            await asyncio.sleep(8 * STEP_SECONDS)
            assert not await there(world)
            assert (await world.registry.presences(["usr_ann"]))[0].is_online
            world.devices.attention("conn_1", *ANN, is_looking=True)
            assert await there(world)
            assert world.gone == []

    run_virtual(scenario)


def test_one_look_is_enough() -> None:
    """At another connection of the device, or at another device of the person, on any node."""

    async def scenario(clock: VirtualClock) -> None:
        async with at_work(clock) as world:
            pad = ("usr_ann", "pad")
            for device in (ANN, ANN, pad):
                world.devices.arrived(*device)
            world.devices.attention("conn_1", *ANN, is_looking=False)
            world.devices.attention("conn_3", *pad, is_looking=False)
            await asyncio.sleep(ATTENTION_SECONDS)
            for device in (ANN, pad):
                world.devices.heard(*device)
            assert await there(world)
            world.devices.left(*ANN, clean=True)  # the one that somebody looked at
            assert not await there(world)
            other = DeviceLeases(world.registry, "b", world.gone.extend)
            await world.registry.connected([("usr_ann", "phone 2")], "b")
            assert await there(world)
            await other.close()

    run_virtual(scenario)


@pytest.mark.parametrize("clean", [True, False])
def test_nothing_is_left_of_a_device_that_nobody_looked_at(clean: bool) -> None:
    """When it comes back somebody looks at it, until it says otherwise; nobody else goes offline by it."""

    async def scenario(clock: VirtualClock) -> None:
        async with at_work(clock) as world:
            world.devices.arrived(*ANN)
            world.devices.attention("conn_1", *ANN, is_looking=False)
            await asyncio.sleep(ATTENTION_SECONDS)
            world.devices.heard(*ANN)
            assert not await there(world)
            world.devices.attention("conn_1", *ANN, is_looking=True)
            world.devices.left(*ANN, clean=clean)
            world.devices.arrived(*ANN)
            assert await there(world)
            world.devices.left(*ANN, clean=True)
            assert not await there(world)
            assert [presence.user_id for presence in world.gone if presence.user_id != "usr_ann"] == []

    run_virtual(scenario)
