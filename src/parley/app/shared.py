"""The store that many nodes share: DynamoDB, and whoever gives the numbers. Imported where configured."""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
from collections.abc import Awaitable, Callable, Mapping

from parley.app.engines import Job, Reach, seal_regularly
from parley.bus.ports import Bus
from parley.clock import Clock
from parley.cluster.calls import SignedCalls
from parley.config import Config
from parley.errors import ConfigError, StoreError
from parley.gateway.hub import Hub
from parley.ids import Ids
from parley.sequencing.coalescing import Coalescing
from parley.sequencing.dynamodb import DynamoAllocator
from parley.sequencing.redis import RedisAllocator
from parley.sequencing.remote import RemoteAllocator
from parley.store.dynamodb.calling import DEADLINE_SECONDS
from parley.store.dynamodb.client import Dynamo
from parley.store.dynamodb.store import DynamoStore
from parley.store.ports import APPEND_SECONDS_MAX, Allocator
from parley.telemetry import Metrics
from parley.testing import dynamodb_faults, faults

PROBE_SECONDS = 2.0
PROBE_SECONDS_MAX = 4.0
"""A store that does not even answer a read by then is away."""
PROBE_CHAT = "chat_probe"
HEADS_SECONDS = 30.0
LOOKS_PER_MEMBERSHIP_LOOK = 10
"""Who is in which chat is told by notices and entries; a notice that was lost is made good this often."""


def dynamo_from(
    config: Config,
    metrics: Metrics | None,
    environment: Mapping[str, str],
    deadline_seconds: float = DEADLINE_SECONDS,
) -> Dynamo:
    """The client that a configuration asks for."""
    settings = config.dynamodb
    return Dynamo(
        settings.endpoint,
        settings.region,
        prefix=settings.prefix,
        metrics=metrics,
        faults=dynamodb_faults.faults_from(environment),
        deadline_seconds=deadline_seconds,
    )


class Numbers:
    """The allocator that a configuration asks for, with what has to be closed after it."""

    def __init__(self, config: Config, dynamo: Dynamo, clock: Clock) -> None:
        self._closing: list[Callable[[], Awaitable[None]]] = []
        self.allocator = self._make(config, dynamo, clock)

    def _make(self, config: Config, dynamo: Dynamo, clock: Clock) -> Allocator:
        match config.store.allocator:
            case "redis":
                if not config.redis.url:
                    raise ConfigError('store.allocator = "redis" needs redis.url')
                redis = RedisAllocator(config.redis.url)
                self._closing.append(redis.close)
                return Coalescing(redis)
            case "sequencer":
                if not config.cluster.sequencers:
                    raise ConfigError('store.allocator = "sequencer" needs cluster.sequencers')
                calls = SignedCalls(config.cluster.secret, clock=clock, random_bytes=secrets.token_bytes)
                self._closing.append(calls.close)
                urls = config.cluster.sequencers
                return RemoteAllocator(urls, calls, first=secrets.randbelow(len(urls)))
            case "dynamodb":
                return Coalescing(DynamoAllocator(dynamo, clock=clock, random=random.random))

    async def close(self) -> None:
        for close in self._closing:
            await close()


class SharedEngine:
    """Tables that other nodes read and write too."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        make_ids: Ids,
        metrics: Metrics,
        reach: Reach,
        environment: Mapping[str, str],
    ) -> None:
        # Somebody waits: what was throttled for so long is refused as not done, before nobody knows.
        dynamo = dynamo_from(config, metrics, environment, APPEND_SECONDS_MAX)
        is_atomic = config.store.sequencing == "atomic"
        self._numbers = None if is_atomic else Numbers(config, dynamo, clock)
        self.store = DynamoStore(
            dynamo,
            clock=clock,
            ids=make_ids,
            metrics=metrics,
            allocator=None if self._numbers is None else self._numbers.allocator,
            publishes=bool(config.kafka.brokers),
            reach=reach,
            hold=faults.hold_from(environment),
        )
        self.allocator = None if self._numbers is None else self._numbers.allocator
        self.lanes = self.store.log.lanes
        self.batch_drafts_max = faults.batch_max_from(environment, self.store.log.batch_drafts_max)
        self.available = True

    async def open(self) -> None:
        await self.store.open()
        if self._numbers is not None:
            try:
                await self._numbers.allocator.last(PROBE_CHAT)
            except StoreError as error:
                raise ConfigError(f"nobody gives numbers: {error}") from error

    def jobs(self, hub: Hub, bus: Bus) -> list[Job]:
        return [self._probe(), self._look_at_heads(hub), seal_regularly(self.store.log, bus)]

    async def _probe(self) -> None:
        """Whether the store answers: a node without one does not append, and says that it is not ready."""
        while True:
            await asyncio.sleep(PROBE_SECONDS)
            try:
                async with asyncio.timeout(PROBE_SECONDS_MAX):
                    await self.store.directory.chat(PROBE_CHAT)
                self.available = True
            except (StoreError, TimeoutError):
                self.available = False

    async def _look_at_heads(self, hub: Hub) -> None:
        """A notice may be lost, the last one of a chat too: what was missed is found here."""
        looks = 0
        while True:
            await asyncio.sleep(HEADS_SECONDS)
            looks += 1
            with contextlib.suppress(StoreError):  # it will be looked at again
                if looks % LOOKS_PER_MEMBERSHIP_LOOK:
                    await hub.check_heads()
                else:
                    await hub.catch_up()

    async def close(self) -> None:
        await self.store.close()
        if self._numbers is not None:
            await self._numbers.close()
