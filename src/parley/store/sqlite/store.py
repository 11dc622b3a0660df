"""The whole embedded store, put together. Only the composition root names it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

from parley.clock import Clock
from parley.ids import Ids
from parley.model import Persisted
from parley.store.sqlite.accounts import SqliteAccounts
from parley.store.sqlite.cursors import SqliteCursors
from parley.store.sqlite.database import Database
from parley.store.sqlite.directory import SqliteDirectory
from parley.store.sqlite.feed import SqliteFeed
from parley.store.sqlite.log import Hold, SqliteLog
from parley.store.sqlite.reads import Reads
from parley.store.sqlite.relations import SqliteRelations
from parley.store.sqlite.standings import SqliteStandings
from parley.store.sqlite.states import ChatStates
from parley.store.sqlite.writer import Reach, Writer
from parley.telemetry import Metrics


def nowhere(_: str) -> None:
    """No fault is injected at any point."""


class SqliteStore:
    """Every port of the store over one file.

    `beside`: this is a tool and a server may be at work, whose open allocations are not abandoned.
    """

    def __init__(
        self,
        folder: Path,
        *,
        clock: Clock,
        ids: Ids,
        metrics: Metrics,
        sequencing: str = "atomic",
        vfs: str | None = None,
        reach: Reach = nowhere,
        hold: Hold = nowhere,
        beside: bool = False,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._beside = beside
        self.database = Database(folder, vfs, beside=beside)
        self.writer = Writer(self.database, metrics, reach)
        reads = Reads(self.database, self.writer)
        states = ChatStates(reads.execute)
        self.writer.on_foreign_write(states.forget_all)
        self.writer.on_undo(states.forget_touched)
        self.log = SqliteLog(reads, self.writer, states, clock, ids, metrics, sequencing, reach, hold)
        self.directory = SqliteDirectory(reads, self.writer)
        self.accounts = SqliteAccounts(reads, self.writer)
        self.cursors = SqliteCursors(reads, self.writer)
        self.relations = SqliteRelations(reads, self.writer, states)
        self.standings = SqliteStandings(reads, self.writer)
        self.feed = SqliteFeed(reads, self.writer, metrics, sequencing == "atomic", chance)

    async def open(self) -> list[Persisted]:
        """Ready to serve: durable, migrated, and nothing left open by a crash."""
        await asyncio.get_running_loop().run_in_executor(None, self.database.open)
        self.writer.start()
        return [] if self._beside else await self.log.seal_all()

    def on_foreign_write(self, tell: Callable[[], None]) -> None:
        """Call `tell` after another program has written to the file."""
        self.writer.on_foreign_write(tell)

    def look_for_foreign_writes(self) -> None:
        """Notice them even when this program has nothing to write."""
        self.writer.look()

    @property
    def available(self) -> bool:
        return self.writer.available

    async def close(self) -> None:
        await self.cursors.close()
        await self.writer.close()
