"""Whole logs with what is archived of them: for check, copies and exports, which need no `Engine.open`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from parley.archive.reader import ArchiveReader
from parley.model import StoredEntry
from parley.objects.ports import Objects
from parley.store.maintenance import Inspection, Transfer
from parley.store.paging import Row
from parley.store.records import Record
from parley.store.rows import ArchiveMark, ChatRow
from parley.telemetry import Metrics
from parley.wire.limits import MIB, PAGE_ENTRIES_MAX

CACHE_BYTES = 8 * MIB
READ_SECONDS_MAX = 60.0
"""Nobody waits for an answer: a slow object store is better than a check that gives up."""


class InspectedMarks:
    """Marks, as inspections see them."""

    def __init__(self, inspection: Inspection) -> None:
        self._inspection = inspection

    async def marks(self, chat_ids: Sequence[str]) -> dict[str, ArchiveMark]:
        return {
            chat.chat_id: chat.archive async for page in self._inspection.chats(chat_ids) for chat in page
        }


class ArchivedLogs:
    """What was trimmed of each log, from its first position on."""

    def __init__(self, inspection: Inspection, objects: Objects, metrics: Metrics) -> None:
        self._marks = InspectedMarks(inspection)
        self._archive = ArchiveReader(self._marks, objects, metrics, CACHE_BYTES, READ_SECONDS_MAX)

    def of_chat(self, chat: ChatRow) -> AsyncIterator[list[Row]]:
        return self.rows(chat.chat_id, 0, chat.trimmed_through)

    async def trimmed_through(self, chat_id: str) -> int:
        return (await self._marks.marks([chat_id])).get(chat_id, ArchiveMark()).trimmed_through

    async def rows(self, chat_id: str, after: int, through: int) -> AsyncIterator[list[Row]]:
        while after < through:
            last = min(through, after + PAGE_ENTRIES_MAX)
            yield await self._archive.rows(chat_id, after + 1, last)
            after = last


class TieredTransfer:
    """A `Transfer` that reads both tiers. What is put goes to the engine."""

    def __init__(self, hot: Transfer, archived: ArchivedLogs) -> None:
        self._hot = hot
        self._archived = archived
        self.chats = hot.chats
        self.log_ends = hot.log_ends
        self.settle = hot.settle
        self.begin_anew = hot.begin_anew

    def records(self, kind: type[Record]) -> AsyncIterator[list[Record]]:
        return self._hot.records(kind)

    async def put(self, records: Sequence[Record]) -> None:
        await self._hot.put(records)

    async def positions(self, chat_id: str, after: int) -> AsyncIterator[list[StoredEntry]]:
        border = await self._archived.trimmed_through(chat_id)
        async for rows in self._archived.rows(chat_id, after, border):
            yield [StoredEntry(sequence, wire) for sequence, wire in rows]
        async for page in self._hot.positions(chat_id, max(after, border)):
            yield page

    async def put_positions(self, chat_id: str, positions: Sequence[StoredEntry]) -> None:
        await self._hot.put_positions(chat_id, positions)
