"""The port `Transfer` in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from parley import ids
from parley.core.deliveries import DeliveryQueue
from parley.model import StoredEntry
from parley.store.records import ChatRecord, CursorRecord, MemberRecord, MemberStateRecord, Record
from parley.store.rules import direct_key
from parley.wire.frames import Entry
from tests.memory.maintenance import pages
from tests.memory.tables import MemoryChat, MemoryState, Tables

decode_entry = msgspec.json.Decoder(Entry).decode


class MemoryTransfer:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def chats(self, chat_ids: Sequence[str] | None = None) -> AsyncIterator[list[ChatRecord]]:
        for page in pages(list(_chats(self._tables))):
            yield [one for one in page if chat_ids is None or one.chat.chat_id in chat_ids]

    async def records(self, kind: type[Record]) -> AsyncIterator[list[Record]]:
        for page in pages(list(READERS[kind](self._tables))):
            yield page

    async def put(self, records: Sequence[Record]) -> None:
        for record in records:
            put(self._tables, record)

    async def positions(self, chat_id: str, after: int) -> AsyncIterator[list[StoredEntry]]:
        chat = self._tables.chats[chat_id]
        found = [sequence for sequence in sorted(chat.entries) if sequence > after]
        for page in pages(found):
            yield [StoredEntry(sequence, chat.wires.get(sequence)) for sequence in page]

    async def put_positions(self, chat_id: str, positions: Sequence[StoredEntry]) -> None:
        chat = self._tables.chats[chat_id]
        for position in positions:
            if position.sequence in chat.entries:
                continue
            entry = decode_entry(position.wire) if position.wire is not None else None
            chat.resolve(position.sequence, entry)
            key = ids.client_key(entry.client_message_id or "") if entry is not None else None
            if key is not None:
                chat.keys[key] = position.sequence

    async def log_ends(self, chat_ids: Sequence[str]) -> dict[str, int]:
        return {chat_id: self._tables.chats[chat_id].last for chat_id in chat_ids}

    async def settle(self, groups: Sequence[str], now_ms: int) -> None:
        self._renew_changes(now_ms)
        self._tables.published |= {chat_id: row.head for chat_id, row in self._tables.chats.items()}

    async def begin_anew(self, now_ms: int) -> int:
        for row in self._tables.chats.values():
            row.chat = replace(row.chat, epoch=max(row.chat.epoch + 1, now_ms // 1_000))
        self._renew_changes(now_ms)
        return len(self._tables.chats)

    def _renew_changes(self, now_ms: int) -> None:
        self._tables.changes = max(self._tables.changes + 1, now_ms)
        for chat in self._tables.chats.values():
            chat.change = self._tables.changes
        for state in self._tables.states.values():
            state.change = self._tables.changes


# Reading


def _chats(tables: Tables) -> Iterable[ChatRecord]:
    for row in tables.chats.values():
        yield ChatRecord(
            chat=row.chat,
            direct_key=direct_key(list(row.pair)) if row.is_direct else None,
            counter=row.counter,
            member_count=len(row.members),
            owner_count=sum(member.role == "owner" for member in row.members.values()),
        )


def _states(tables: Tables) -> Iterable[Record]:
    for (user_id, chat_id), state in tables.states.items():
        yield MemberStateRecord(
            user_id=user_id,
            chat_id=chat_id,
            last_acked_sequence=state.delivered[0],
            delivered_at=state.delivered[1],
            read_up_to=state.read[0],
            read_at=state.read[1],
            has_left=state.left_at is not None,
            left_sequence=state.left_at or 0,
            muted_until=state.muted_until,
            notify=state.notify,
            is_unasked=user_id in tables.chats[chat_id].unasked,
        )


READERS: dict[type[Record], Callable[[Tables], Iterable[Any]]] = {
    MemberRecord: lambda tables: (
        MemberRecord(chat_id=chat_id, member=member)
        for chat_id, row in tables.chats.items()
        for member in row.members.values()
    ),
    MemberStateRecord: _states,
    CursorRecord: lambda tables: (
        CursorRecord(user_id=user_id, device_id=device_id, chat_id=chat_id, last_acked_sequence=at)
        for (user_id, device_id, chat_id), at in tables.devices.items()
    ),
    DeliveryQueue: lambda tables: tables.queues.values(),
}


# Writing


def put(tables: Tables, record: Record) -> None:
    match record:
        case ChatRecord(chat=chat):
            row = tables.chats.setdefault(chat.chat_id, MemoryChat(chat))
            row.chat, row.counter = chat, record.counter
            row.pair = tuple(record.direct_key.split("|")) if record.direct_key is not None else ()
        case MemberRecord(chat_id=chat_id, member=member):
            tables.chats[chat_id].members[member.user_id] = member
        case MemberStateRecord(user_id=user_id, chat_id=chat_id):
            tables.states[user_id, chat_id] = MemoryState(
                tables.changes,
                record.left_sequence if record.has_left else None,
                (record.last_acked_sequence, record.delivered_at),
                (record.read_up_to, record.read_at),
                record.muted_until,
                record.notify,
            )
            if record.is_unasked:
                tables.chats[chat_id].unasked.add(user_id)
        case CursorRecord():
            tables.devices[record.user_id, record.device_id, record.chat_id] = record.last_acked_sequence
        case DeliveryQueue():
            tables.queues[record.chat_id, record.recipient] = record
