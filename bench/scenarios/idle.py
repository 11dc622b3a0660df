"""Idle connections: the memory of each."""

from __future__ import annotations

import asyncio
import resource

from bench import frames
from bench.connection import connect_all
from bench.roles import Load, Quiet
from bench.rows import Row
from bench.stage import Stage
from bench.world import Person, World

CONNECTIONS = 5_000
WARM_UP_CONNECTIONS = 200
SETTLE_SECONDS = 2.0
FILES_BESIDE_CONNECTIONS = 100
KIB = 1024


class QuietReader(Quiet):
    """Reads and counts nothing."""

    def data_received(self, data: bytes) -> None:
        return


async def idle(stage: Stage) -> list[Row]:
    """The increase of resident memory per connection."""
    count = stage.pick(CONNECTIONS, CONNECTIONS // 5)
    allow_files(count + FILES_BESIDE_CONNECTIONS)

    async def populate(world: World) -> list[Person]:
        people = await world.people(count)
        for one, other in zip(people[::2], people[1::2], strict=True):
            await world.direct(one, other)
        return people

    load = Load()
    async with stage.serving(populate) as (server, people):
        roles = [(frames.hello(p.token, p.device_id, live=True), QuietReader(load)) for p in people]
        load.running = False
        for transport in await connect_all(server.address, [*roles[:WARM_UP_CONNECTIONS]]):
            transport.abort()
        await asyncio.sleep(SETTLE_SECONDS)
        before, cpu_before = server.rss_bytes(), server.cpu_seconds()
        await connect_all(server.address, [*roles])
        cpu_after = server.cpu_seconds()
        await asyncio.sleep(SETTLE_SECONDS)
        kib_each = (server.rss_bytes() - before) / KIB / count
    opening_us = 1e6 * (cpu_after - cpu_before) / count
    return [
        Row(
            name="idle",
            label=f"{count:,} idle connections",
            unit="KiB each",
            value=kib_each,
            notes=[f"opening one, with its hello, cost {opening_us:.0f} µs CPU"],
        )
    ]


def allow_files(count: int) -> None:
    """Both this process and the servers it starts need a descriptor for each connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))
