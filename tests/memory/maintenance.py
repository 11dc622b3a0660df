"""The ports of an operator in memory: `Inspection` and `Repairs`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TypeVar

from parley.errors import CounterMissingError
from parley.store.invariants import Breach, NoSuchChat
from parley.store.rows import (
    ChatRow,
    CounterRow,
    EntryRow,
    KeyRow,
    LogChunk,
    MemberRow,
    PositionRow,
    Remains,
    Repair,
)
from parley.store.rules import direct_key
from tests.memory.tables import MemoryChat, Tables

ROWS_PER_PAGE = 500

T = TypeVar("T")


def pages(rows: list[T]) -> Iterator[list[T]]:
    for start in range(0, len(rows), ROWS_PER_PAGE):
        yield rows[start : start + ROWS_PER_PAGE]


class MemoryInspection:
    not_shown = frozenset({"schema", "file_integrity"})
    chats_at_once_max = 1

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def chat_count(self) -> int:
        return len(self._tables.chats)

    async def chats(self, chat_ids: Sequence[str] | None) -> AsyncIterator[list[ChatRow]]:
        rows = [
            ChatRow(
                chat_id=record.chat.chat_id,
                chat_type=record.chat.chat_type.value,
                epoch=record.chat.epoch,
                direct_key=direct_key(list(record.pair)) if record.pair else None,
                is_keyed=bool(record.pair),
                trimmed_through=record.trimmed,
                archive=record.mark,
            )
            for record in self._tables.chats.values()
            if chat_ids is None or record.chat.chat_id in chat_ids
        ]
        for page in pages(rows):
            yield page

    async def members(self, chat: ChatRow) -> AsyncIterator[list[MemberRow]]:
        tables = self._tables
        rows = [
            MemberRow(
                user_id=user_id,
                role=member.role.value,
                joined_sequence=member.joined_sequence,
                has_account=tables.has_account(user_id),
                in_overview=(user_id, chat.chat_id) in tables.states,
            )
            for user_id, member in sorted(tables.chats[chat.chat_id].members.items())
        ]
        for page in pages(rows):
            yield page

    async def log(self, chat: ChatRow) -> AsyncIterator[LogChunk]:
        record = self._tables.chats[chat.chat_id]
        keys = {sequence: key for key, sequence in record.keys.items()}
        rows = [
            EntryRow(sequence, True)
            if entry is None
            else EntryRow(
                sequence,
                False,
                entry.kind,
                entry if sequence in record.wires else None,
                message_id=entry.message_id,
                sender_id=entry.sender_id,
                client_key=keys.get(sequence),
            )
            for sequence, entry in sorted(record.entries.items())
        ]
        *most, last = list(pages(rows)) or [[]]
        for page in most:
            yield LogChunk(page, open=dict(record.taken))
        end = CounterRow(record.counter, change=record.change, change_last=self._tables.changes)
        yield LogChunk(last, open=dict(record.taken), end=end)

    async def keys(self, chat: ChatRow) -> AsyncIterator[list[KeyRow]]:
        record = self._tables.chats[chat.chat_id]
        for page in pages(sorted(key for key in record.keys.items() if key[1] > record.trimmed)):
            yield [KeyRow(*one) for one in page]

    async def positions(self, chat_ids: Sequence[str] | None) -> AsyncIterator[list[PositionRow]]:
        chosen = self._tables.chats.keys() & (self._tables.chats if chat_ids is None else chat_ids)
        devices = [
            ("user_device_cursors", chat_id, f"{user_id}/{device_id}", acked, 0)
            for (user_id, device_id, chat_id), acked in self._tables.devices.items()
        ]
        people = [
            ("delivery_state", chat_id, user_id, state.delivered[0], state.read[0])
            for (user_id, chat_id), state in self._tables.states.items()
        ]
        for page in pages([self._position(*row) for row in devices + people if row[1] in chosen]):
            yield page

    def _position(self, table: str, chat_id: str, whose: str, acked: int, read: int) -> PositionRow:
        record = self._tables.chats[chat_id]
        is_stored = acked <= record.trimmed or acked in record.entries
        return PositionRow(table, chat_id, whose, acked, read, is_stored, record.last)

    async def own_breaches(self, chat_ids: Sequence[str] | None, *, whole: bool) -> AsyncIterator[Breach]:
        for breach in list[Breach]():
            yield breach


class MemoryRepairs:
    may_raise = False

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def _record(self, chat_id: str) -> MemoryChat:
        record = self._tables.chats.get(chat_id)
        if record is None:
            raise NoSuchChat(f"there is no chat {chat_id}")
        return record

    async def chats_without_counter(self) -> list[str]:
        return [chat_id for chat_id, record in self._tables.chats.items() if record.counter is None]

    async def remains(self, chat_id: str) -> Remains:
        record = self._record(chat_id)
        states = [state for (_, at), state in self._tables.states.items() if at == chat_id]
        devices = [acked for (_, _, at), acked in self._tables.devices.items() if at == chat_id]
        entries = max((at for at, entry in record.entries.items() if entry is not None), default=0)
        return Remains(
            chat_id=chat_id,
            counter=record.counter,
            entries=entries,
            voids=record.last if record.last > entries else 0,
            open_allocations=max(record.taken, default=0),
            keys=max(record.keys.values(), default=0),
            trimmed=record.trimmed,
            device_cursors=max(devices, default=0),
            delivery_state=max([max(state.delivered[0], state.read[0]) for state in states], default=0),
        )

    async def holes(self, chat_id: str, first: int, last: int) -> list[tuple[int, int]]:
        record, found = self._record(chat_id), list[tuple[int, int]]()
        for at in range(max(first, record.trimmed + 1), last + 1):
            if at in record.entries or at in record.taken:
                continue
            start = found.pop()[0] if found and found[-1][1] == at - 1 else at
            found.append((start, at))
        return found

    async def write(self, repair: Repair) -> int:
        record = self._record(repair.chat_id)
        if repair.counter_is_lost != (record.counter is None):
            raise CounterMissingError("the counter came back, or was lost, meanwhile; run this again")
        if record.counter is None:
            record.counter = repair.counter
        for first, last in repair.voids:
            first = max(first, record.trimmed + 1)
            for sequence in {*range(first, last + 1)} - record.entries.keys():
                record.resolve(sequence, None)
        record.change = self._tables.next_change()
        return record.counter

    def how_to_delete_counter(self, chat_id: str) -> str:
        return f"tables.chats[{chat_id!r}].counter = None"
