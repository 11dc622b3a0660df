"""Receipts in a hot chat: they must cost neither latency of sends nor bytes per message."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, nullcontext
from itertools import cycle
from pathlib import Path

from msgspec import Struct

from bench import frames
from bench.connection import connect, connect_all
from bench.measuring import (
    OTHERS_CORES_MAX,
    Stretch,
    drain,
    measure,
    median_ratio,
    percentiles_ms,
    until,
)
from bench.roles import Load, Reader, Writer
from bench.rows import Row, ratio_row
from bench.scenarios.idle import FILES_BESIDE_CONNECTIONS, allow_files
from bench.server import Server
from bench.stage import Stage
from bench.world import Person, World

MEMBERS = 10_000
ONLINE = 1_000
WRITERS = 4
PAUSE_SECONDS = 0.1
"""Some forty messages a second, each to a thousand readers: about half of what the server can do."""
RECEIPT_EVERY_SECONDS = 10.0
PUMP_SECONDS = 0.005
PAIRS = 30
STRETCH_SECONDS = 1.0
"""Short, so that other programs disturb both equally."""
SETTLE_SECONDS = 0.2

STORED_MESSAGES = 1_000
SETTLING_MESSAGES = 100
WINDOW = 16
STORED_SECONDS_MAX = 180.0

SEQUENCE = re.compile(rb'"sequence":(\d+)[,}]')
HAVE_READ = "SELECT count(*) FROM delivery_state WHERE chat_id = ? AND read_up_to >= ?"


class Chat:
    """The hot chat: its last acknowledged position, and whether readers send receipts."""

    def __init__(self, chat_id: str) -> None:
        self.chat_id = chat_id
        self.head = 0
        self.is_followed = False

    def note(self, data: bytes) -> None:
        """Acks are short; it ignores one that is split, because others follow."""
        found = SEQUENCE.findall(data)
        if found:
            self.head = max(self.head, int(found[-1]))


class Sender(Writer):
    """A sender whose acks are measured."""

    def __init__(self, load: Load, chat: Chat, window: int = 1) -> None:
        super().__init__(load, chat.chat_id, window)
        self._chat = chat

    def data_received(self, data: bytes) -> None:
        self._chat.note(data)
        super().data_received(data)


class PacedSender(Sender):
    """Waits after each ack before it sends the next message."""

    def _go_on(self, count: int, now_ns: int) -> None:
        asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._send_one)

    def _send_one(self) -> None:
        if self.load.running:
            self.start()


class Follower(Reader):
    """A member who is online, and sends receipts: on call, or for every entry."""

    def __init__(self, load: Load, chat: Chat) -> None:
        super().__init__(load)
        self._chat = chat

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        found = SEQUENCE.findall(data) if self._chat.is_followed else []
        if found:
            self.have(int(found[-1]))

    def have(self, sequence: int) -> None:
        """Acknowledge and read."""
        self.transport.write(frames.ack_position(self._chat.chat_id, sequence))
        self.read(sequence)

    def read(self, sequence: int) -> None:
        self.transport.write(frames.read_receipt(self._chat.chat_id, sequence))


class Receipts:
    """Each of the followers sends a read receipt every ten seconds, spread evenly over them."""

    def __init__(self, followers: list[Follower], chat: Chat) -> None:
        self._followers = cycle(followers)
        self._per_second = len(followers) / RECEIPT_EVERY_SECONDS
        self._chat = chat
        self.sent = 0

    @asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._flow())
        try:
            yield
        finally:
            task.cancel()

    async def _flow(self) -> None:
        start, sent = time.perf_counter(), 0
        while True:
            while sent < (time.perf_counter() - start) * self._per_second:
                next(self._followers).read(self._chat.head)
                sent += 1
                self.sent += 1
            await asyncio.sleep(PUMP_SECONDS)


class Scene(Struct):
    """What both measurements share."""

    stage: Stage
    server: Server
    load: Load
    chat: Chat
    followers: list[Follower]
    told: str


async def receipts(stage: Stage) -> list[Row]:
    members, online = stage.pick(MEMBERS, MEMBERS // 5), stage.pick(ONLINE, ONLINE // 5)
    allow_files(online + FILES_BESIDE_CONNECTIONS)

    async def populate(world: World) -> tuple[list[Person], str]:
        people = await world.people(members)
        return people, await world.group(people)

    load = Load()
    async with stage.serving(populate) as (server, (people, chat_id)):
        chat = Chat(chat_id)
        followers = [Follower(load, chat) for _ in range(online)]
        hellos = [_hello(person, live=True) for person in people[WRITERS : WRITERS + online]]
        await connect_all(server.address, list(zip(hellos, followers, strict=True)))
        scene = Scene(stage, server, load, chat, followers, f"{online:,} of {members:,} members online")
        return [await _latency(scene, people[:WRITERS]), await _bytes(scene, people[0])]


def _hello(person: Person, live: bool) -> bytes:
    return frames.hello(person.token, person.device_id, live)


# Time


async def _latency(scene: Scene, people: list[Person]) -> Row:
    """The ack's median with receipts against without, in stretches that take turns."""
    stage, load = scene.stage, scene.load
    senders = [PacedSender(load, scene.chat) for _ in people]
    hellos = [_hello(person, live=False) for person in people]
    await connect_all(scene.server.address, list(zip(hellos, senders, strict=True)))
    for sender in senders:
        sender.start()
        await asyncio.sleep(PAUSE_SECONDS / len(senders))
    flow, pairs = Receipts(scene.followers, scene.chat), list[tuple[Stretch, Stretch]]()
    all_ns: dict[bool, list[int]] = {True: [], False: []}
    await asyncio.sleep(stage.warm_up_seconds)
    for turn in range(stage.pick(PAIRS, PAIRS // 5)):
        measured: dict[bool, Stretch] = {}
        for has_receipts in (True, False) if turn % 2 else (False, True):
            async with flow.flowing() if has_receipts else nullcontext():
                measured[has_receipts] = await measure(load, scene.server, STRETCH_SECONDS, SETTLE_SECONDS)
            all_ns[has_receipts] += load.ack_ns
        pairs.append((measured[True], measured[False]))
    notes = [f"{flow.sent:,} receipts", *await drain(load, deliveries_per_ack=len(scene.followers))]
    return latency_row(scene.told, pairs, percentiles_ms(all_ns[True]), percentiles_ms(all_ns[False]), notes)


def latency_row(
    told: str,
    pairs: list[tuple[Stretch, Stretch]],
    ms_with: tuple[float, float],
    ms_without: tuple[float, float],
    notes: list[str],
) -> Row:
    """The median over all pairs; in the notes, the latencies of all acks with receipts and without."""
    stretches = [stretch for pair in pairs for stretch in pair]
    others = statistics.median(stretch.others_cores for stretch in stretches)
    busy = [
        statistics.mean(pair[index].cpu_seconds / pair[index].seconds for pair in pairs) for index in (0, 1)
    ]
    said = [
        f"all acks: p50 {ms_with[0]:.2f} ms with and {ms_without[0]:.2f} ms without",
        f"all acks: p99 {ms_with[1]:.1f} ms with and {ms_without[1]:.1f} ms without",
        f"the server was busy for {busy[0]:.1%} with receipts and {busy[1]:.1%} without",
        f"other programs kept {others:.1f} cores busy" if others > OTHERS_CORES_MAX else "",
    ]
    return Row(
        name="receipts_ack",
        label=f"ack, {told}, with read receipts against without",
        unit="× as long",
        value=median_ratio([(one.ack_ms[0], other.ack_ms[0]) for one, other in pairs]),
        p50_ms=ms_with[0],
        p99_ms=ms_with[1],
        generator_share=statistics.mean(stretch.generator_share for stretch in stretches),
        others_cores=others,
        notes=[*filter(None, said), *notes],
    )


# Bytes


async def _bytes(scene: Scene, sender: Person) -> Row:
    """How much the file grows per message, if every online member acknowledges and reads it, or none does."""
    # The first receipts create a row for each reader: measure after that.
    await _stored_bytes(scene, sender, SETTLING_MESSAGES, is_followed=True)
    alone = await _stored_bytes(scene, sender, STORED_MESSAGES, is_followed=False)
    followed = await _stored_bytes(scene, sender, STORED_MESSAGES, is_followed=True)
    return ratio_row(
        "receipts_bytes",
        f"bytes for a message, {scene.told}, all read it against nobody",
        followed / alone,
        [f"{followed:.0f} and {alone:.0f} bytes, indexes included", *scene.load.problems],
    )


async def _stored_bytes(scene: Scene, person: Person, messages: int, is_followed: bool) -> float:
    """How much the file grows per message, once all receipts are stored."""
    load, chat, database = scene.load, scene.chat, scene.stage.database
    chat.is_followed = is_followed
    before, delivered_before = used_bytes(database), load.delivered
    burst = Load()
    sender = Sender(burst, chat, WINDOW)
    transport = await connect(scene.server.address, _hello(person, live=False), sender)
    sender.start()
    await until(lambda: burst.acks >= messages, STORED_SECONDS_MAX)
    load.problems += await drain(burst)
    transport.abort()
    delivered = delivered_before + burst.acks * len(scene.followers)
    if not await until(lambda: load.delivered >= delivered, STORED_SECONDS_MAX):
        load.note_problem(f"{delivered - load.delivered} deliveries too few")
    if is_followed:
        for follower in scene.followers:
            follower.have(chat.head)
        if not await until(lambda: have_read(database, chat) >= len(scene.followers), STORED_SECONDS_MAX):
            load.note_problem("not everybody's receipts were stored")
    return (used_bytes(database) - before) / burst.acks


def used_bytes(database: Path) -> int:
    """The size of a database without its free pages."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:

        def pragma(name: str) -> int:
            return int(connection.execute(f"PRAGMA {name}").fetchone()[0])

        return (pragma("page_count") - pragma("freelist_count")) * pragma("page_size")


def have_read(database: Path, chat: Chat) -> int:
    """How many members have read everything."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return int(connection.execute(HAVE_READ, (chat.chat_id, chat.head)).fetchone()[0])
