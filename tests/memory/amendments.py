"""The `Amendments` port in memory."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from parley.store.amendments import AmendmentNote, MessageMark
from parley.wire.frames import Entry
from tests.memory.tables import Tables


class MemoryAmendments:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.scrubbed: list[bytes] = []

    async def begin(self, note: AmendmentNote) -> None:
        self._tables.amendments.setdefault((note.chat_id, note.client_key), note)

    async def under_way(self, chat_id: str | None = None) -> list[AmendmentNote]:
        notes = self._tables.amendments.values()
        return [note for note in notes if chat_id is None or note.chat_id == chat_id]

    async def mark(self, chat_id: str, marks: Sequence[MessageMark]) -> None:
        for mark in marks:
            place = (chat_id, mark.target, mark.name)
            stored = self._tables.message_marks.get(place)
            if stored is None or stored.sequence < mark.sequence:
                self._tables.message_marks[place] = mark

    async def finish(self, note: AmendmentNote) -> None:
        self._tables.amendments.pop((note.chat_id, note.client_key), None)

    async def marks(self, chat_id: str, target: int) -> list[MessageMark]:
        marks = self._tables.message_marks
        return [marks[place] for place in sorted(marks) if place[:2] == (chat_id, target)]

    async def replace(self, chat_id: str, sequence: int, before: bytes, after: bytes) -> bool:
        chat = self._tables.chats[chat_id]
        if chat.wires.get(sequence) != before:
            return False
        chat.wires[sequence] = after
        chat.entries[sequence] = msgspec.json.decode(after, type=Entry)
        chat.change = self._tables.next_change()
        return True

    async def scrub(self, traces: Sequence[bytes]) -> None:
        self.scrubbed += traces
