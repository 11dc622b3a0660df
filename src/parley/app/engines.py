"""What a server keeps its data in, as the composition root sees it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Protocol

from parley.bus.ports import Bus
from parley.chats.sending import BATCH_DRAFTS_MAX
from parley.clock import Clock
from parley.config import Config
from parley.errors import StoreError
from parley.gateway.hub import Hub
from parley.ids import Ids
from parley.store.ports import Accounts, Cursors, Directory, Log, Relations, Standings
from parley.store.sqlite.store import SqliteStore
from parley.telemetry import Metrics
from parley.testing import faults

FOREIGN_LOOK_SECONDS = 1.0
SEAL_SECONDS = 0.5

Reach = Callable[[str], None]
Job = Coroutine[None, None, None]


class Store(Protocol):
    """The ports of a store."""

    @property
    def log(self) -> Log: ...

    @property
    def directory(self) -> Directory: ...

    @property
    def accounts(self) -> Accounts: ...

    @property
    def cursors(self) -> Cursors: ...

    @property
    def relations(self) -> Relations: ...

    @property
    def standings(self) -> Standings: ...


class Engine(Protocol):
    """A store with its life: opened before anything is served, closed after everything else.

    `lanes` and `batch_drafts_max` say how its log wants to be sent to.
    """

    lanes: int
    batch_drafts_max: int

    @property
    def store(self) -> Store: ...

    @property
    def available(self) -> bool: ...

    async def open(self) -> None: ...

    def jobs(self, hub: Hub, bus: Bus) -> list[Job]: ...

    async def close(self) -> None: ...


class EmbeddedEngine:
    """SQLite in a folder of this process alone."""

    batch_drafts_max = BATCH_DRAFTS_MAX

    def __init__(
        self,
        config: Config,
        clock: Clock,
        make_ids: Ids,
        metrics: Metrics,
        reach: Reach,
        environment: Mapping[str, str],
    ) -> None:
        self.store = SqliteStore(
            Path(config.server.data),
            clock=clock,
            ids=make_ids,
            metrics=metrics,
            sequencing=config.store.sequencing,
            vfs=faults.vfs_from(environment),
            reach=reach,
            hold=faults.hold_from(environment),
        )
        self.lanes = self.store.log.lanes
        self._wrote_elsewhere = asyncio.Event()

    @property
    def available(self) -> bool:
        return self.store.available

    async def open(self) -> None:
        await self.store.open()

    def jobs(self, hub: Hub, bus: Bus) -> list[Job]:
        self.store.on_foreign_write(self._wrote_elsewhere.set)
        return [self._watch_file(), self._catch_up(hub), seal_regularly(self.store.log, bus)]

    async def _watch_file(self) -> None:
        """An operator's tool may write beside the server: notice it even when nothing is sent."""
        while True:
            await asyncio.sleep(FOREIGN_LOOK_SECONDS)
            self.store.look_for_foreign_writes()

    async def _catch_up(self, hub: Hub) -> None:
        while True:
            await self._wrote_elsewhere.wait()
            self._wrote_elsewhere.clear()
            with contextlib.suppress(StoreError):  # it will be looked at again when the store is back
                await hub.catch_up()

    async def close(self) -> None:
        await self.store.close()


async def seal_regularly(log: Log, bus: Bus) -> None:
    """Numbers that were taken and abandoned become voids, and readers go on."""
    while True:
        await asyncio.sleep(SEAL_SECONDS)
        with contextlib.suppress(StoreError):  # the store has said it, and it is tried again
            sealed = await log.seal()
            if sealed:
                bus.publish(sealed)
