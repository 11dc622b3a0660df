"""The engine in memory: every port over the same tables."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from parley.clock import Clock
from parley.core.jobs import Job
from parley.ids import Ids
from parley.store.copy_mark import check_copied
from parley.store.ports import Batching
from parley.store.rows import Finding
from parley.store.subscriptions import Subscriptions
from parley.store.two_phase import FaultPoint, no_fault
from parley.telemetry import Metrics
from tests.memory.cursors import MemoryCursors, MemoryMemberStates, MemoryOverviews
from tests.memory.delivery import MemoryDeliveryQueues
from tests.memory.entry_changes import MemoryEntries
from tests.memory.log import MemoryLog
from tests.memory.maintenance import MemoryInspection, MemoryRepairs
from tests.memory.people import MemoryDirectory
from tests.memory.records import MemoryRecords
from tests.memory.tables import Tables
from tests.memory.transfer import MemoryTransfer

FOREVER_MS = 2**62


class MemoryOutbox:
    def __init__(self, tables: Tables) -> None:
        self._chats = tables.chats
        self.marks = tables.published

    def note_published(self, chat_id: str, through: int) -> None:
        self.marks[chat_id] = max(through, self.marks.get(chat_id, 0))

    async def unpublished(self) -> dict[str, int]:
        marks = {chat_id: self.marks.get(chat_id, 0) for chat_id in self._chats}
        return {chat_id: mark for chat_id, mark in marks.items() if mark < self._chats[chat_id].head}

    async def flush(self) -> None:
        """Nothing to write."""


class MemoryStore:
    """An `Engine`. `tables` may be those of an earlier instance."""

    batching = Batching(per_chat=False, appends_at_once_max=1)
    feed = None
    allocator = None
    available = True

    def __init__(
        self,
        tables: Tables,
        *,
        clock: Clock,
        ids: Ids,
        metrics: Metrics,
        sequencing: str = "atomic",
        fault_point: FaultPoint = no_fault,
    ) -> None:
        self.directory = MemoryDirectory(tables)
        self.member_states = MemoryMemberStates(tables)
        self.records = MemoryRecords(tables)
        self.cursors = MemoryCursors(tables)
        self.overviews = MemoryOverviews(tables)
        self.outbox = MemoryOutbox(tables)
        self.queues = MemoryDeliveryQueues(tables)
        self.entries = MemoryEntries(tables)
        self.inspection = MemoryInspection(tables)
        self.repairs = MemoryRepairs(tables)
        self.transfer = MemoryTransfer(tables)
        self._tables = tables
        self.log = MemoryLog(
            tables,
            clock,
            make_ids=ids,
            metrics=metrics,
            is_atomic=sequencing == "atomic",
            commit=self.cursors.commit,
            fault_point=fault_point,
        )

    async def create(self, report: Callable[[str], None]) -> list[str]:
        """The caller creates the tables."""
        return []

    async def diagnose(self) -> AsyncIterator[Finding]:
        yield Finding("ok", "store", "in memory")

    async def open(self) -> None:
        """Seals every open number and frees every queue: no other process is at work."""
        await check_copied(self.records)
        self.log.seal_before(FOREVER_MS)
        self.queues.free()

    def jobs(self, subscriptions: Subscriptions) -> list[Job]:
        return []

    async def close(self) -> None:
        self.cursors.commit()
