"""The lobby: who is connected here is told in few calls, renewed in time, and told again when forgotten."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

import pytest

from parley.ephemeral.local import LocalRegistry
from parley.ephemeral.ports import DEVICE_LEASE_SECONDS, DEVICE_RENEW_SECONDS, Device
from parley.gateway import lobby as lobby_module
from parley.gateway.lobby import STEP_SECONDS, Lobby
from parley.testing.clock import VirtualClock, run_virtual

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

    async def disconnected(self, devices: Iterable[Device], node_id: str) -> None:
        devices = list(devices)
        await self._travel("disconnected", devices)
        await super().disconnected(devices, node_id)

    async def renew(self, devices: Sequence[Device], node_id: str) -> None:
        await self._travel("renew", devices)
        await super().renew(devices, node_id)

    def on_return(self, returned: Callable[[], None]) -> Callable[[], None]:
        self._tell_returned = returned
        return lambda: None

    def forget(self) -> None:
        self._people.clear()
        self._tell_returned()

    async def _travel(self, verb: str, devices: Sequence[Device]) -> None:
        self.calls.append((verb, len(devices)))
        await asyncio.sleep(CALL_SECONDS)


class World:
    """A lobby at work over a slow registry."""

    def __init__(self, clock: VirtualClock) -> None:
        self.registry = SlowRegistry(clock)
        self.lobby = Lobby(self.registry, "a")

    async def present(self) -> set[str]:
        return set(await self.registry.whereabouts(["usr_ann", "usr_ben", *crowd_ids()]))


@asynccontextmanager
async def at_work(clock: VirtualClock) -> AsyncIterator[World]:
    world = World(clock)
    world.lobby.start()
    try:
        yield world
    finally:
        await world.lobby.close()


def crowd_ids() -> list[str]:
    return [f"usr_{number}" for number in range(2_000)]


def crowd_comes(lobby: Lobby) -> None:
    for user_id in crowd_ids():
        lobby.arrived(user_id, "phone")


async def told() -> None:
    """Long enough for what has happened to be told, and shorter than a step."""
    await asyncio.sleep(STEP_SECONDS / 2)


def test_a_crowd_costs_few_calls() -> None:
    """Two thousand who come at once, and then go, are told of in a handful of calls."""

    async def scenario(clock: VirtualClock) -> None:
        async with at_work(clock) as world:
            crowd_comes(world.lobby)
            await told()
            assert len(await world.present()) == 2_000
            for user_id in crowd_ids():
                world.lobby.left(user_id, "phone")
            await asyncio.sleep(STEP_SECONDS / 4)
            assert await world.present() == set()
            assert len([verb for verb, _ in world.registry.calls if verb != "renew"]) <= 6

    run_virtual(scenario)


def test_leases_never_run_out_here() -> None:
    """However long a device stays, it stays registered, and is renewed no more often than needed."""

    async def scenario(clock: VirtualClock) -> None:
        async with at_work(clock) as world:
            crowd_comes(world.lobby)
            await asyncio.sleep(1)
            gone: list[str] = []
            world.registry.watch(lambda presence: gone.append(presence.user_id))
            world.registry.calls.clear()
            await asyncio.sleep(20 * DEVICE_LEASE_SECONDS)
            assert gone == []
            assert len(await world.present()) == 2_000
            renewed = sum(count for _, count in world.registry.calls)
            rounds = 20 * DEVICE_LEASE_SECONDS / (DEVICE_RENEW_SECONDS - STEP_SECONDS)
            assert renewed <= 2_000 * (rounds + 1)

    run_virtual(scenario)


def test_a_device_leaves_with_its_last_connection() -> None:
    """A second socket of the same device keeps it here when the first one goes."""

    async def scenario(clock: VirtualClock) -> None:
        async with at_work(clock) as world:
            for _ in range(3):
                world.lobby.arrived(*ANN)
            for _ in range(2):
                world.lobby.left(*ANN)
            await told()
            assert await world.present() == {"usr_ann"}
            world.lobby.left(*ANN)
            await told()
            assert await world.present() == set()

    run_virtual(scenario)


def test_who_is_back_before_it_was_told_has_never_left() -> None:
    """Coming and going faster than the registry hears ends in what is true."""

    async def scenario(clock: VirtualClock) -> None:
        async with at_work(clock) as world:
            changes: list[bool] = []
            world.registry.watch(lambda presence: changes.append(presence.is_online))
            world.lobby.arrived(*ANN)
            await asyncio.sleep(CALL_SECONDS / 2)
            world.lobby.left(*ANN)
            world.lobby.arrived(*ANN)
            world.lobby.arrived(*BEN)
            world.lobby.left(*BEN)
            await told()
            assert await world.present() == {"usr_ann"}
            assert changes == [True]

    run_virtual(scenario)


def test_everybody_is_told_of_again_when_forgotten() -> None:
    """A registry that lost everything is given all who are here at once, without waiting for a renewal."""

    async def scenario(clock: VirtualClock) -> None:
        async with at_work(clock) as world:
            crowd_comes(world.lobby)
            await told()
            world.registry.forget()
            assert await world.present() == set()
            await asyncio.sleep(10 * CALL_SECONDS)
            assert len(await world.present()) == 2_000

    run_virtual(scenario)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many changes are told of later: who came with the renewals, who went by the end of a lease."""
    monkeypatch.setattr(lobby_module, "CHANGES_WAITING_MAX", 100)

    async def scenario(clock: VirtualClock) -> None:
        async with at_work(clock) as world:
            crowd_comes(world.lobby)
            await told()
            assert len(await world.present()) == 100
            await asyncio.sleep(DEVICE_RENEW_SECONDS + STEP_SECONDS)
            assert len(await world.present()) == 2_000
            for user_id in crowd_ids():
                world.lobby.left(user_id, "phone")
            await asyncio.sleep(DEVICE_LEASE_SECONDS + 2 * STEP_SECONDS)
            assert await world.present() == set()

    run_virtual(scenario)


def test_a_node_that_closes_leaves_nobody_behind() -> None:
    """Whoever is still registered when the lobby closes is taken out."""

    async def scenario(clock: VirtualClock) -> None:
        async with at_work(clock) as world:
            world.lobby.arrived(*ANN)
            await told()
            world.lobby.arrived(*BEN)
        assert await world.present() == set()

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
