"""Messages that were answered, edited, deleted or reacted to: marks, and notes of what is not finished."""

from __future__ import annotations

from collections.abc import Sequence

from parley.concurrency import map_concurrently
from parley.core.marks import AmendmentNote, MessageMark
from parley.records.book import all_in
from parley.store.ports import Records
from parley.store.tables import (
    AMENDMENTS,
    CHANGES_MAX,
    MESSAGE_MARKS,
    PutRecord,
    RecordChange,
    RemoveRecord,
    message_place,
)

MARKED_AT_ONCE_MAX = 32


class Amendments:
    def __init__(self, records: Records) -> None:
        self._records = records

    async def begin(self, note: AmendmentNote) -> None:
        """Durable before it returns. May be repeated: of two tries the later one stays."""
        await self._records.commit(AMENDMENTS, [PutRecord(note)])

    async def under_way(self, chat_id: str | None = None) -> list[AmendmentNote]:
        """What has begun and is not finished, in one chat or in all, read strongly."""
        if chat_id is not None:
            return await all_in(self._records, AMENDMENTS, chat_id)
        return [note async for notes in self._records.scan(AMENDMENTS) for note in notes]

    async def mark(self, marks: Sequence[MessageMark]) -> None:
        """Durable before it returns. A mark that is older than the stored one changes nothing."""
        by_message: dict[str, list[RecordChange[MessageMark]]] = {}
        for mark in marks:
            by_message.setdefault(MESSAGE_MARKS.key(mark)[0], []).append(PutRecord(mark))
        commits = [
            changes[at : at + CHANGES_MAX]
            for changes in by_message.values()
            for at in range(0, len(changes), CHANGES_MAX)
        ]

        async def commit(changes: list[RecordChange[MessageMark]]) -> None:
            await self._records.commit(MESSAGE_MARKS, changes)

        await map_concurrently(commit, commits, MARKED_AT_ONCE_MAX)

    async def finish(self, note: AmendmentNote) -> None:
        """The note is gone, durably, with those of earlier tries. May be repeated."""
        await self._records.commit(AMENDMENTS, [RemoveRecord(AMENDMENTS.key(note), before=note)])

    async def marks(self, chat_id: str, target: int) -> list[MessageMark]:
        """Everything about a message, read strongly, in the order of the names."""
        return await all_in(self._records, MESSAGE_MARKS, message_place(chat_id, target))
