"""The feeds under contract: a world in which chats say something, and workers consume it."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

from parley.bus.events import PERSISTED
from parley.bus.kafka.feed import KafkaFeed
from parley.clock import wall_clock
from parley.model import Persisted
from parley.store.ports import Feed
from parley.telemetry import Metrics
from tests.contracts.acting import add_group, add_person, said
from tests.contracts.buses import Node, fresh_topics, node
from tests.contracts.engines import SqliteEngine, SqliteOpenStore
from tests.fakes import KEYS
from tests.harness.scripted_log import ScriptedLog
from tests.waiting import eventually

CHANCE = random.Random(7).random


class World(Protocol):
    """`feed` is another one after `restart`, which leaves nothing of the old one but its offsets."""

    feed: Feed

    async def chat(self) -> str:
        """A new chat."""
        ...

    async def say(self, chat_id: str, *contents: str) -> None:
        """Messages become durable, one after the other."""
        ...

    async def restart(self) -> None:
        """The process that consumes ends and comes back."""
        ...


class SqliteWorld:
    def __init__(self, store: SqliteOpenStore, owner: str) -> None:
        self._store = store
        self._owner = owner
        self.feed: Feed = store.store.feed

    async def chat(self) -> str:
        return await add_group(self._store, self._owner)

    async def say(self, chat_id: str, *contents: str) -> None:
        await said(self._store, chat_id, self._owner, *contents)

    async def restart(self) -> None:
        await self._store.reopen()
        self.feed = self._store.store.feed


class KafkaWorld:
    def __init__(self, sender: Node, make_feed: Callable[[], Feed], log: ScriptedLog) -> None:
        self._sender = sender
        self._make_feed = make_feed
        self._log = log
        self._chats = 0
        self.feed = make_feed()

    async def chat(self) -> str:
        self._chats += 1
        return f"chat_{self._chats}"

    async def say(self, chat_id: str, *contents: str) -> None:
        for content in contents:
            news = self._log.store(chat_id, self._log.head(chat_id) + 1, content=content)
            self._sender.bus.publish([news])

    async def restart(self) -> None:
        self.feed = self._make_feed()


@asynccontextmanager
async def on_sqlite(folder: Path, sequencing: str) -> AsyncIterator[World]:
    async with SqliteEngine(sequencing, folder).opened(chance=CHANCE) as store:
        yield SqliteWorld(store, await add_person(store, "ann"))


@asynccontextmanager
async def on_kafka() -> AsyncIterator[World]:
    kafka, log = await fresh_topics(), ScriptedLog()
    topic = PERSISTED.name_in(kafka)
    async with node(kafka, "sender", log, hears=False) as sender:
        yield KafkaWorld(sender, lambda: KafkaFeed(kafka, topic, KEYS, Metrics(wall_clock), CHANCE), log)


Open = Callable[[Path], AbstractAsyncContextManager[World]]

FEEDS: dict[str, Open] = {
    "sqlite-atomic": lambda folder: on_sqlite(folder, "atomic"),
    "sqlite-two_phase": lambda folder: on_sqlite(folder, "two_phase"),
    "kafka": lambda _: on_kafka(),
}


class Worker:
    """Handles and remembers. `fail_at`: how often to fail at a position; `hold`: where to wait until `go`."""

    def __init__(self, hold: tuple[str, int] | None = None) -> None:
        self.handled: list[tuple[str, int]] = []
        self.wires: dict[tuple[str, int], bytes | None] = {}
        self.tried: list[tuple[str, int]] = []
        self.fail_at: dict[tuple[str, int], int] = {}
        self.hold = hold
        self.go = asyncio.Event()
        self.busy: set[str] = set()

    async def __call__(self, news: Persisted) -> None:
        assert news.chat_id not in self.busy, "one chat is handled by one call at a time"
        self.busy.add(news.chat_id)
        try:
            await self._handle(news)
        finally:
            self.busy.discard(news.chat_id)

    async def _handle(self, news: Persisted) -> None:
        places = [(news.chat_id, stored.sequence) for stored in news.positions]
        self.tried += places
        if self.hold in places:
            await self.go.wait()
        for place in places:
            if self.fail_at.get(place, 0) > 0:
                self.fail_at[place] -= 1
                raise ValueError("on purpose")
        await asyncio.sleep(0)
        self.handled += places
        self.wires.update({(news.chat_id, stored.sequence): stored.wire for stored in news.positions})

    def of(self, chat_id: str) -> list[int]:
        """The positions of one chat, in the order in which they were handled."""
        return [sequence for chat, sequence in self.handled if chat == chat_id]


@asynccontextmanager
async def working(feed: Feed, worker: Worker, group: str = "workers") -> AsyncIterator[None]:
    """A member of a group, for as long as the block."""
    task = asyncio.create_task(feed.consume(group, worker))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def done(worker: Worker, count: int) -> None:
    """Until so many different positions were handled."""
    await eventually(lambda: len(set(worker.handled)) >= count, 30)


async def rounds_until_all_work(world: World, chats: list[str], *workers: Worker) -> int:
    """Let every chat say something again and again, until each worker has had a share of it; how often."""
    rounds = 0

    async def another_round() -> bool:
        nonlocal rounds
        handled = {place for worker in workers for place in worker.handled}
        if len(handled) < rounds * len(chats):
            return False
        if rounds and all(worker.handled for worker in workers):
            return True
        rounds += 1
        for chat_id in chats:
            await world.say(chat_id, f"{rounds}")
        return False

    await eventually(another_round, 30)
    return rounds
