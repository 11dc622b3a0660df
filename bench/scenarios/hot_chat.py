"""One chat with many writers: 100 writers, 10 readers, 128 bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from msgspec import Struct

from bench import frames
from bench.connection import connect_all
from bench.measuring import drain, measure
from bench.roles import ChainedWriter, Load, Reader, Writer
from bench.rows import Row, acks_row
from bench.server import Server
from bench.stage import Stage
from bench.world import Person, World

WRITERS = 100
READERS = 10
WINDOW = 16

MakeWriter = Callable[[Load, str], Writer]


def writing(window: int) -> MakeWriter:
    """Writers with so many messages in flight."""
    return lambda load, chat_id: Writer(load, chat_id, window)


async def window_1(stage: Stage) -> list[Row]:
    return [await play(stage, "hot_chat", "hot chat, window 1", writing(1))]


async def window_16(stage: Stage) -> list[Row]:
    label = f"hot chat, window {WINDOW}"
    return [await play(stage, "hot_chat_16", label, writing(WINDOW))]


async def window_16_in_order(stage: Stage) -> list[Row]:
    label = f"hot chat, window {WINDOW}, each naming its predecessor"
    return [
        await play(stage, "hot_chat_16_ordered", label, lambda load, chat: ChainedWriter(load, chat, WINDOW))
    ]


async def _populate(world: World) -> tuple[list[Person], str]:
    people = await world.people(WRITERS + READERS)
    return people, await world.group(people)


class HotChat(Struct):
    """The server, and everybody connected to it."""

    server: Server
    load: Load
    writers: list[Writer]

    def start(self) -> None:
        self.load.running = True
        for writer in self.writers:
            writer.start()


@asynccontextmanager
async def opened(
    stage: Stage,
    make_writer: MakeWriter,
    environment: Mapping[str, str] | None = None,
    module: str | None = None,
) -> AsyncIterator[HotChat]:
    """A server, its writers and its readers, at rest."""
    load = Load()
    async with stage.serving(_populate, environment, module) as (server, (people, chat_id)):
        readers = [(_hello(person, live=True), Reader(load)) for person in people[WRITERS:]]
        writers = [make_writer(load, chat_id) for _ in range(WRITERS)]
        await connect_all(server.address, [*readers])
        hellos = [_hello(person, live=False) for person in people[:WRITERS]]
        await connect_all(server.address, list(zip(hellos, writers, strict=True)))
        yield HotChat(server, load, writers)
        load.running = False


async def play(stage: Stage, name: str, label: str, make_writer: MakeWriter) -> Row:
    async with opened(stage, make_writer) as chat:
        chat.start()
        stretch = await measure(chat.load, chat.server, stage.seconds, stage.warm_up_seconds)
        stretch.notes += await drain(chat.load, deliveries_per_ack=READERS)
    return acks_row(name, label, stretch)


def _hello(person: Person, live: bool) -> bytes:
    return frames.hello(person.token, person.device_id, live)
