"""How far a reader has to walk: what one warm message, receipt or sync crosses in `src/parley`.

    .venv/bin/python -m bench.walks                   every walk, as a table
    .venv/bin/python -m bench.walks --only embedded   those of one place: embedded, sdk or dynamodb
    .venv/bin/python -m bench.walks --list            also every function, in the order of its first call

The server runs in this process, on asyncio's own loop, under `sys.setprofile`; in the walk of the SDK it is
the SDK that runs here. Each walk is done several times. A function counts if nearly all rounds run it; calls
and turns are medians: so what runs by the clock (leases, sealing, deadlines) falls out.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import os
import random
import secrets
import selectors
import statistics
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from time import perf_counter_ns
from types import CodeType, FrameType

from msgspec import Struct, field
from rich.console import Console
from rich.table import Table

import parley
from bench import frames
from bench.connection import Address, connect
from bench.dynamodb.services import PREFIX, Services
from bench.dynamodb.stage import open_services
from bench.measuring import until
from bench.roles import ACK, ENTRY, Load, Quiet
from bench.server import HOST, Server, parley_beside_python, serve_command
from bench.world import Person, World, open_world
from parley import ids
from parley.app.node import App
from parley.client import connect as connect_sdk
from parley.clock import wall_clock
from parley.config import load
from parley.core import rendezvous
from parley.store.dynamodb.driver import Dynamo
from parley.store.dynamodb.store import DynamoStore
from parley.telemetry import Metrics, configure_logs

SOURCE = Path(parley.__file__).parent
RESUMABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
WARM_UP_ROUNDS = 5
ROUNDS = 15
SHARE_OF_ROUNDS_MIN = 0.8
PAUSE_SECONDS = (0.3, 0.7)
"""Longer than any timer that a send starts, so that every round begins at rest. Drawn anew for each round, so
that no job that runs by the clock meets most of them."""
SETTLE_SECONDS = 0.1
"""For what follows an answer and is waited for by no client, such as the mark of the bus."""
ANSWER_SECONDS_MAX = 20
SYNCED_ENTRIES = 30
NODES = ("walk-a", "walk-b")
RECEIPT = b'"type":"receipt"'

Function = CodeType
Step = Callable[[], Awaitable[None]]
"""What a round does. It returns when every client has what it waits for."""


class TurnCounter(selectors.DefaultSelector):
    """The loop's selector: the loop asks it once in each turn."""

    turn = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.turn += 1
        return super().select(timeout)


class Round(Struct):
    """What ran in one round."""

    calls: Counter[Function] = field(default_factory=Counter)
    """How often each function was called, in the order of the first calls."""
    turns: dict[int, set[Function]] = field(default_factory=dict)
    """The functions that ran in each turn of the loop."""


class Tracer:
    """Notes every function of `src/parley` that runs while a round is open, on any thread."""

    def __init__(self, selector: TurnCounter) -> None:
        self._selector = selector
        self._round: Round | None = None
        self._outer: set[FrameType] = set()
        self._resumable: set[FrameType] = set()
        """Kept until the round ends: to be resumed is not to be called again."""

    def install(self) -> None:
        """To be called before any thread is started."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    @contextmanager
    def round(self) -> Iterator[Round]:
        self._outer = _outer_frames()
        self._round = opened = Round()
        try:
            yield opened
        finally:
            self._round = None
            self._outer.clear()
            self._resumable.clear()

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        opened, code = self._round, frame.f_code
        if event != "call" or opened is None or not code.co_filename.startswith(f"{SOURCE}{os.sep}"):
            return
        if code.co_name.startswith("<") or frame in self._outer:
            return  # lambdas and comprehensions are read where they stand
        if frame not in self._resumable:
            opened.calls[code] += 1
            if code.co_flags & RESUMABLE:
                self._resumable.add(frame)
        if threading.current_thread() is threading.main_thread():
            opened.turns.setdefault(self._selector.turn, set()).add(code)


def _outer_frames() -> set[FrameType]:
    """Coroutines that wait for another one of `src/parley`: they are resumed with it and do nothing."""
    outer: set[FrameType] = set()
    for task in asyncio.all_tasks():
        chain: list[FrameType] = []
        coroutine: object = task.get_coro()
        while inspect.iscoroutine(coroutine):
            frame = coroutine.cr_frame
            if frame is not None and frame.f_code.co_filename.startswith(f"{SOURCE}{os.sep}"):
                chain.append(frame)
            coroutine = coroutine.cr_await
        outer.update(chain[:-1])
    return outer


class Walk(Struct):
    """What one walk crosses: see `walk_of`."""

    name: str
    functions: list[Function]
    calls: int
    turns: int

    @property
    def files(self) -> list[str]:
        return sorted({_place(function) for function in self.functions})


def walk_of(name: str, rounds: list[Round]) -> Walk:
    """The functions of nearly all rounds, and the median of their calls and turns."""
    seen = Counter(function for one in rounds for function in one.calls)
    functions = [function for function, count in seen.items() if count >= SHARE_OF_ROUNDS_MIN * len(rounds)]
    kept = set(functions)
    calls = [sum(one.calls[function] for function in functions) for one in rounds]
    turns = [sum(1 for ran in one.turns.values() if ran & kept) for one in rounds]
    return Walk(name, functions, round(statistics.median(calls)), round(statistics.median(turns)))


async def walked(name: str, tracer: Tracer, step: Step, prepare: Step | None = None) -> Walk:
    """Do a step again and again, each time from rest. `prepare` is done before each and not counted."""
    rounds = []
    for number in range(WARM_UP_ROUNDS + ROUNDS):
        if prepare is not None:
            await prepare()
        await asyncio.sleep(random.uniform(*PAUSE_SECONDS))
        with tracer.round() as opened:
            await step()
            await asyncio.sleep(SETTLE_SECONDS)
        if number >= WARM_UP_ROUNDS:
            rounds.append(opened)
    return walk_of(name, rounds)


# Clients


class Listener(Quiet):
    """A client that waits for what it is sent, by a marker."""

    def __init__(self) -> None:
        super().__init__(Load())
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data

    async def heard(self, *markers: bytes) -> None:
        """Until each of these has come; then all that came is forgotten."""
        await until(lambda: all(marker in self._received for marker in markers), ANSWER_SECONDS_MAX)
        missing = [marker for marker in markers if marker not in self._received]
        if missing:
            raise TimeoutError(f"nothing with {missing} came, but {self._received[:300]!r}")
        self._received = b""


async def arrive(port: int, person: Person) -> Listener:
    listener = Listener()
    await connect(Address(HOST, port), frames.hello(person.token, person.device_id, live=True), listener)
    return listener


# Walks


async def embedded(tracer: Tracer) -> list[Walk]:
    """One server on SQLite; a writer and a reader in a direct chat."""
    with tempfile.TemporaryDirectory() as folder:
        async with open_world(Path(folder)) as world:
            people = await world.people(2)
            chat_id = await world.direct(*people)
        async with node(Path(folder), {}) as port:
            writer, reader = [await arrive(port, person) for person in people]
            sends = frames.SendFrames(chat_id)
            stored = 0

            async def send() -> None:
                nonlocal stored
                stored += 1
                writer.transport.write(sends.next(perf_counter_ns()))
                await asyncio.gather(writer.heard(ACK, ENTRY), reader.heard(ENTRY))

            async def read() -> None:
                reader.transport.write(frames.read_receipt(chat_id, stored))
                await writer.heard(RECEIPT)

            return [
                await walked("send, embedded", tracer, send),
                await walked("read receipt, embedded", tracer, read, prepare=send),
            ]


async def forwarded(tracer: Tracer, services: Services, folder: Path) -> list[Walk]:
    """Two nodes on DynamoDB, Kafka and Redis. The writer is on one, the reader on the chat's owner."""
    os.environ.update(services.environment)  # the credentials are looked for nowhere else
    dynamo = Dynamo(services.endpoint, services.region, prefix=PREFIX)
    make_ids = ids.Ids(secrets.randbits)
    store = DynamoStore(dynamo, clock=wall_clock, ids=make_ids, metrics=Metrics(wall_clock))
    await store.open()
    world = World(store, make_ids)
    people = await world.people(2)
    chat_id = await world.direct(*people)
    while rendezvous.owner(chat_id, NODES) != NODES[1]:
        people = await world.people(2)
        chat_id = await world.direct(*people)
    await store.close()
    async with (
        node(folder, services.environment, NODES[0]) as near,
        node(folder, services.environment, NODES[1]) as owner,
    ):
        writer, reader = await arrive(near, people[0]), await arrive(owner, people[1])
        sends = frames.SendFrames(chat_id)

        async def send() -> None:
            writer.transport.write(sends.next(perf_counter_ns()))
            await asyncio.gather(writer.heard(ACK, ENTRY), reader.heard(ENTRY))

        return [await walked("send, DynamoDB, forwarded", tracer, send)]


async def sdk(tracer: Tracer) -> list[Walk]:
    """The SDK connects with an empty memory, reads a chat to its end and acknowledges it."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        async with open_world(data) as world:
            people = await world.people(2)
            chat_id = await world.direct(*people)
            await world.fill(chat_id, people[0], SYNCED_ENTRIES)
        server = Server(serve_command(parley_beside_python(), data), data / "log", os.sched_getaffinity(0))
        server.launch()
        try:
            await server.ready()
            url, person = f"http://{HOST}:{server.address.port}", people[1]

            async def sync() -> None:
                async with connect_sdk(url, person.token, device_id=person.device_id) as client:
                    async for entry in client.chat(chat_id):
                        if entry.sequence == SYNCED_ENTRIES:
                            break

            return [await walked(f"SDK sync of {SYNCED_ENTRIES} entries", tracer, sync)]
        finally:
            server.kill()


@asynccontextmanager
async def node(folder: Path, environment: Mapping[str, str], name: str = "") -> AsyncIterator[int]:
    """A node in this process, and the port that it serves clients on."""
    own = {"PARLEY_SERVER_DATA": str(folder / name), "PARLEY_SERVER_PORT": "0", "PARLEY_CLUSTER_NODE": name}
    (folder / name).mkdir(exist_ok=True)
    config, _ = load(None, {**environment, **own})
    app = App(config, environment={**os.environ, **environment})
    port = await app.start()
    try:
        yield port
    finally:
        await app.stop()


# The table


def print_walks(walks: list[Walk], listed: bool) -> None:
    table = Table(title="one warm walk through src/parley", title_justify="left")
    for heading in ("walk", "functions", "files", "calls", "turns"):
        table.add_column(heading, justify="left" if heading == "walk" else "right")
    for walk in walks:
        figures = (len(walk.functions), len(walk.files), walk.calls, walk.turns)
        table.add_row(walk.name, *map(str, figures))
    Console().print(table)
    if listed:
        for walk in walks:
            print(f"\n{walk.name}")
            for function in walk.functions:
                print(f"  {_place(function)}:{function.co_firstlineno} {function.co_qualname}")


def _place(function: Function) -> str:
    return str(Path(function.co_filename).relative_to(SOURCE))


WALKS: dict[str, Callable[[Tracer], Coroutine[None, None, list[Walk]]]] = {"embedded": embedded, "sdk": sdk}


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.walks", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=[*WALKS, "dynamodb"], help="the walks of one place")
    parser.add_argument("--list", action="store_true", help="also every function of each walk")
    options = parser.parse_args()
    configure_logs("warning")
    selector = TurnCounter()
    tracer = Tracer(selector)
    tracer.install()
    walks: list[Walk] = []
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        for name, walk in WALKS.items():
            if options.only in (None, name):
                walks += runner.run(walk(tracer))
        if options.only in (None, "dynamodb"):
            with open_services(parley_beside_python(), print) as (services, folder):
                walks += runner.run(forwarded(tracer, services, folder))
    print_walks(walks, options.list)


if __name__ == "__main__":
    main()
