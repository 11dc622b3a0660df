"""Reading a long log in pages of 1,000."""

from __future__ import annotations

from bench import frames
from bench.connection import connect_all
from bench.measuring import Stretch, measure
from bench.roles import Load, Pager
from bench.rows import Row, pages_row
from bench.server import Server
from bench.stage import Stage
from bench.world import Person, World

ENTRIES = 100_000
PAGE_ENTRIES = 1_000
CLIENTS = 8


async def catch_up(stage: Stage) -> list[Row]:
    """One client alone, then several at once, when the jobs behind the log have nothing to do."""
    entries = stage.pick(ENTRIES, ENTRIES // 5)

    async def populate(world: World) -> tuple[list[Person], str]:
        people = await world.people(CLIENTS)
        chat_id = await world.group(people)
        await world.fill(chat_id, people[0], entries)
        return people, chat_id

    async with stage.serving(populate) as (server, (people, chat_id)):
        await _read(stage, server, people[:1], chat_id)  # with the first reader the log is hashed
        await server.rested()
        rows = []
        for name, clients in (("catch_up", 1), (f"catch_up_{CLIENTS}", CLIENTS)):
            stretch = await _read(stage, server, people[:clients], chat_id)
            rows.append(pages_row(name, f"catch-up over {entries:,} entries, clients: {clients}", stretch))
    return rows


async def _read(stage: Stage, server: Server, people: list[Person], chat_id: str) -> Stretch:
    """All of them read the log, from its start to its end and again."""
    load = Load()
    pagers = [
        (frames.hello(p.token, p.device_id, live=False), Pager(load, chat_id, PAGE_ENTRIES)) for p in people
    ]
    transports = await connect_all(server.address, [*pagers])
    for _, pager in pagers:
        pager.start()
    stretch = await measure(load, server, stage.seconds, stage.warm_up_seconds)
    load.running = False
    for transport in transports:
        transport.abort()
    return stretch
