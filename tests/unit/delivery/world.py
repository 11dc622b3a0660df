"""People who talk, a fake recipient, and a worker that can be killed and started again, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from parley.clock import MS_PER_HOUR
from parley.core.deliveries import DeadLetter, Selection
from parley.core.retry import DeliveryFailure, Fault, RetryPolicy
from parley.delivery.attempts import LogSource
from parley.delivery.events import EventSource
from parley.delivery.ports import Delivery, DeliveryKind, DeliveryTopics
from parley.delivery.recipients import FailingRecipients
from parley.delivery.replays import Replays
from parley.delivery.upkeep import DeadLetterUpkeep
from parley.delivery.worker import DeliveryWorker
from parley.ids import Ids
from parley.model import Persisted, StoredEntry
from parley.records.kinds import Kinds
from parley.store.ports import Handle
from parley.telemetry import Metrics
from parley.wire.frames import Entry
from tests.contracts.acting import add_group, add_person, message
from tests.harness.clock import VirtualClock, run_virtual
from tests.memory.engine import MemoryStore
from tests.memory.tables import Tables

ALL = Selection()
HOOK = "wh_1"
FOR_HOURS = RetryPolicy(give_up_ms=24 * MS_PER_HOUR)
"""As webhooks are retried."""
KIND = DeliveryKind(group="delivery", prefix="wh_", topic="messages.outbound")


class FakeChannel:
    """A recipient that notes what it gets. `answer` decides about each attempt, and may raise or wait."""

    def __init__(self, *names: str) -> None:
        self.names = list(names or (HOOK,))
        self.got: list[Delivery] = []
        self.tried: list[str] = []
        self.asked = 0
        """How often the worker asked for a recipient."""
        self.answer: Callable[[Delivery], Awaitable[DeliveryFailure | None]] = self.take

    async def take(self, delivery: Delivery) -> DeliveryFailure | None:
        self.got.append(delivery)
        return None

    async def owed(self, news: Persisted) -> list[str]:
        return self.names

    async def recipient(self, recipient_id: str, stream_id: str) -> FakeChannel | None:
        self.asked += 1
        return self if recipient_id in self.names else None

    async def wants(self, entry: Entry) -> bool:
        return entry.kind == "message"

    async def attempt(self, delivery: Delivery) -> DeliveryFailure | None:
        self.tried.append(delivery.entry.content)
        return await self.answer(delivery)

    def contents(self, recipient: str = HOOK) -> list[str]:
        return [delivery.entry.content for delivery in self.got if delivery.recipient == recipient]


def away(channel: FakeChannel, when: Callable[[Delivery], bool] = lambda _: True) -> None:
    """The recipient cannot be reached, for deliveries of which this holds."""

    async def answer(delivery: Delivery) -> DeliveryFailure | None:
        if when(delivery):
            return DeliveryFailure(Fault.UNREACHABLE, "connection refused")
        return await channel.take(delivery)

    channel.answer = answer


class NoFeed:
    """A feed that never has news: the tests call `handle` themselves."""

    async def consume(self, group: str, handle: Handle) -> None:
        await asyncio.Event().wait()

    async def lags(self) -> dict[str, int]:
        return {}


class DeliveryWorld:
    def __init__(self, clock: VirtualClock, policy: RetryPolicy, chance: float) -> None:
        self.clock = clock
        self.channel = FakeChannel()
        self.topics: DeliveryTopics | None = None
        self._policy = policy
        self._chance = chance
        self.ids = Ids(random.Random(7).getrandbits)
        self.metrics = Metrics(clock)
        self.store = MemoryStore(Tables(), clock=clock, ids=self.ids, metrics=self.metrics)
        self.kinds = Kinds(self.store, self.clock)
        self.acting: Any = SimpleNamespace(
            clock=clock,
            ids=self.ids,
            accounts=self.kinds.accounts,
            directory=self.store.directory,
            log=self.store.log,
        )
        self.ann = ""
        self.restarts = 0
        self.restart()

    def restart(self) -> None:
        """A new process: nothing of the old one is left but the store."""
        self.restarts += 1
        parts: Any = {
            "kind": KIND,
            "source": EventSource(LogSource(self.store.log), self.kinds.accounts, self.clock),
            "store": self.kinds.deliveries,
            "channel": self.channel,
            "policy": self._policy,
            "clock": self.clock,
            "metrics": self.metrics,
            "holder": f"process_{self.restarts}",
            "chance": lambda: self._chance,
        }
        self.store.queues.free()
        recipients = FailingRecipients(
            self.kinds.failing_recipients if self._policy.give_up_ms is not None else None,
            self._policy,
            self.clock,
            self.metrics,
            refresh_seconds=10.0,
            chance=lambda: self._chance,
        )
        self.worker = DeliveryWorker(**parts, topics=self.topics, recipients=recipients)
        self.replays = Replays(**parts)
        self.upkeep = DeadLetterUpkeep(
            self.kinds.deliveries.dead_letters, self.kinds.audit, self.clock, self.ids, self.metrics
        )

    async def chat(self) -> str:
        if not self.ann:
            self.ann = await add_person(self.acting, "ann")
        return await add_group(self.acting, self.ann)

    async def say(self, chat_id: str, *contents: str) -> Persisted:
        """Messages become durable, and the worker hears of it."""
        news = await self.write(chat_id, *contents)
        await self.worker.handle(news)
        return news

    async def write(self, chat_id: str, *contents: str) -> Persisted:
        positions: list[StoredEntry] = []
        for content in contents:
            draft = message(chat_id, self.ann, content)
            (added,) = (await self.store.log.append([draft])).persisted
            positions += added.positions
        return Persisted(chat_id, 1, positions)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """The worker and the replays run for as long as the block; then they are killed."""
        tasks = [
            asyncio.create_task(self.worker.run(NoFeed())),
            asyncio.create_task(self.replays.run()),
            asyncio.create_task(self.upkeep.run()),
        ]
        await asyncio.sleep(0)
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def dead_letters(self, selection: Selection = ALL) -> list[DeadLetter]:
        found = await self.kinds.deliveries.dead_letters.find(selection, "", 10_000)
        return sorted(found, key=lambda dead_letter: (dead_letter.chat_id, dead_letter.sequence))


def play(
    scenario: Callable[[DeliveryWorld], Awaitable[None]],
    policy: RetryPolicy = RetryPolicy(),  # noqa: B008 - it is frozen
    chance: float = 0.0,
) -> None:
    """Run a scenario in virtual time."""

    async def in_world(clock: VirtualClock) -> None:
        await scenario(DeliveryWorld(clock, policy, chance))

    run_virtual(in_world)
