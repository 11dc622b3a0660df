"""One node: every room, wired. The embedded server is a node that needs no other."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING

import structlog

from parley.app.buses import BusEngine, EmbeddedBusEngine
from parley.app.engines import EmbeddedEngine, Engine, Reach
from parley.chats.accounts import People
from parley.chats.membership import Membership
from parley.chats.reading import Reading
from parley.chats.sending import Sender, Sending
from parley.clock import Clock, wall_clock
from parley.config import Config
from parley.ephemeral.local import LocalEphemeral
from parley.ephemeral.ports import Ephemeral
from parley.errors import ConfigError
from parley.gateway.hub import Hub
from parley.gateway.server import CLEANUP_SECONDS_MAX, CLOSE_SECONDS_MAX, Gateway
from parley.gateway.services import Services
from parley.ids import NODE, Ids
from parley.people.social import Social
from parley.store.sqlite.database import lock_folder
from parley.telemetry import Metrics
from parley.testing import faults
from parley.wire.limits import DRAIN_SECONDS_MAX

if TYPE_CHECKING:
    from parley.app.clustering import Clustering

FINISH_SECONDS_MAX = 4.0
STORE_CLOSE_SECONDS_MAX = 1.5
WITHDRAW_SECONDS_MAX = 0.5
assert (
    WITHDRAW_SECONDS_MAX
    + FINISH_SECONDS_MAX
    + CLOSE_SECONDS_MAX
    + CLEANUP_SECONDS_MAX
    + STORE_CLOSE_SECONDS_MAX
    < DRAIN_SECONDS_MAX - 0.5
), "every step of a drain may take its longest"

log = structlog.get_logger("parley.app")


class App:
    """`gateway` serves clients, `ingest` appends, `delivery` publishes what was left behind."""

    def __init__(
        self,
        config: Config,
        *,
        clock: Clock = wall_clock,
        random_bits: Callable[[int], int] = secrets.randbits,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self.config = config
        self.metrics = metrics = Metrics(clock)
        self._clock = clock
        self._ids = make_ids = Ids(random_bits)
        self.node_id = config.cluster.node or make_ids.next(NODE, clock())
        reach = faults.reach_from(environment)
        self.engine = engine = self._make_engine(reach, environment)
        self.store = store = engine.store
        metrics.is_store_available = lambda: engine.available
        self.ephemeral = ephemeral = self._make_ephemeral()
        metrics.is_ephemeral_available = lambda: ephemeral.available
        metrics.signals_dropped = lambda: ephemeral.signals.dropped
        self.hub = Hub(store.log, store.directory, metrics, reach)
        self._buses = self._make_buses()
        self.bus = bus = self._buses.bus
        self.local_sending = Sending(
            store.log, bus, metrics, engine.lanes, engine.batch_drafts_max, self._buses.confirm
        )
        self.cluster = self._make_cluster()
        self.sending: Sender = self.cluster.forwarding if self.cluster else self.local_sending
        self.hub.hold = self.sending.hold
        self.social = social = self._make_social()
        self.people = self._make_people()
        self.reading = Reading(store.log, store.directory, store.cursors, clock)
        self.services = Services(
            config=config,
            clock=clock,
            metrics=metrics,
            people=self.people,
            membership=Membership(store.directory, self.sending, bus, clock, make_ids),
            sending=self.sending,
            reading=self.reading,
            social=social,
            hub=self.hub,
            ephemeral=self.ephemeral,
            node_id=self.node_id,
        )
        self.gateway = Gateway(
            self.services, lambda: engine.available, make_ids, "gateway" in config.cluster.roles
        )
        self._jobs: list[asyncio.Task[None]] = []
        self._lock: IO[str] | None = None
        """The folder belongs to this process, also where only its address is kept there."""

    # What the configuration asks for; engines that it does not name are not even imported

    def _make_engine(self, reach: Reach, environment: Mapping[str, str]) -> Engine:
        if self.config.store.engine == "sqlite":
            return EmbeddedEngine(self.config, self._clock, self._ids, self.metrics, reach, environment)
        from parley.app.shared import SharedEngine

        return SharedEngine(self.config, self._clock, self._ids, self.metrics, reach, environment)

    def _make_ephemeral(self) -> Ephemeral:
        if not self.config.redis.url:
            return LocalEphemeral(self._clock)
        from parley.ephemeral.redis.engine import RedisEphemeral

        return RedisEphemeral(self.config.redis.url, self._clock, prefix=self.config.redis.prefix)

    def _make_buses(self) -> BusEngine:
        if not self.config.kafka.brokers:
            return EmbeddedBusEngine()
        from parley.app.kafka import KafkaBusEngine

        return KafkaBusEngine(self.config, self.node_id, self.store, self.hub, self.metrics, self._clock)

    def _make_cluster(self) -> Clustering | None:
        """Only nodes that share a store can work together."""
        if self.config.store.engine == "sqlite":
            return None
        from parley.app.clustering import Clustering, sequencer_routes

        engine = self.engine
        return Clustering(
            self.config,
            self.node_id,
            clock=self._clock,
            make_ids=self._ids,
            metrics=self.metrics,
            ephemeral=self.ephemeral,
            sending=self.local_sending if "ingest" in self.config.cluster.roles else None,
            listener=self.hub,
            is_ready=lambda: engine.available,
            routes=sequencer_routes(self.config, engine, self._clock, self.metrics),
        )

    def _make_people(self) -> People:
        people = People(
            self.store.accounts,
            self.store.cursors,
            self.bus,
            self._clock,
            self._ids,
            secrets.token_bytes,
            self.config.password_letters_min,
        )
        people.changed = self.social.person_changed
        return people

    def _make_social(self) -> Social:
        store = self.store
        social = Social(
            log=store.log,
            directory=store.directory,
            accounts=store.accounts,
            cursors=store.cursors,
            relations=store.relations,
            standings=store.standings,
            ephemeral=self.ephemeral,
            audience=self.hub,
            tell_some=self.hub.tell_some,
            clock=self._clock,
            metrics=self.metrics,
        )
        self.hub.changed = social.chat_changed
        return social

    # Life

    async def start(self) -> int:
        """Open the store, then the doors. Returns the port. Nothing is left half started."""
        try:
            return await self._start()
        except BaseException:
            await self._abandon()
            raise

    async def _start(self) -> int:
        self._lock = lock_folder(self.folder)
        await self.engine.open()
        await self._buses.start()
        await self._check_ephemeral()
        await self.ephemeral.start()
        self.local_sending.start()
        self.social.start()
        jobs = self.engine.jobs(self.hub, self.bus) + self._buses.jobs()
        self._jobs = [asyncio.create_task(job) for job in jobs]
        if self.cluster is not None:
            await self.cluster.start(self.bus)
        else:
            self.bus.subscribe(self.hub)
        return await self.gateway.start(self.config.server.host, self.config.server.port)

    async def _check_ephemeral(self) -> None:
        """A Redis that is away is waited for; one that can never be used is a mistake to tell of now."""
        if not self.config.redis.url:
            return
        from parley.ephemeral.redis.checking import check_redis, is_away

        try:
            await check_redis(self.config.redis.url)
        except ConfigError as error:
            if not is_away(error):
                raise
            log.warning("starting without Redis", reason=str(error))

    async def _abandon(self) -> None:
        leave = [self.cluster.withdraw, self.cluster.stop] if self.cluster is not None else []
        for part in (*leave, self._end_jobs, self._buses.stop, self.ephemeral.close, self.engine.close):
            with contextlib.suppress(Exception):  # the first failure is the one to tell of
                await part()
        self.people.close()
        self._unlock()

    async def stop(self) -> None:
        """Take nothing new, finish what was taken, tell everybody to come back."""
        if self.cluster is not None:
            await _within(WITHDRAW_SECONDS_MAX, self.cluster.withdraw())
        await self.gateway.stop_accepting()
        await _within(FINISH_SECONDS_MAX, self._finish())
        await self.gateway.close()
        await self._end_jobs()
        await self.social.close()
        await self.hub.close()
        self.people.close()
        await _within(STORE_CLOSE_SECONDS_MAX, self._close())
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()

    async def _finish(self) -> None:
        """What was taken to forward may still come back to be appended here."""
        if self.cluster is not None:
            await self.cluster.forwarding.stop()
        await self.local_sending.stop()

    async def _end_jobs(self) -> None:
        for job in self._jobs:
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)

    async def _close(self) -> None:
        if self.cluster is not None:
            await self.cluster.stop()
        await self._buses.stop()
        await self.ephemeral.close()
        await self.engine.close()

    @property
    def folder(self) -> Path:
        return Path(self.config.server.data)


async def _within(seconds: float, work: Awaitable[None]) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await work
