"""Readers that stop reading: the server's memory must stay bounded."""

from __future__ import annotations

import asyncio
import time

from bench import frames
from bench.connection import connect_all
from bench.measuring import Stretch, measure
from bench.roles import Load, Quiet, Reader, Writer
from bench.rows import Row
from bench.server import Server
from bench.stage import Stage
from bench.world import Person, World

STUCK_READERS = 10
WRITERS = 20
SAMPLE_SECONDS = 0.1
MIB = 1024 * 1024


class Stuck(Quiet):
    """Sends hello and never reads again; the server rightly closes it."""

    def welcomed(self, transport: asyncio.Transport, rest: bytes) -> None:
        super().welcomed(transport, b"")
        transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        return


async def _populate(world: World) -> tuple[list[Person], str]:
    people = await world.people(1 + WRITERS + STUCK_READERS)
    return people, await world.group(people)


async def slow_reader(stage: Stage) -> list[Row]:
    """How much more resident memory the server uses than under the same load without them."""
    load = Load()
    async with stage.serving(_populate) as (server, (people, chat_id)):
        reader, writers, stuck = people[0], people[1 : 1 + WRITERS], people[1 + WRITERS :]
        await connect_all(server.address, [(_hello(reader, live=True), Reader(load))])
        roles = [(_hello(person, live=False), Writer(load, chat_id)) for person in writers]
        await connect_all(server.address, [*roles])
        for _, role in roles:
            role.start()
        before = await _peak_rss(server, stage.seconds / 2)
        await connect_all(server.address, [(_hello(person, live=True), Stuck(load)) for person in stuck])
        watching = asyncio.create_task(measure(load, server, 2 * stage.seconds, 0))
        peak = await _peak_rss(server, 2 * stage.seconds)
        stretch = await watching
        closed = (await server.metrics()).get("parley_connections_closed_total", 0)
        load.running = False
    return [_row((peak - before) / MIB, closed, stretch)]


def _hello(person: Person, live: bool) -> bytes:
    return frames.hello(person.token, person.device_id, live)


async def _peak_rss(server: Server, seconds: float) -> int:
    deadline, peak = time.perf_counter() + seconds, 0
    while time.perf_counter() < deadline:
        peak = max(peak, server.rss_bytes())
        await asyncio.sleep(SAMPLE_SECONDS)
    return peak


def _row(grown_mib: float, closed: float, stretch: Stretch) -> Row:
    meanwhile = f"{stretch.acks:,.0f} acks/s meanwhile; the server closed {closed:.0f} of {STUCK_READERS}"
    return Row(
        name="slow_reader",
        label=f"{STUCK_READERS} readers that stopped reading",
        unit="MiB more",
        value=grown_mib,
        p50_ms=stretch.ack_ms[0],
        p99_ms=stretch.ack_ms[1],
        batch=stretch.batch,
        generator_share=stretch.generator_share,
        notes=[*stretch.notes, meanwhile],
    )
