"""The SQLite engine: one file in a folder that belongs to one server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from parley.clock import Clock
from parley.core.jobs import Job
from parley.errors import ParleyError
from parley.ids import Ids
from parley.store.copy_mark import check_copied
from parley.store.ports import Batching
from parley.store.rows import Finding
from parley.store.sqlite.chat_state import SqliteChatStates
from parley.store.sqlite.cursors import SqliteCursors
from parley.store.sqlite.database import Database
from parley.store.sqlite.delivery import SqliteDeliveryQueues
from parley.store.sqlite.diagnosis import diagnose
from parley.store.sqlite.directory import SqliteDirectory
from parley.store.sqlite.entry_changes import SqliteEntries
from parley.store.sqlite.feed import SqliteFeed
from parley.store.sqlite.inspection import SqliteInspection
from parley.store.sqlite.log import SqliteLog
from parley.store.sqlite.member_states import SqliteMemberStates
from parley.store.sqlite.overview import SqliteOverviews
from parley.store.sqlite.reads import Reads
from parley.store.sqlite.records import SqliteRecords
from parley.store.sqlite.repairs import SqliteRepairs
from parley.store.sqlite.transfer import SqliteTransfer
from parley.store.sqlite.writer import Writer
from parley.store.subscriptions import Subscriptions
from parley.store.two_phase import FaultPoint, no_fault
from parley.telemetry import Metrics

WATCH_SECONDS = 1.0
CATCH_UP_SECONDS_MAX = 300.0
APPENDS_AT_ONCE_MAX = 8
"""With two_phase. An atomic append holds the write lock, so there is only one and the next gathers drafts."""


class SqliteStore:
    """`beside`: for a command, while a server may run: its open allocations are not abandoned."""

    outbox = None
    allocator = None

    def __init__(
        self,
        folder: Path,
        *,
        clock: Clock,
        ids: Ids,
        metrics: Metrics,
        sequencing: str = "atomic",
        vfs: str | None = None,
        fault_point: FaultPoint = no_fault,
        beside: bool = False,
        chance: Callable[[], float] = random.random,
    ) -> None:
        is_atomic = sequencing == "atomic"
        self.batching = Batching(per_chat=False, appends_at_once_max=1 if is_atomic else APPENDS_AT_ONCE_MAX)
        self._beside = beside
        self._folder = folder
        self._clock = clock
        self._is_open = False
        self._wrote_elsewhere = asyncio.Event()
        self.database = Database(folder, vfs, beside=beside)
        self.writer = Writer(self.database, metrics, fault_point)
        reads = Reads(self.database, self.writer)
        states = SqliteChatStates(reads.execute, reads.about)
        self.writer.on_foreign_write(states.forget_all)
        self.writer.on_undo(states.forget_touched)
        self.log = SqliteLog(
            reads=reads,
            writer=self.writer,
            states=states,
            clock=clock,
            make_ids=ids,
            metrics=metrics,
            sequencing=sequencing,
            fault_point=fault_point,
        )
        self.directory = SqliteDirectory(reads, self.writer, states)
        self.records = SqliteRecords(reads, self.writer, folder)
        self.cursors = SqliteCursors(reads, self.writer)
        self.overviews = SqliteOverviews(reads)
        self.member_states = SqliteMemberStates(reads, self.writer)
        self.queues = SqliteDeliveryQueues(reads, self.writer)
        self.entries = SqliteEntries(reads, self.writer, states, self.database, clock)
        self.inspection = SqliteInspection(folder)
        self.repairs = SqliteRepairs(folder, clock)
        self.transfer = SqliteTransfer(folder)
        self.feed = SqliteFeed(reads, self.writer, metrics, is_atomic, chance)

    async def create(self, report: Callable[[str], None]) -> list[str]:
        """Durable, like `open`. Migrates a file of an older version."""
        file, is_new = str(self.database.path), not self.database.path.is_file()
        # An OSError names the folder: the operator must choose another.
        self.database.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        created = Database(self._folder, beside=self._beside)
        created.open()
        created.close()
        report(f"{file}: {'created' if is_new else 'already exists'}")
        return [file] if is_new else []

    async def diagnose(self) -> AsyncIterator[Finding]:
        for finding in diagnose(self._folder, self._clock):
            yield finding

    async def open(self) -> None:
        """Migrates, makes everything durable, seals what a crash left open, frees what it left claimed."""
        await asyncio.get_running_loop().run_in_executor(None, self.database.open)
        try:
            await check_copied(self.records)
        except ParleyError:
            self.database.close()
            raise
        self.writer.start()
        self._is_open = True
        if not self._beside:
            await self.log.seal_all()
            await self.queues.free()

    def jobs(self, subscriptions: Subscriptions) -> list[Job]:
        self.writer.on_foreign_write(self._wrote_elsewhere.set)
        watch = Job(
            name="file_watch",
            does="notices that a command beside the server has written to the file",
            run=self._watch_file,
            interval_seconds=WATCH_SECONDS,
            timeout_seconds=None,
        )
        catch_up = Job(
            name="catch_up",
            does="delivers what a command has written, and closes connections whose session it ended",
            run=lambda: self._catch_up(subscriptions),
            interval_seconds=None,
            timeout_seconds=CATCH_UP_SECONDS_MAX,
            until_woken=self._wrote_elsewhere.wait,
        )
        return [watch, catch_up]

    async def _watch_file(self) -> None:
        """Notice writes of a command beside the server, even when no message is sent."""
        self.writer.check_for_foreign_writes()

    async def _catch_up(self, subscriptions: Subscriptions) -> None:
        self._wrote_elsewhere.clear()
        await subscriptions.check_sessions()
        await subscriptions.catch_up()

    @property
    def available(self) -> bool:
        return self.writer.available

    async def close(self) -> None:
        self.inspection.close()
        if self._is_open:
            await self.cursors.close()
            await self.writer.close()
