"""The `Inspection` port on Cassandra: the rows of the tables, while nodes may write.

A batch is seen as a whole or not at all, because it is in one partition, and entries are never taken away.
So a log is read after its counter, and everything up to that must be there. The effects of a change may
still be on their way: rows that contradict the chat are read again before they are told (`is_lasting`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import msgspec

from parley import ids
from parley.errors import ConfigError
from parley.model import ChatType, Role
from parley.store.cassandra.chat_state import READ_CHAT, READ_DIRECT, READ_KEYS
from parley.store.cassandra.client import is_key
from parley.store.cassandra.connection import Row
from parley.store.cassandra.counters import LogCounters
from parley.store.cassandra.directory import READ_MEMBERS, READ_ROLE
from parley.store.cassandra.effects import chat_in
from parley.store.cassandra.entry_changes import mark_in
from parley.store.cassandra.log_rows import READ_CLOSED_KEY, VOID, LogRows
from parley.store.cassandra.member_states import READ_STATE
from parley.store.cassandra.people import read_people
from parley.store.cassandra.schema import CHATS, DELIVERY, DEVICES, DIRECT_CHATS, MEMBERSHIPS
from parley.store.invariants import Breach, StoreUnreadable
from parley.store.rows import ChatRow, CounterRow, EntryRow, KeyRow, LogChunk, MemberRow, PositionRow
from parley.wire.codec import decode_entry
from parley.wire.frames import Entry

ROWS_PER_PAGE = 500
LOOK_AGAIN_SECONDS = (0.1, 0.5, 1.0)
"""Longer than the effects of a change take."""
FROM_BACKUP = "restore a backup"
COUNT_MEMBERS = "set member_count and owner_count of the chat in chats to what chat_memberships holds"
READ_DEVICES_OF = f"SELECT * FROM {DEVICES} WHERE user_id = ?"


class CassandraInspection:
    not_shown = frozenset(
        {
            "allocation_monotonicity",  # an allocated number leaves no trace until it is written
            "add_operation_atomicity",
            "change_order",  # changes of different chats are not numbered
            "file_integrity",  # there is no file
        }
    )
    chats_at_once_max = 8

    def __init__(
        self,
        counters: LogCounters,
        rows: LogRows,
        connect: Callable[[], Awaitable[None]],
    ) -> None:
        self._counters = counters
        self._states = counters.states
        self._cassandra = counters.states.cassandra
        self._rows = rows
        self._connect = connect

    async def _open(self) -> None:
        """StoreUnreadable unless the tables are those of this version."""
        try:
            await self._connect()
        except ConfigError as error:
            raise StoreUnreadable(Breach("schema", str(error), "run: parley store init")) from error

    async def chat_count(self) -> int:
        await self._open()
        row = await self._cassandra.row(f"SELECT COUNT(record) AS total FROM {CHATS}")
        return int((row or {}).get("total", 0))

    async def chats(self, chat_ids: Sequence[str] | None) -> AsyncIterator[list[ChatRow]]:
        await self._open()
        async for rows in self._chat_rows(chat_ids):
            yield [await self._chat(row) for row in rows]

    async def _chat_rows(self, chat_ids: Sequence[str] | None) -> AsyncIterator[list[Row]]:
        pages = self._cassandra.pages(f"SELECT * FROM {CHATS}", page_size=ROWS_PER_PAGE)
        if chat_ids is not None:
            pages = self._cassandra.pages_of(READ_CHAT, chat_ids)
        async for rows in pages:
            yield [row for row in rows if row["record"] is not None]

    async def _chat(self, row: Row) -> ChatRow:
        chat, key = chat_in(row), row["direct_key"]
        direct = await self._cassandra.row(READ_DIRECT, key) if key else None
        is_direct = chat.chat_type is ChatType.DIRECT
        bucket, fence = await self._counters.fence(chat.chat_id)
        start = bucket * self._states.bucket_positions
        return ChatRow(
            chat_id=chat.chat_id,
            chat_type=chat.chat_type.value,
            epoch=chat.epoch,
            direct_key=key,
            is_keyed=not is_direct or (direct is not None and direct["chat_id"] == chat.chat_id),
            resolved_through=max(start, fence.get("resolved_through") or 0),
            trimmed_through=row["trimmed_through"] or 0,
            archive=mark_in(row),
        )

    # Members

    async def members(self, chat: ChatRow) -> AsyncIterator[list[MemberRow]]:
        await self._open()
        async for rows in self._cassandra.pages(READ_MEMBERS, chat.chat_id, "", page_size=ROWS_PER_PAGE):
            yield [await self._member(chat.chat_id, row) for row in rows]

    async def _member(self, chat_id: str, row: Row) -> MemberRow:
        async def is_homeless() -> bool:
            place = await self._cassandra.row(READ_STATE, row["user_id"], chat_id)
            if place is not None and place["has_left"] is False:
                return False
            return await self._cassandra.row(READ_ROLE, chat_id, row["user_id"]) is not None

        people = await read_people(self._cassandra, [row["user_id"]])
        return MemberRow(
            user_id=row["user_id"],
            role=str(row["role"]),
            joined_sequence=row["joined_sequence"] or 0,
            has_account=row["user_id"] in people,
            in_overview=not await is_lasting(is_homeless),
        )

    # The log

    async def log(self, chat: ChatRow) -> AsyncIterator[LogChunk]:
        """The counter is read before the entries: numbers that were written by then must be there."""
        await self._open()
        before, held = await self._counters.read(chat.chat_id), list[EntryRow]()
        bucket, trimmed = self._states.bucket_of(chat.trimmed_through + 1), chat.trimmed_through
        while True:
            last, _ = await self._counters.fence(chat.chat_id)
            keys = await self._keys_in(chat.chat_id, bucket)
            certain = max(before.written, chat.resolved_through, last * self._states.bucket_positions)
            async for rows in self._rows.pages(chat.chat_id, bucket, ROWS_PER_PAGE):
                if held:
                    yield LogChunk(held, certain_through=certain, trimmed_through=trimmed)
                # Read after the rows: what is missing among them was trimmed by then.
                trimmed = await self._rows.trimmed(chat.chat_id)
                kept = [row for row in rows if row["sequence"] > trimmed]
                held = [await self._entry(chat.chat_id, row, keys, bucket < last) for row in kept]
            if bucket >= last:
                break
            bucket += 1
        after = await self._counters.read(chat.chat_id)
        given = after.written if self._counters.is_atomic else after.last or 0
        end = CounterRow(after.last, given_through=given)
        yield LogChunk(held, certain_through=certain, trimmed_through=trimmed, end=end)

    async def _keys_in(self, chat_id: str, bucket: int) -> dict[bytes, int]:
        rows = await self._cassandra.rows(READ_KEYS, chat_id, bucket)
        return {row["client_key"]: row["stored_at"] for row in rows}

    async def _entry(self, chat_id: str, row: Row, keys: dict[bytes, int], is_closed: bool) -> EntryRow:
        if row["kind"] == VOID:
            return EntryRow(row["sequence"], True, has_content=row["wire"] is not None)
        entry, damage = _decoded(row["wire"])
        found = EntryRow(
            row["sequence"],
            False,
            kind=row["kind"],
            entry=entry,
            damage=damage,
            message_id=row["message_id"],
            sender_id=row["sender_id"],
        )
        key = ids.client_key(entry.client_message_id or "") if entry is not None else None
        if key is not None:
            found.key_sequence = keys.get(key)
            if is_closed:
                kept = await self._cassandra.row(READ_CLOSED_KEY, chat_id, key)
                found.key_sequence = kept["stored_at"] if kept is not None else found.key_sequence
        return found

    async def keys(self, chat: ChatRow) -> AsyncIterator[list[KeyRow]]:
        await self._open()
        last, _ = await self._counters.fence(chat.chat_id)
        for bucket in range(last + 1):
            pages = self._cassandra.pages(READ_KEYS, chat.chat_id, bucket, page_size=ROWS_PER_PAGE)
            async for rows in pages:
                yield [await self._key(chat.chat_id, row) for row in rows]

    async def _key(self, chat_id: str, key: Row) -> KeyRow:
        row = await self._rows.at(chat_id, key["stored_at"])
        if row is None and key["stored_at"] <= await self._rows.trimmed(chat_id):
            return KeyRow(key["client_key"], key["stored_at"], True, key["message_id"] or "")
        entry = _decoded(row["wire"])[0] if row is not None else None
        own = ids.client_key(entry.client_message_id or "") if entry is not None else None
        agrees = row is not None and (
            (row["message_id"], row["sender_id"]) == (key["message_id"], key["sender_id"])
            and (entry is None or own == key["client_key"])
        )
        return KeyRow(key["client_key"], key["stored_at"], agrees, key["message_id"] or "")

    # Positions

    async def positions(self, chat_ids: Sequence[str] | None) -> AsyncIterator[list[PositionRow]]:
        await self._open()
        if chat_ids is None:
            for table in (DELIVERY, DEVICES):
                async for rows in self._cassandra.pages(f"SELECT * FROM {table}", page_size=ROWS_PER_PAGE):
                    yield [await self._position(table, row) for row in rows]
            return
        for chat_id in filter(is_key, dict.fromkeys(chat_ids)):
            async for members in self._cassandra.pages(READ_MEMBERS, chat_id, ""):
                for member in members:
                    user_id = member["user_id"]
                    states = await self._cassandra.rows(READ_STATE, user_id, chat_id)
                    yield [await self._position(DELIVERY, row) for row in states]
                    devices = await self._cassandra.rows(READ_DEVICES_OF, user_id)
                    of_chat = [row for row in devices if row["chat_id"] == chat_id]
                    yield [await self._position(DEVICES, row) for row in of_chat]

    async def _position(self, table: str, row: Row) -> PositionRow:
        whose, read = row["user_id"], 0
        if table == DEVICES:
            whose = f"{whose}/{row['device_id']}"
        else:
            read = row["read_up_to"] or 0
        acked, chat_id = row["last_acked_sequence"] or 0, row["chat_id"]
        found = PositionRow(
            table, chat_id, whose, acked, read, is_stored=await self._is_stored(chat_id, acked)
        )
        if not found.is_stored or not await self._is_stored(chat_id, read):
            found.log_end = await self._log_end(chat_id)
            if not found.is_stored:
                found.is_stored = await self._cassandra.row(READ_CHAT, chat_id) is None
        return found

    async def _is_stored(self, chat_id: str, sequence: int) -> bool:
        """Whether a position is in its log, or was trimmed from it; also before its first."""
        if sequence < 1 or await self._rows.at(chat_id, sequence) is not None:
            return True
        return sequence <= await self._rows.trimmed(chat_id)

    async def _log_end(self, chat_id: str) -> int:
        bucket, _ = await self._counters.fence(chat_id)
        last = await self._states.last_position(self._states.new_state(chat_id, bucket))
        return max(last, await self._rows.trimmed(chat_id))

    # What only this engine can break

    async def own_breaches(self, chat_ids: Sequence[str] | None, *, whole: bool) -> AsyncIterator[Breach]:
        await self._open()
        async for rows in self._chat_rows(chat_ids):
            for row in rows:
                if await is_lasting(lambda row=row: self._is_miscounted(row["chat_id"])):  # type: ignore[misc]
                    says = "member_count or owner_count of the chat is wrong"
                    yield Breach("membership", says, COUNT_MEMBERS, row["chat_id"])
        if chat_ids is None:
            async for breach in self._orphans():
                yield breach

    async def _is_miscounted(self, chat_id: str) -> bool:
        members = await self._cassandra.rows(READ_MEMBERS, chat_id, "")
        chat = await self._cassandra.row(READ_CHAT, chat_id) or {}
        owners = sum(row["role"] == Role.OWNER.value for row in members)
        return (chat.get("member_count"), chat.get("owner_count")) != (len(members), owners)

    async def _orphans(self) -> AsyncIterator[Breach]:
        """Rows of chats and people that do not exist: one breach for each missing one."""
        told: set[str] = set()
        tables = {MEMBERSHIPS: "chat_id", DELIVERY: "chat_id", DEVICES: "chat_id", DIRECT_CHATS: "chat_id"}
        for table, column in tables.items():
            async for rows in self._cassandra.pages(f"SELECT {column} FROM {table}", page_size=ROWS_PER_PAGE):
                for chat_id in {row[column] for row in rows if row[column] is not None} - told:
                    row = await self._cassandra.row(READ_CHAT, chat_id)
                    if row is None or row["record"] is None:
                        told.add(chat_id)
                        says = f"{table} has rows of a chat that does not exist"
                        yield Breach("references", says, FROM_BACKUP, chat_id)


def _decoded(wire: bytes | None) -> tuple[Entry | None, str | None]:
    """The entry of a body, and why it cannot be read."""
    if wire is None:
        return None, None
    try:
        return decode_entry(wire), None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return None, str(error)


async def is_lasting(is_broken: Callable[[], Awaitable[bool]]) -> bool:
    """Whether something is broken, and stays so."""
    for pause in LOOK_AGAIN_SECONDS:
        if not await is_broken():
            return False
        await asyncio.sleep(pause)
    return await is_broken()
