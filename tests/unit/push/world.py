"""Ann writes, Ben is away: a channel with a fake provider, a worker that can be killed, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from parley.clock import MS_PER_DAY
from parley.core.fanout import FanoutSizes
from parley.core.push_devices import Provider, PushDevice
from parley.core.retry import RetryPolicy
from parley.delivery.attempts import LogSource
from parley.delivery.ports import PUSH_DELIVERIES
from parley.delivery.worker import DeliveryWorker
from parley.ephemeral.local import LocalRegistry
from parley.ids import Ids
from parley.model import Persisted, Session
from parley.push.channel import PushChannel
from parley.push.ports import Notification, PushAnswer, taken
from parley.records.kinds import Kinds
from parley.telemetry import Metrics
from tests.contracts.acting import add_group, add_person, message
from tests.harness.clock import VirtualClock, run_virtual
from tests.memory.engine import MemoryStore
from tests.memory.tables import Tables
from tests.unit.delivery.world import NoFeed

PHONE = "phone"


class FakeProvider:
    """Notes what it gets. `answer` decides about each ring, and may raise or wait."""

    def __init__(self) -> None:
        self.got: list[Notification] = []
        self.answer: Callable[[Notification], Awaitable[PushAnswer]] = self.take

    async def take(self, notification: Notification) -> PushAnswer:
        return taken("200")

    async def send(self, device: PushDevice, notification: Notification) -> PushAnswer:
        self.got.append(notification)
        return await self.answer(notification)

    async def close(self) -> None:
        """It holds nothing."""

    @property
    def contents(self) -> list[str | None]:
        return [notification.content for notification in self.got]


class PushWorld:
    def __init__(self, clock: VirtualClock, sizes: FanoutSizes) -> None:
        self.clock = clock
        self.ids = Ids(random.Random(7).getrandbits)
        self.metrics = Metrics(clock)
        self.store = MemoryStore(Tables(), clock=clock, ids=self.ids, metrics=self.metrics)
        self.kinds = Kinds(self.store, clock)
        self.acting: Any = SimpleNamespace(
            clock=clock,
            ids=self.ids,
            accounts=self.kinds.accounts,
            directory=self.store.directory,
            log=self.store.log,
        )
        self.registry = LocalRegistry(clock)
        self.provider = FakeProvider()
        self._sizes = sizes
        self._restarts = 0
        self.ann = self.ben = self.chat = ""
        self.restart()

    def restart(self) -> None:
        """A new process: nothing of the old one is left but the store."""
        self._restarts += 1
        policy = RetryPolicy()
        self.store.queues.free()
        self.channel = PushChannel(
            store=self.store,
            kinds=self.kinds,
            registry=self.registry,
            providers={Provider.FCM: self.provider},
            sizes=self._sizes,
            too_old_seconds=policy.too_old_seconds,
            clock=self.clock,
            metrics=self.metrics,
        )
        self.worker = DeliveryWorker(
            kind=PUSH_DELIVERIES,
            source=LogSource(self.store.log),
            store=self.kinds.deliveries,
            channel=self.channel,
            policy=policy,
            clock=self.clock,
            metrics=self.metrics,
            holder=f"process_{self._restarts}",
            chance=lambda: 0.0,
        )

    async def begin(self) -> None:
        self.ann = await self.person("ann")
        self.ben = await self.person("ben")
        self.chat = await add_group(self.acting, self.ann, self.ben)

    async def person(self, name: str) -> str:
        """With a phone that is logged in and registered."""
        user_id = await add_person(self.acting, name)
        now_ms = self.clock()
        session = Session(f"ses_{name}", user_id, PHONE, PHONE, now_ms, now_ms, now_ms + 30 * MS_PER_DAY)
        await self.kinds.sessions.add(session, name.encode())
        await self.kinds.push.devices.put(
            PushDevice(
                user_id=user_id, device_id=PHONE, provider=Provider.FCM, address=name, created_ms=now_ms
            )
        )
        return user_id

    async def write(self, *contents: str, mentions: tuple[str, ...] = (), chat: str = "") -> Persisted:
        positions = []
        for content in contents:
            draft = message(chat or self.chat, self.ann, content)
            draft.mentions = mentions
            (added,) = (await self.store.log.append([draft])).persisted
            positions += added.positions
        return Persisted(chat or self.chat, 1, positions)

    async def say(self, *contents: str, mentions: tuple[str, ...] = (), chat: str = "") -> Persisted:
        """Messages become durable, and the worker hears of them."""
        news = await self.write(*contents, mentions=mentions, chat=chat)
        await self.worker.handle(news)
        return news

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """The worker runs for as long as the block; then it is killed."""
        tasks = [
            asyncio.create_task(self.worker.run(NoFeed())),
            asyncio.create_task(self.channel.unconfirmed.run(self.worker.owe)),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def outcome(self, sequence: int) -> tuple[str, str] | None:
        found = await self.kinds.push.outcomes.find(self.chat, sequence, self.ben, PHONE)
        return None if found is None else (found.outcome.value, found.detail)


def play(
    scenario: Callable[[PushWorld], Awaitable[None]],
    sizes: FanoutSizes = FanoutSizes(),  # noqa: B008 - it is frozen
) -> None:
    """Run a scenario in virtual time."""

    async def in_world(clock: VirtualClock) -> None:
        world = PushWorld(clock, sizes)
        await world.begin()
        await scenario(world)

    run_virtual(in_world)
