"""How each kind of record is stored in the tables of Cassandra.

What conditions write is put under conditions here, too: a plain write by a clock that is ahead would hide
the next one. What effects write is put with the time of the chat's last position: the next change is later.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import cast

import msgspec

from parley.clock import MS_PER_SECOND, Clock
from parley.concurrency import map_concurrently
from parley.core.deliveries import DeliveryQueue
from parley.errors import StoreUnavailable
from parley.model import (
    ChatMember,
    Notify,
    Role,
)
from parley.store.cassandra.chat_state import ATTEMPTS_MAX, HINT, READ_CHAT, READ_FENCE
from parley.store.cassandra.connection import Row
from parley.store.cassandra.consents import CassandraConsents
from parley.store.cassandra.counters import LogCounters
from parley.store.cassandra.cursors import RAISE_ACKED, RAISE_READ
from parley.store.cassandra.deliveries import CassandraDeliveryQueues
from parley.store.cassandra.effects import PUT_MEMBER, chat_in
from parley.store.cassandra.member_states import READ_STATE
from parley.store.cassandra.member_states import SET as SET_SETTINGS
from parley.store.cassandra.schema import (
    CHATS,
    DELIVERY,
    DEVICES,
    DIRECT_CHATS,
    LOG,
    MEMBERSHIPS,
    QUEUES,
)
from parley.store.records import (
    ChatRecord,
    CursorRecord,
    MemberRecord,
    MemberStateRecord,
    Record,
)

ROWS_PER_PAGE = 500
WRITES_AT_ONCE_MAX = 32

PUT_CHAT = (
    f"INSERT INTO {CHATS} (chat_id, record, direct_key, title, read_receipts, updated_at, member_count,"
    " owner_count, announcement_only, slow_mode_seconds)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?"
)
SET_EPOCH = f"UPDATE {CHATS} USING TIMESTAMP ? SET epoch = ? WHERE chat_id = ?"
PUT_JOINED = f"UPDATE {DELIVERY} USING TIMESTAMP ? SET joined_sequence = ? WHERE user_id = ? AND chat_id = ?"
PUT_STATE = (
    f"UPDATE {DELIVERY} USING TIMESTAMP ? SET has_left = ?, left_sequence = ?, is_unasked = ?, copied_at = ?"
    " WHERE user_id = ? AND chat_id = ?"
)

Reader = Callable[[list[Row]], Awaitable[list[Record]]]

encode = msgspec.json.Encoder().encode

IN_ONE_COLUMN: dict[type[Record], str] = {
    DeliveryQueue: QUEUES,
}
"""Tables whose rows are one record each, as JSON."""


class RecordRows:
    def __init__(
        self,
        counters: LogCounters,
        consents: CassandraConsents,
        queues: CassandraDeliveryQueues,
        clock: Clock,
    ) -> None:
        self._counters = counters
        self._states = counters.states
        self._cassandra = counters.states.cassandra
        self._consents = consents
        self._queues = queues
        self._clock = clock
        self._readers: dict[type[Record], tuple[str, Reader]] = {
            MemberRecord: (MEMBERSHIPS, self._members),
            MemberStateRecord: (DELIVERY, _each(_state)),
            CursorRecord: (DEVICES, _each(_cursor)),
        }

    # Reading

    async def read(self, kind: type[Record]) -> AsyncIterator[list[Record]]:
        table = IN_ONE_COLUMN.get(kind)
        table, reader = (table, _each(_decoded(kind))) if table is not None else self._readers[kind]
        async for rows in self._pages(table):
            yield await reader(rows)

    def _pages(self, table: str) -> AsyncIterator[list[Row]]:
        return self._cassandra.pages(f"SELECT * FROM {table}", page_size=ROWS_PER_PAGE)

    async def chats(self, chat_ids: Sequence[str] | None) -> AsyncIterator[list[ChatRecord]]:
        pages = self._pages(CHATS) if chat_ids is None else self._cassandra.pages_of(READ_CHAT, chat_ids)
        async for rows in pages:
            known = [row for row in rows if row["record"] is not None]
            yield await map_concurrently(self._chat, known, WRITES_AT_ONCE_MAX)

    async def _chat(self, row: Row) -> ChatRecord:
        """Changes that are pending get their effects first: the rows of members are read later."""
        chat_id: str = row["chat_id"]
        bucket, fence = await self._counters.fence(chat_id)
        if fence.get("pending") is not None:
            await self._states.refresh_fence(self._states.new_state(chat_id, bucket))
            row = await self._cassandra.row(READ_CHAT, chat_id) or row
        return ChatRecord(
            chat=chat_in(row),
            direct_key=row["direct_key"],
            counter=(await self._counters.read(chat_id)).last,
            member_count=row["member_count"] or 0,
            owner_count=row["owner_count"] or 0,
            recovered_at=fence.get("recovered_at"),
            recovered_from_sequence=fence.get("recovered_from_sequence"),
        )

    async def _members(self, rows: list[Row]) -> list[Record]:
        chat_ids = [(chat_id,) for chat_id in dict.fromkeys(row["chat_id"] for row in rows)]
        chats = {row["chat_id"]: row for row in await self._cassandra.rows_of(READ_CHAT, chat_ids)}
        known = [row for row in rows if chats.get(row["chat_id"], {}).get("record") is not None]
        return [
            MemberRecord(
                chat_id=row["chat_id"],
                member=ChatMember(
                    row["user_id"], Role(row["role"]), row["joined_at"], row["joined_sequence"]
                ),
            )
            for row in known
        ]

    # Writing

    async def write(self, records: Sequence[Record]) -> None:
        """Records of one kind."""
        match records[0]:
            case MemberRecord() | MemberStateRecord():
                some = cast("Sequence[MemberRecord | MemberStateRecord]", records)
                times = await self._times(record.chat_id for record in some)
                await map_concurrently(
                    lambda record: self._put_of_chat(record, times[record.chat_id]), some, WRITES_AT_ONCE_MAX
                )
            case _:
                await map_concurrently(self._put, records, WRITES_AT_ONCE_MAX)

    async def _put(self, record: Record) -> None:
        match record:
            case ChatRecord():
                await self._put_chat(record)
            case CursorRecord():
                place = {"user_id": record.user_id, "device_id": record.device_id, "chat_id": record.chat_id}
                await self._replace(DEVICES, place, {"last_acked_sequence": record.last_acked_sequence})
            case DeliveryQueue():
                await self._queues.put(record)
            case _:
                raise TypeError(f"{type(record).__name__} is put with others of its chat")

    async def _replace(self, table: str, key: Mapping[str, object], columns: Mapping[str, object]) -> None:
        """Under a condition that holds: the row is new, or it is there."""
        names, marks = ", ".join([*key, *columns]), ", ".join("?" * (len(key) + len(columns)))
        insert = f"INSERT INTO {table} ({names}) VALUES ({marks}) IF NOT EXISTS"
        if (await self._cassandra.repeat((insert, (*key.values(), *columns.values())))).is_applied:
            return
        sets, where = (
            ", ".join(f"{name} = ?" for name in columns),
            " AND ".join(f"{name} = ?" for name in key),
        )
        update = f"UPDATE {table} SET {sets} WHERE {where} IF EXISTS"
        await self._cassandra.repeat((update, (*columns.values(), *key.values())))

    # Chats

    async def _put_chat(self, record: ChatRecord) -> None:
        """All of its log counts as resolved, and as published. Buckets before the last one are closed."""
        chat, through = record.chat, record.counter or 0
        chat_id, bucket = chat.chat_id, self._states.bucket_of(through)
        for below in range(bucket):
            await self._put_fence(chat_id, below, {"is_closed": True})
        fence = {
            "is_closed": False,
            "epoch": chat.epoch,
            "revision": self._consents.make_revision(),
            "sequence_counter": record.counter,
            "written_through": record.counter,
            "last_sequence": through,
            "resolved_through": through,
            "published_through": through,
            "recovered_at": record.recovered_at,
            "recovered_from_sequence": record.recovered_from_sequence,
        }
        await self._put_fence(chat_id, bucket, fence)
        if record.counter is not None and self._counters.allocator is not None:
            await self._counters.allocator.restore(chat_id, record.counter)
        await self._put_chat_row(record, through + 1)
        await self._cassandra.write(HINT, bucket + 1, bucket, chat_id)

    async def _put_fence(self, chat_id: str, bucket: int, sets: Mapping[str, object]) -> None:
        for _ in range(ATTEMPTS_MAX):
            before = await self._cassandra.row(READ_FENCE, chat_id, bucket) or {}
            columns = {**sets, "trimmed_through": before.get("trimmed_through") or 0}
            setting = ", ".join(f"{name} = ?" for name in columns)
            cql = f"UPDATE {LOG} SET {setting} WHERE chat_id = ? AND bucket = ? IF is_closed = ?"
            values = (*columns.values(), chat_id, bucket, before.get("is_closed"))
            if (await self._cassandra.repeat((cql, values))).is_applied:
                return
        raise StoreUnavailable("the chat is being written to by too many at once")

    async def _put_chat_row(self, record: ChatRecord, time: int) -> None:
        chat = record.chat
        row = (
            chat.chat_id,
            encode(chat),
            record.direct_key,
            chat.title,
            chat.read_receipts.value,
            chat.updated_at,
            record.member_count,
            record.owner_count,
            chat.announcement_only,
            chat.slow_mode_seconds,
            time,
        )
        await self._cassandra.write(PUT_CHAT, *row)
        await self._cassandra.write(SET_EPOCH, chat.epoch, chat.epoch, chat.chat_id)
        if record.direct_key is not None:
            await self._replace(DIRECT_CHATS, {"direct_key": record.direct_key}, {"chat_id": chat.chat_id})

    async def _times(self, chat_ids: Iterable[str]) -> dict[str, int]:
        """The times of writes that any later change of these chats is later than."""
        asked = list(dict.fromkeys(chat_ids))
        found = await map_concurrently(self._counters.read, asked, WRITES_AT_ONCE_MAX)
        return {chat_id: (counter.last or 0) + 1 for chat_id, counter in zip(asked, found, strict=True)}

    async def _put_of_chat(self, record: MemberRecord | MemberStateRecord, time: int) -> None:
        if isinstance(record, MemberStateRecord):
            return await self._put_state(record, time)
        member, chat_id = record.member, record.chat_id
        row = (chat_id, member.user_id, member.role.value, member.joined_at, member.joined_sequence, time)
        await self._cassandra.write(PUT_MEMBER, *row)
        await self._cassandra.write(PUT_JOINED, time, member.joined_sequence, member.user_id, chat_id)
        return None

    async def _put_state(self, record: MemberStateRecord, time: int) -> None:
        """Positions have themselves as times, as always."""
        place, now = (record.user_id, record.chat_id), self._clock() // MS_PER_SECOND
        state = (record.has_left, record.left_sequence, record.is_unasked, now)
        await self._cassandra.write(PUT_STATE, time, *state, *place)
        if acked := record.last_acked_sequence:
            await self._cassandra.write(RAISE_ACKED, acked, acked, record.delivered_at, *place)
        if read := record.read_up_to:
            await self._cassandra.write(RAISE_READ, read, read, record.read_at, *place)
        settings = (record.muted_until, record.notify.value)
        for _ in range(ATTEMPTS_MAX):
            row = await self._cassandra.row(READ_STATE, *place) or {}
            changes, notify = row.get("setting_changes"), row.get("notify") or Notify.ALL.value
            if settings == (row.get("muted_until"), notify):
                return
            await self._cassandra.repeat((SET_SETTINGS, (*settings, (changes or 0) + 1, *place, changes)))
        raise StoreUnavailable("a row of a chat is being written to by too many at once")


# Reading rows


def _each(record_in: Callable[[Row], Record | None]) -> Reader:
    """A reader of rows that need no others."""

    async def read(rows: list[Row]) -> list[Record]:
        return [record for row in rows if (record := record_in(row)) is not None]

    return read


def _decoded(kind: type[Record]) -> Callable[[Row], Record | None]:
    decode = msgspec.json.Decoder(kind).decode
    return lambda row: decode(row["record"]) if row["record"] is not None else None


def _state(row: Row) -> Record | None:
    if row["has_left"] is None:
        return None
    return MemberStateRecord(
        user_id=row["user_id"],
        chat_id=row["chat_id"],
        last_acked_sequence=row["last_acked_sequence"] or 0,
        delivered_at=row["delivered_at"],
        read_up_to=row["read_up_to"] or 0,
        read_at=row["read_at"],
        has_left=row["has_left"],
        left_sequence=row["left_sequence"] or 0,
        muted_until=row["muted_until"],
        notify=Notify(row["notify"] or Notify.ALL),
        is_unasked=bool(row["is_unasked"]) and not row["has_left"],
    )


def _cursor(row: Row) -> Record | None:
    if row["last_acked_sequence"] is None:
        return None
    return CursorRecord(
        user_id=row["user_id"],
        device_id=row["device_id"],
        chat_id=row["chat_id"],
        last_acked_sequence=row["last_acked_sequence"],
    )
