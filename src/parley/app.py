"""The composition root: the only file that names concrete engines, and the life of a server."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import secrets
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from parley.bus.embedded import EmbeddedBus
from parley.chats.accounts import People
from parley.chats.membership import Membership
from parley.chats.reading import Reading
from parley.chats.sending import Sending
from parley.clock import Clock, wall_clock
from parley.config import Config
from parley.errors import StoreError
from parley.gateway.hub import Hub
from parley.gateway.server import CLEANUP_SECONDS_MAX, CLOSE_SECONDS_MAX, Gateway
from parley.gateway.services import Services
from parley.ids import Ids
from parley.store.sqlite.database import lock_folder
from parley.store.sqlite.store import SqliteStore
from parley.telemetry import Metrics
from parley.testing import faults
from parley.wire.limits import DRAIN_SECONDS_MAX

FOREIGN_LOOK_SECONDS = 1.0
SEAL_SECONDS = 0.5
FINISH_SECONDS_MAX = 4.0
STORE_CLOSE_SECONDS_MAX = 1.5
assert (
    FINISH_SECONDS_MAX + CLOSE_SECONDS_MAX + CLEANUP_SECONDS_MAX + STORE_CLOSE_SECONDS_MAX
    < DRAIN_SECONDS_MAX - 1
), "every step of a drain may take its longest"
SWITCH_INTERVAL_SECONDS = 1e-4
"""How long the commit thread waits at most for the GIL that it needs only to say that it is done."""

GC_THRESHOLDS = (50_000, 20, 100)
"""Batches free what they make by reference counting; the collector only looks for the rare cycle."""

log = structlog.get_logger("parley.app")


class App:
    """One server: every room, wired."""

    def __init__(
        self,
        config: Config,
        *,
        clock: Clock = wall_clock,
        random_bits: Callable[[int], int] = secrets.randbits,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self.config = config
        self.folder = Path(config.server.data)
        self.metrics = Metrics(clock)
        reach = faults.reach_from(environment)
        make_ids = Ids(random_bits)
        self.store = store = SqliteStore(
            self.folder,
            clock=clock,
            ids=make_ids,
            metrics=self.metrics,
            sequencing=config.store.sequencing,
            vfs=faults.vfs_from(environment),
            reach=reach,
            hold=faults.hold_from(environment),
        )
        self.metrics.is_store_available = lambda: store.available
        self.bus = EmbeddedBus()
        self.sending = Sending(store.log, self.bus, self.metrics, store.log.lanes)
        self.hub = Hub(store.log, store.directory, self.metrics, reach)
        self.people = People(
            store.accounts,
            store.cursors,
            self.bus,
            clock,
            make_ids,
            secrets.token_bytes,
            config.password_letters_min,
        )
        self.membership = Membership(store.directory, self.sending, self.bus, clock, make_ids)
        self.reading = Reading(store.log, store.directory, store.cursors, clock)
        self.services = Services(
            config=config,
            clock=clock,
            metrics=self.metrics,
            people=self.people,
            membership=self.membership,
            sending=self.sending,
            reading=self.reading,
            hub=self.hub,
        )
        self.gateway = Gateway(self.services, lambda: store.available, make_ids)
        self._jobs: list[asyncio.Task[None]] = []

    async def start(self) -> int:
        """Open the store, then the door. Returns the port."""
        self._lock = lock_folder(self.folder)
        await self.store.open()
        self.bus.subscribe(self.hub)
        self.sending.start()
        self.store.on_foreign_write(self._catch_up_soon)
        self._jobs = [asyncio.create_task(self._watch_file()), asyncio.create_task(self._seal())]
        return await self.gateway.start(self.config.server.host, self.config.server.port)

    def _catch_up_soon(self) -> None:
        if self._jobs:
            self._jobs.append(asyncio.create_task(self._catch_up()))
            self._jobs = [job for job in self._jobs if not job.done()]

    async def _catch_up(self) -> None:
        with contextlib.suppress(StoreError):  # it will be looked at again when the store is back
            await self.hub.catch_up()

    async def _watch_file(self) -> None:
        """An operator's tool may write beside the server: notice it even when nothing is sent."""
        while True:
            await asyncio.sleep(FOREIGN_LOOK_SECONDS)
            self.store.look_for_foreign_writes()

    async def _seal(self) -> None:
        while True:
            await asyncio.sleep(SEAL_SECONDS)
            with contextlib.suppress(StoreError):  # the writer has said it, and tries again
                self.bus.publish(await self.store.log.seal())

    async def stop(self) -> None:
        """Take nothing new, finish what was taken, tell everybody to come back."""
        await self.gateway.stop_accepting()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FINISH_SECONDS_MAX):
                await self.sending.stop()
        await self.gateway.close()
        for job in self._jobs:
            job.cancel()
        await self.hub.close()
        self.people.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STORE_CLOSE_SECONDS_MAX):
                await self.store.close()
        self._lock.close()


async def serve(config: Config, ready: Callable[[str], None]) -> None:
    """Run until SIGTERM or SIGINT."""
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stopping.set)
    app = App(config)
    port = await app.start()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    host = f"[{config.server.host}]" if ":" in config.server.host else config.server.host
    log.info("ready", url=f"http://{host}:{port}", data=str(app.folder), sequencing=config.store.sequencing)
    ready(f"http://{host}:{port}")
    await stopping.wait()
    log.info("draining", connections=len(app.services.connections))
    await app.stop()
    log.info("stopped")
