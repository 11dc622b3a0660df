"""One chat with 1,000 members online."""

from __future__ import annotations

from bench import frames
from bench.connection import connect_all
from bench.measuring import drain, measure
from bench.roles import Load, Reader, Writer
from bench.rows import Row, deliveries_row
from bench.stage import Stage
from bench.world import Person, World

MEMBERS = 1_000
MANY_WRITERS = 10


async def members_online(stage: Stage) -> list[Row]:
    """With one writer every delivery is a frame of its own; with ten, entries share frames."""
    return [
        await _play(stage, "members_1000", f"{MEMBERS:,} members online, 1 writer", 1),
        await _play(
            stage, "members_1000_10", f"{MEMBERS:,} members online, {MANY_WRITERS} writers", MANY_WRITERS
        ),
    ]


async def _play(stage: Stage, name: str, label: str, writers: int) -> Row:
    async def populate(world: World) -> tuple[list[Person], str]:
        people = await world.people(MEMBERS + writers)
        return people, await world.group(people)

    load = Load()
    async with stage.serving(populate) as (server, (people, chat_id)):
        readers = [(frames.hello(p.token, p.device_id, live=True), Reader(load)) for p in people[writers:]]
        await connect_all(server.address, [*readers])
        senders = [
            (frames.hello(p.token, p.device_id, live=False), Writer(load, chat_id)) for p in people[:writers]
        ]
        await connect_all(server.address, [*senders])
        for _, sender in senders:
            sender.start()
        stretch = await measure(load, server, stage.seconds, stage.warm_up_seconds)
        stretch.notes += await drain(load, deliveries_per_ack=MEMBERS)
    return deliveries_row(name, label, stretch, "deliveries/s")
