"""A log that is read as its edits and deletes say, also where nobody has carried them out yet.

A delete is an entry first; only then its message loses its body. Between the two, and after a crash between
the two, whoever reads the log applies what is noted (`Amendments.under_way`). The notes are read before the
entries: a note that is gone by then is one that was carried out.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct, field

from parley.concurrency import map_concurrently
from parley.core.marks import THE_CHAT, AmendmentNote
from parley.core.message_actions import DELETE, EDIT, MESSAGE, amended
from parley.model import AppendResult, Draft, Head, Page, Persisted
from parley.records.amendments import Amendments
from parley.store.ports import Engine, Log
from parley.wire.codec import decode_entry
from parley.wire.frames import Entry

LOOKED_UP_AT_ONCE_MAX = 8

encode_entry = msgspec.json.Encoder().encode


class UnderWay(Struct):
    """What is stored of a chat, and may not be carried out."""

    edits: list[Entry] = field(default_factory=list)
    deleted: set[str] = field(default_factory=set)
    """The ids of messages."""


class AmendedLog:
    """A `Log` over another."""

    def __init__(self, log: Log, amendments: Amendments) -> None:
        self._log = log
        self._amendments = amendments

    async def append(self, drafts: Sequence[Draft]) -> AppendResult:
        return await self._log.append(drafts)

    async def read(self, chat_id: str, after: int, limit: int) -> Page:
        notes = await self._amendments.under_way(chat_id)
        return await self._amended_page(await self._log.read(chat_id, after, limit), notes)

    async def read_before(self, chat_id: str, before: int, limit: int) -> Page:
        notes = await self._amendments.under_way(chat_id)
        return await self._amended_page(await self._log.read_before(chat_id, before, limit), notes)

    async def heads(self, chat_ids: Sequence[str]) -> dict[str, Head]:
        return await self._log.heads(chat_ids)

    async def find_key(self, chat_id: str, client_key: bytes) -> bytes | None:
        notes = await self._amendments.under_way(chat_id)
        wire = await self._log.find_key(chat_id, client_key)
        return None if wire is None else (await self._amended(chat_id, [wire], notes))[0]

    async def find_message(self, message_id: str, chat_ids: Sequence[str] | None) -> tuple[str, int] | None:
        return await self._log.find_message(message_id, chat_ids)

    async def seal(self) -> list[Persisted]:
        return await self._log.seal()

    async def _amended_page(self, page: Page, notes: Sequence[AmendmentNote]) -> Page:
        page.entries = await self._amended(page.chat_id, page.entries, notes)
        return page

    async def _amended(self, chat_id: str, wires: list[bytes], notes: Sequence[AmendmentNote]) -> list[bytes]:
        if not notes or not wires:
            return wires
        entries = list(map(decode_entry, wires))
        messages = {entry.sequence for entry in entries if entry.kind == MESSAGE}
        has_edits = any(entry.kind == EDIT for entry in entries)
        concerned = [
            note for note in notes if note.target in messages or (has_edits and note.target != THE_CHAT)
        ]
        under_way = UnderWay()
        for found in await map_concurrently(self._look_up, concerned, LOOKED_UP_AT_ONCE_MAX):
            under_way.edits += found.edits
            under_way.deleted |= found.deleted
        after = [amended(entry, under_way.edits, under_way.deleted) for entry in entries]
        return [
            wire if new is entry else encode_entry(new)
            for wire, entry, new in zip(wires, entries, after, strict=True)
        ]

    async def _look_up(self, note: AmendmentNote) -> UnderWay:
        """What the entry of a note says, if it is stored. Its message may be deleted before it is edited."""
        wire = await self._log.find_key(note.chat_id, note.client_key)
        entry = decode_entry(wire) if wire is not None else None
        if entry is None or not entry.target_id:
            return UnderWay()
        if entry.kind == DELETE:
            return UnderWay(deleted={entry.target_id})
        if entry.kind != EDIT:
            return UnderWay()
        page = await self._log.read(note.chat_id, note.target - 1, 1)
        message = decode_entry(page.entries[0]) if page.entries else None
        if message is None or message.message_id != entry.target_id:
            return UnderWay()
        return UnderWay([entry], {entry.target_id} if message.deleted is True else set())


def amended_log(engine: Engine) -> Log:
    """The log of an engine for those who read what people wrote."""
    return AmendedLog(engine.log, Amendments(engine.records))
