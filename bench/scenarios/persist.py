"""How long a message waits for its position: allocation and the persist path, by number of writers."""

from __future__ import annotations

from collections.abc import Mapping

from bench import frames
from bench.connection import connect_all
from bench.measuring import Stretch, drain, measure
from bench.roles import Load, Writer
from bench.rows import Row
from bench.stage import Stage
from bench.world import Person, World

MODES = ("atomic", "two_phase")
WRITERS = (1, 10, 100)
SEQUENCING = "PARLEY_STORE_SEQUENCING"
ALLOCATION_P99 = "sequence_allocation_latency_p99"
PERSIST_P99 = "parley_persist_seconds_p99"


async def persist(stage: Stage) -> list[Row]:
    return [row for mode in MODES for count in WRITERS for row in await _play(stage, mode, count)]


async def _populate(world: World) -> tuple[list[Person], str]:
    people = await world.people(max(WRITERS))
    return people, await world.group(people)


async def _play(stage: Stage, mode: str, count: int) -> list[Row]:
    load = Load()
    async with stage.serving(_populate, {SEQUENCING: mode}) as (server, (people, chat_id)):
        writers = [Writer(load, chat_id, 1) for _ in range(count)]
        hellos = [frames.hello(person.token, person.device_id, False) for person in people[:count]]
        await connect_all(server.address, list(zip(hellos, writers, strict=True)))
        for writer in writers:
            writer.start()
        stretch = await measure(load, server, stage.seconds, stage.warm_up_seconds)
        metrics = await server.metrics()
        stretch.notes += await drain(load)
    return rows_of("", mode, count, metrics, stretch)


def rows_of(
    engine: str, mode: str, writers: int, metrics: Mapping[str, float], stretch: Stretch
) -> list[Row]:
    """Both as the server measured them; the second with the latency that clients saw."""
    who = f"{mode}, {writers} writer{'s' if writers > 1 else ''} to one chat"
    name = f"{mode}_{writers}"
    return [
        Row(
            name=f"{engine}allocation_{name}",
            label=f"{who}: p99 of allocation",
            unit="ms",
            value=1_000 * metrics[ALLOCATION_P99],
            batch=stretch.batch,
            others_cores=stretch.others_cores,
        ),
        Row(
            name=f"{engine}persist_{name}",
            label=f"{who}: p99 of the persist path",
            unit="ms",
            value=1_000 * metrics[PERSIST_P99],
            p50_ms=stretch.ack_ms[0],
            p99_ms=stretch.ack_ms[1],
            batch=stretch.batch,
            generator_share=stretch.generator_share,
            others_cores=stretch.others_cores,
            notes=[f"{stretch.acks:.0f} acks/s", *stretch.notes],
        ),
    ]
