"""kill -9 with 2,000 clients: how long until they have reconnected and caught up."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

from bench import frames
from bench.connection import Address, NotWelcome, connect
from bench.measuring import until
from bench.roles import Load, Returning
from bench.rows import Row
from bench.scenarios.idle import FILES_BESIDE_CONNECTIONS, allow_files
from bench.server import Server
from bench.stage import Stage
from bench.world import Person, World

CLIENTS = 2_000
CHAT_MEMBERS = 100
CHAT_ENTRIES = 200
MISSED_ENTRIES = 10
RETRY_SECONDS_MAX = 0.1
SHARE_BACK = 0.99
RETURN_SECONDS_MAX = 60
CONNECTING_AT_ONCE = 100


class Client:
    """Reconnects whenever its connection ends, and then syncs."""

    def __init__(self, address: Address, person: Person, chat_id: str, chance: random.Random) -> None:
        self._address = address
        self._hello = frames.hello(person.token, person.device_id, live=True)
        self._chat_id = chat_id
        self._chance = chance

    async def stay(self, load: Load, caught_up: Callable[[], None]) -> None:
        while True:
            role = Returning(load, self._chat_id, CHAT_ENTRIES - MISSED_ENTRIES, caught_up)
            try:
                await connect(self._address, self._hello, role)
                await role.lost
            except (OSError, NotWelcome):
                pass  # the server is not back yet: the pause below is the answer
            await asyncio.sleep(self._chance.uniform(0, RETRY_SECONDS_MAX))


class Returns:
    """Counts clients that have caught up, with the times."""

    def __init__(self) -> None:
        self.moments: list[float] = []

    def note(self) -> None:
        self.moments.append(time.perf_counter())


async def back_after_kill(stage: Stage) -> list[Row]:
    count = stage.pick(CLIENTS, CLIENTS // 4)
    allow_files(count + FILES_BESIDE_CONNECTIONS)

    async def populate(world: World) -> list[tuple[Person, str]]:
        people = await world.people(count)
        placed = []
        for start in range(0, count, CHAT_MEMBERS):
            members = people[start : start + CHAT_MEMBERS]
            chat_id = await world.group(members)
            await world.fill(chat_id, members[0], CHAT_ENTRIES)
            placed += [(person, chat_id) for person in members]
        return placed

    load, returns, chance = Load(), Returns(), random.Random(1)
    async with stage.serving(populate) as (server, placed):
        clients = [Client(server.address, person, chat_id, chance) for person, chat_id in placed]
        staying = await _settle(clients, load, returns)
        returns.moments.clear()
        generator_cpu = time.process_time()
        killed = time.perf_counter()
        server.kill()
        server.launch()
        ready = asyncio.create_task(_moment_ready(server))
        await until(lambda: len(returns.moments) >= SHARE_BACK * count, RETURN_SECONDS_MAX)
        generator_cpu = time.process_time() - generator_cpu
        start_seconds = await ready - killed
        cpu_us = 1e6 * server.cpu_seconds() / count
        for task in staying:
            task.cancel()
    return [_row(count, returns.moments, killed, start_seconds, cpu_us, generator_cpu)]


async def _settle(clients: list[Client], load: Load, returns: Returns) -> list[asyncio.Task[None]]:
    """Connect all clients for the first time, a few at once, and wait until they have caught up."""
    staying = []
    for index, client in enumerate(clients, 1):
        staying.append(asyncio.create_task(client.stay(load, returns.note)))
        if index % CONNECTING_AT_ONCE == 0 or index == len(clients):
            expected = index
            await until(lambda: len(returns.moments) >= expected, RETURN_SECONDS_MAX)  # noqa: B023 - awaited here
    return staying


async def _moment_ready(server: Server) -> float:
    await server.ready()
    return time.perf_counter()


def _row(
    count: int, moments: list[float], killed: float, start_seconds: float, cpu_us: float, generator_cpu: float
) -> Row:
    needed = int(SHARE_BACK * count)
    back = sorted(moments)[:needed]
    if len(back) < needed:
        seconds, notes = float("inf"), [f"only {len(back)} of {count} came back"]
    else:
        seconds, notes = back[-1] - killed, [f"the server said ready {start_seconds:.2f} s after the kill"]
    return Row(
        name="returning",
        label=f"{count:,} clients back after kill -9 (99%)",
        unit="s",
        value=seconds,
        cpu_us=cpu_us,
        p50_ms=1e3 * (back[len(back) // 2] - killed) if back else None,
        p99_ms=1e3 * seconds,
        generator_share=generator_cpu / seconds,
        notes=notes,
    )
