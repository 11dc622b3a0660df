"""Compares where a batch is written and committed, next to a busy event loop.

`python -m bench.commit_strategies` prints the table of docs/decisions/0002-commit-in-a-thread.md.

Two experiments for each strategy, on one core and on two:

* **chat**: 100 clients with one message in flight each, over socket pairs on the same loop; frames are
  decoded, entries and acks encoded. Messages that arrive during a commit form the next batch.
* **busy loop**: a callback that always has more Python to run, and always a full batch waiting. What is
  left of the callback's rate is the loop's share left.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import socket
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import cast

import msgspec
import uvloop
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from bench import raw_log
from bench.commit_places import PLACES, Place
from bench.processes import cpu_seconds, machine_busy_seconds, wait_until_quiet

RESULTS = Path(__file__).parent / "results"
CLIENTS = 100
CONTENT = "x" * 128
# About a millisecond of Python: a turn of a loop that has many connections to serve.
FILLER_STEPS = 40_000
WARM_UP_SECONDS = 0.3
OTHERS_CORES_MAX = 0.25
QUIET_SECONDS_MAX = 10.0
SWITCH_INTERVAL_DEFAULT_SECONDS = 5e-3
SWITCH_INTERVAL_SHORT_SECONDS = 1e-4


class Strategy(Struct, frozen=True):
    label: str
    place: str
    switch_interval_seconds: float = SWITCH_INTERVAL_DEFAULT_SECONDS


STRATEGIES = [
    Strategy("(a) whole batch in a thread", "thread"),
    Strategy("(a) … and a switch interval of 0.1 ms", "thread", SWITCH_INTERVAL_SHORT_SECONDS),
    Strategy("(b) statements on the loop, COMMIT in a thread", "commit_thread"),
    Strategy("(b) … and a switch interval of 0.1 ms", "commit_thread", SWITCH_INTERVAL_SHORT_SECONDS),
    Strategy("(c) a log process", "process"),
    Strategy("(d) all on the loop", "loop"),
]


class Measured(Struct):
    """Rates per second, and the CPU of all processes in microseconds for each message."""

    messages: float
    cpu_us: float
    batch: float
    fillers: float
    others_cores: float


Experiment = Callable[[Place, int, float], Awaitable[Measured]]


class Row(Struct):
    """The result of one strategy under one setting."""

    strategy: str
    cores: int
    chats: int
    chat_rate: float
    chat_cpu_us: float
    batch: float
    busy_rate: float
    busy_cpu_us: float
    loop_share_left: float


class Frame(Struct):
    chat_id: str
    client_message_id: str
    content: str


class Meter:
    """Counts messages between two moments, and what they cost."""

    def __init__(self) -> None:
        self.messages = 0
        self.batches = 0
        self.fillers = 0
        self.running = True

    async def over(self, seconds: float) -> Measured:
        """What happened in a stretch of time, after a warm-up."""
        await asyncio.sleep(WARM_UP_SECONDS)
        self.messages = self.batches = self.fillers = 0
        cpu, machine, start = cpu_seconds(os.getpid()), machine_busy_seconds(), time.perf_counter()
        await asyncio.sleep(seconds)
        self.running = False
        elapsed = time.perf_counter() - start
        cpu, machine = cpu_seconds(os.getpid()) - cpu, machine_busy_seconds() - machine
        return Measured(
            messages=self.messages / elapsed,
            cpu_us=1e6 * cpu / max(self.messages, 1),
            batch=self.messages / max(self.batches, 1),
            fillers=self.fillers / elapsed,
            others_cores=(machine - cpu) / elapsed,
        )


class Client(asyncio.Protocol):
    """Sends its next message when the last one is acknowledged."""

    def __init__(self) -> None:
        self._frame = msgspec.json.encode(Frame(raw_log.chat_id(0), "0" * 36, CONTENT)) + b"\n"
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._frame)

    def data_received(self, data: bytes) -> None:
        self._transport.write(self._frame)


class Waiting:
    """Messages that wait for a commit, with the connections that wait for their acks."""

    def __init__(self) -> None:
        self.wires: list[bytes] = []
        self.senders: list[asyncio.Transport] = []
        self.news = asyncio.Event()


class Served(asyncio.Protocol):
    """The server's end of a connection: decode, encode the entry, wait for the next batch."""

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting
        self._frames = msgspec.json.Decoder(Frame)
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        wire = msgspec.json.encode(self._frames.decode(data))
        self._waiting.wires.append(wire.ljust(raw_log.WIRE_BYTES))
        self._waiting.senders.append(self._transport)
        self._waiting.news.set()


async def commit_what_waits(waiting: Waiting, place: Place, batches: raw_log.Batches, meter: Meter) -> None:
    while meter.running:
        await waiting.news.wait()
        waiting.news.clear()
        wires, senders = waiting.wires, waiting.senders
        waiting.wires, waiting.senders = [], []
        await place.commit(batches.next(wires))
        meter.messages += len(wires)
        meter.batches += 1
        for sender in senders:
            sender.write(msgspec.json.encode(Frame("ack", "0" * 36, "")))


async def commit_always(place: Place, batches: raw_log.Batches, meter: Meter) -> None:
    wires = [b"x" * raw_log.WIRE_BYTES] * raw_log.BATCH_MESSAGES
    while meter.running:
        await place.commit(batches.next(wires))
        meter.messages += len(wires)
        meter.batches += 1
        await asyncio.sleep(0)


def keep_busy(loop: asyncio.AbstractEventLoop, meter: Meter) -> None:
    """A fixed amount of Python that is always due again."""
    for _ in range(FILLER_STEPS):
        pass
    meter.fillers += 1
    if meter.running:
        loop.call_soon(keep_busy, loop, meter)


async def measure_chat(place: Place, chats: int, seconds: float) -> Measured:
    waiting, meter = Waiting(), Meter()
    loop = asyncio.get_running_loop()
    writer = loop.create_task(commit_what_waits(waiting, place, raw_log.Batches(chats), meter))
    for _ in range(CLIENTS):
        near, far = socket.socketpair()
        await loop.create_unix_connection(lambda: Served(waiting), sock=far)
        await loop.create_unix_connection(Client, sock=near)
    measured = await meter.over(seconds)
    await writer
    return measured


async def measure_busy(place: Place, chats: int, seconds: float) -> Measured:
    meter = Meter()
    loop = asyncio.get_running_loop()
    writer = loop.create_task(commit_always(place, raw_log.Batches(chats), meter))
    keep_busy(loop, meter)
    measured = await meter.over(seconds)
    await writer
    return measured


async def measure_alone(seconds: float) -> Measured:
    """How often the filler runs alone: the whole capacity of the loop."""
    meter = Meter()
    keep_busy(asyncio.get_running_loop(), meter)
    return await meter.over(seconds)


def undisturbed(measure_once: Callable[[], Measured], tries_max: int) -> Measured:
    """Measured again while other programs disturb it; the calmest try counts."""
    tries: list[Measured] = []
    while not tries or (tries[-1].others_cores > OTHERS_CORES_MAX and len(tries) < tries_max):
        wait_until_quiet(QUIET_SECONDS_MAX if tries_max > 1 else 0)
        tries.append(measure_once())
    return min(tries, key=lambda one: one.others_cores)


def measure(strategy: Strategy, experiment: Experiment, chats: int, seconds: float) -> Measured:
    """One experiment on a new log. Restores the interpreter's settings afterwards."""
    RESULTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="commit-", dir=RESULTS) as folder:
        path = Path(folder) / "log.sqlite3"
        raw_log.create_log(path, chats)
        sys.setswitchinterval(strategy.switch_interval_seconds)
        try:
            return uvloop.run(_in_place(PLACES[strategy.place], path, experiment, chats, seconds))
        finally:
            sys.setswitchinterval(SWITCH_INTERVAL_DEFAULT_SECONDS)


async def _in_place(
    make: Callable[[Path], Place], path: Path, experiment: Experiment, chats: int, seconds: float
) -> Measured:
    place = make(path)
    try:
        return await experiment(place, chats, seconds)
    finally:
        place.close()


def measure_rows(cores: set[int], chats: int, seconds: float, rounds: int, tries: int) -> list[Row]:
    """Every strategy in turn, several times: other programs can only slow a round down."""
    os.sched_setaffinity(0, cores)
    alone: list[Measured] = []
    chat: dict[Strategy, list[Measured]] = defaultdict(list)
    busy: dict[Strategy, list[Measured]] = defaultdict(list)
    for _ in range(rounds):
        alone.append(undisturbed(lambda: uvloop.run(measure_alone(seconds)), tries))
        for strategy in STRATEGIES:
            chat[strategy].append(
                undisturbed(partial(measure, strategy, measure_chat, chats, seconds), tries)
            )
            busy[strategy].append(
                undisturbed(partial(measure, strategy, measure_busy, chats, seconds), tries)
            )
    return [
        _row(strategy, len(cores), chats, chat[strategy], busy[strategy], alone) for strategy in STRATEGIES
    ]


def _row(
    strategy: Strategy,
    cores: int,
    chats: int,
    chat: list[Measured],
    busy: list[Measured],
    alone: list[Measured],
) -> Row:
    """The best of the rounds: the least disturbed one."""
    return Row(
        strategy=strategy.label,
        cores=cores,
        chats=chats,
        chat_rate=max(sample.messages for sample in chat),
        chat_cpu_us=min(sample.cpu_us for sample in chat),
        batch=median(sample.batch for sample in chat),
        busy_rate=max(sample.messages for sample in busy),
        busy_cpu_us=min(sample.cpu_us for sample in busy),
        loop_share_left=max(sample.fillers for sample in busy) / max(sample.fillers for sample in alone),
    )


def print_rows(rows: list[Row]) -> None:
    table = Table(title="messages/s · CPU µs per message · the loop's share left")
    for heading in ("strategy", "cores", "chats", "chat/s", "CPU µs", "batch", "busy loop/s", "share left"):
        table.add_column(heading, justify="left" if heading == "strategy" else "right")
    for row in rows:
        table.add_row(
            row.strategy,
            str(row.cores),
            str(row.chats),
            f"{row.chat_rate:,.0f}",
            f"{row.chat_cpu_us:.0f}",
            f"{row.batch:.0f}",
            f"{row.busy_rate:,.0f}",
            f"{row.loop_share_left:.0%}",
        )
    Console(width=120).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tries", type=int, default=5, help="how often a disturbed measurement is repeated")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    gc.disable()
    both = os.sched_getaffinity(0)
    rows = [
        row
        for chats in (1, CLIENTS)
        for cores in ({min(both)}, both)
        for row in measure_rows(cores, chats, options.seconds, options.rounds, options.tries)
    ]
    print_rows(rows)
    if options.json:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(rows)))


if __name__ == "__main__":
    main()
