"""How each kind of record is stored in the tables of DynamoDB."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, cast

from msgspec.structs import replace

from parley.clock import MS_PER_SECOND, Clock, from_iso
from parley.core.deliveries import DeliveryQueue
from parley.ids import EVENT, Ids
from parley.model import (
    Notify,
)
from parley.store.dynamodb.consents import IS_UNASKED
from parley.store.dynamodb.counters import Counters
from parley.store.dynamodb.delivery_queues import queue_in, queue_key
from parley.store.dynamodb.directory import chat_in, chat_item, counter_item, member_in
from parley.store.dynamodb.driver import Dynamo, Item, Value, map_concurrently, number, retry_unknown
from parley.store.dynamodb.scans import chat_pages, table_pages
from parley.store.dynamodb.schema import (
    CHATS,
    COUNTERS,
    DELIVERY,
    DEVICES,
    MEMBERSHIPS,
    QUEUES,
    device_key,
)
from parley.store.dynamodb.schema import DIRECT_CHATS as DIRECT
from parley.store.records import (
    ChatRecord,
    CursorRecord,
    MemberRecord,
    MemberStateRecord,
    Record,
    columns_of,
    record_of,
)

WRITES_AT_ONCE_MAX = 16
REVISIONS_SINCE_MS = from_iso("2026-01-01T00:00:00.000Z")
"""Revisions of copied rows count seconds from here on: above those that an earlier copy of the row had."""

Items = list[tuple[str, Item]]
"""Items to be written, each with its table."""


class RecordItems:
    def __init__(self, dynamo: Dynamo, counters: Counters, clock: Clock, make_ids: Ids) -> None:
        def make_token() -> str:
            return make_ids.next(EVENT, clock())

        self._dynamo = dynamo
        self._counters = counters
        self._clock = clock
        self._make_token = make_token

    # Reading

    async def chats(self, chat_ids: Sequence[str] | None) -> AsyncIterator[list[ChatRecord]]:
        async for items in chat_pages(self._dynamo, chat_ids):
            yield await map_concurrently(self._chat, items, WRITES_AT_ONCE_MAX)

    async def read(self, kind: type[Record]) -> AsyncIterator[list[Record]]:
        table, record_in = READERS[kind]
        async for items in table_pages(self._dynamo, table):
            missing = await self._never_created(items)
            found = [record_in(item) for item in items if item.get("chat_id") not in missing]
            yield [record for records in found for record in records]

    async def _never_created(self, items: Sequence[Item]) -> set[Any]:
        """Chats whose creation was given up after the rows of their members: readers ignore these rows."""
        early = sorted({str(item["chat_id"]) for item in items if item.get("early")})
        found = await self._dynamo.batch_get(CHATS, [{"chat_id": chat_id} for chat_id in early])
        return set(early) - {item["chat_id"] for item in found}

    async def _chat(self, item: Item) -> ChatRecord:
        chat = chat_in(item)
        counter = await self._dynamo.get(COUNTERS, {"chat_id": chat.chat_id}) or {}
        return ChatRecord(
            chat=chat,
            direct_key=cast("str | None", item.get("direct_key")),
            counter=(await self._counters.read(chat.chat_id)).last,
            member_count=number(item, "member_count"),
            owner_count=number(item, "owner_count"),
            recovered_at=cast("str | None", counter.get("recovered_at")),
            recovered_from_sequence=cast("int | None", counter.get("recovered_from_sequence")),
        )

    # Writing

    async def write(self, records: Sequence[Record]) -> None:
        """Rows by batches; what has writers of its own, one by one."""
        await self._write_items([item for record in records for item in self._items(record)])
        if isinstance(records[0], ChatRecord) and self._counters.allocator is not None:
            await self._each(self._restore_counter, records)

    async def _each(self, write: Callable[[Any], Any], records: Sequence[Record]) -> None:
        await map_concurrently(write, records, WRITES_AT_ONCE_MAX)

    async def _restore_counter(self, record: ChatRecord) -> None:
        assert self._counters.allocator is not None
        if record.counter is not None:
            await self._counters.allocator.restore(record.chat.chat_id, record.counter)

    async def _write_items(self, items: Items) -> None:
        by_table: dict[str, list[Item]] = {}
        for table, item in items:
            by_table.setdefault(table, []).append(item)
        for table, some in by_table.items():
            await retry_unknown(lambda table=table, some=some: self._dynamo.batch_put(table, some))  # type: ignore[misc]

    def _items(self, record: Record) -> Items:
        match record:
            case ChatRecord():
                return self._chat_items(record)
            case MemberRecord():
                return [(MEMBERSHIPS, _member_item(record))]
            case MemberStateRecord():
                return [(DELIVERY, self._state_item(record))]
            case CursorRecord(user_id=user_id, device_id=device_id, chat_id=chat_id):
                at: Item = {"last_acked_sequence": record.last_acked_sequence}
                named: Item = {"device_id": device_id, "chat_id": chat_id}
                return [(DEVICES, device_key(user_id, device_id, chat_id) | named | at)]
            case DeliveryQueue():
                return [(QUEUES, columns_of(record) | queue_key(record.chat_id, record.recipient))]
            case _:
                raise TypeError(f"{type(record).__name__} has a writer of its own")

    def _chat_items(self, record: ChatRecord) -> Items:
        """All of its log counts as resolved, as published, and as having its keys."""
        chat, through = record.chat, record.counter or 0
        revision = self._make_token()
        marks: Item = {"published_through": through}
        made = chat_item(chat, record.direct_key, record.member_count, revision) | marks
        made |= {"owner_count": record.owner_count, "resolved_through": through}
        items: Items = [(CHATS, made)]
        if record.direct_key is not None:
            items.append((DIRECT, {"direct_key": record.direct_key, "chat_id": chat.chat_id}))
        if record.counter is not None and self._counters.allocator is None:
            given: Item = {"sequence_counter": through, "written_through": through}
            audit = _present(
                {
                    "recovered_at": record.recovered_at,
                    "recovered_from_sequence": record.recovered_from_sequence,
                }
            )
            items.append((COUNTERS, counter_item(chat, revision) | given | marks | audit))
        return items

    def _state_item(self, record: MemberStateRecord) -> Item:
        revision: Item = {"revision": (self._clock() - REVISIONS_SINCE_MS) // MS_PER_SECOND}
        return _present(columns_of(record)) | revision


def _present(fields: Mapping[str, Value]) -> Item:
    """Without what is None."""
    return {name: value for name, value in fields.items() if value is not None}


def _member_item(record: MemberRecord) -> Item:
    member = record.member
    return {
        "chat_id": record.chat_id,
        "user_id": member.user_id,
        "role": member.role.value,
        "joined_at": member.joined_at,
        "joined_sequence": member.joined_sequence,
    }


# Reading items


def _member(item: Item) -> list[Record]:
    return [MemberRecord(chat_id=cast(str, item["chat_id"]), member=member_in(item))]


def _state(item: Item) -> list[Record]:
    """Items have no attribute for what is not set."""
    defaults: Item = {
        "last_acked_sequence": 0,
        "read_up_to": 0,
        "has_left": False,
        "left_sequence": 0,
        "notify": Notify.ALL.value,
        IS_UNASKED: False,
    }
    state = record_of(MemberStateRecord, defaults | item)
    return [replace(state, is_unasked=state.is_unasked and not state.has_left)]


READERS: dict[type[Record], tuple[str, Callable[[Item], list[Record]]]] = {
    MemberRecord: (MEMBERSHIPS, _member),
    MemberStateRecord: (DELIVERY, _state),
    CursorRecord: (DEVICES, lambda item: [record_of(CursorRecord, item)]),
    DeliveryQueue: (QUEUES, lambda item: [queue_in(item)]),
}
"""The table of each kind, and what its items hold."""
