"""The `Inspection` port on DynamoDB: the items of the tables, while nodes may write.

A page may hold one half of a transaction and not yet the other. So this module reads tables in an order that
makes false alarms rare, and reads rows that seem broken again before it yields them (`is_lasting`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any, cast

from parley import ids
from parley.clock import MS_PER_DAY, Clock, from_iso
from parley.errors import ConfigError
from parley.model import ChatType
from parley.store.dynamodb.bundles import (
    BUNDLE,
    all_unbundled,
    bundle_across,
    end_of,
    item_at,
    items_at,
    items_of_keys,
    unbundled,
)
from parley.store.dynamodb.counters import Counters
from parley.store.dynamodb.driver import Dynamo, Item, is_valid_key, number
from parley.store.dynamodb.entries import KEY_DAYS, VOID, entry_in, key_of
from parley.store.dynamodb.entry_changes import mark_in
from parley.store.dynamodb.people import USERS, person_key, read_people
from parley.store.dynamodb.references import ReferenceCheck
from parley.store.dynamodb.scans import chat_pages, is_lasting, member_pages, table_pages, text_of
from parley.store.dynamodb.schema import (
    CHATS,
    DELIVERY,
    DEVICES,
    DIRECT_CHATS,
    IMPORTED_IDS,
    KEYS,
    MEMBERSHIPS,
    MESSAGES,
    check_tables,
    item_count,
)
from parley.store.entries import place_in, tag_of
from parley.store.invariants import Breach, StoreUnreadable
from parley.store.rows import ChatRow, CounterRow, EntryRow, KeyRow, LogChunk, MemberRow, PositionRow
from parley.store.rules import STRAY_POSITIONS_MAX

FIELDS = ("kind", "message_id", "sender_id", "content_type", "created_at", "server_timestamp")
"""The attributes of every entry besides its content."""
CONTENTS = ("content", "client_message_id", *FIELDS[1:])
"""Attributes that no void has."""
SEQUENCE = {"#s": "sequence"}


class DynamoInspection:
    not_shown = frozenset(
        {
            "allocation_monotonicity",  # an allocated number leaves no trace until it is written
            "add_operation_atomicity",
            "change_order",  # changes of different chats are not numbered
            "file_integrity",  # there is no file
        }
    )
    chats_at_once_max = 8

    def __init__(self, dynamo: Dynamo, counters: Counters, clock: Clock) -> None:
        self._dynamo = dynamo
        self._counters = counters
        self._clock = clock
        self._is_checked = False

    async def chat_count(self) -> int:
        await self._check_tables()
        return await item_count(self._dynamo, CHATS)

    async def chats(self, chat_ids: Sequence[str] | None) -> AsyncIterator[list[ChatRow]]:
        await self._check_tables()
        async for items in chat_pages(self._dynamo, chat_ids):
            keys = {text_of(item, "direct_key") for item in items if item.get("direct_key")}
            found = await self._dynamo.batch_get(DIRECT_CHATS, [{"direct_key": key} for key in keys])
            keyed = {item["direct_key"]: item["chat_id"] for item in found}
            yield [await self._chat(item, keyed.get(item.get("direct_key"))) for item in items]

    async def _check_tables(self) -> None:
        """Opens the client, once. StoreUnreadable unless the tables are those of this version."""
        if self._is_checked:
            return
        await self._dynamo.open()
        try:
            await check_tables(self._dynamo)
        except ConfigError as error:
            raise StoreUnreadable(Breach("schema", str(error), "run: parley store init")) from error
        self._is_checked = True

    async def _chat(self, item: Item, keyed_chat_id: object) -> ChatRow:
        async def is_elsewhere() -> bool:
            found = await self._dynamo.get(DIRECT_CHATS, {"direct_key": item["direct_key"]})
            return found is None or found.get("chat_id") != item["chat_id"]

        chat_type, key = str(item.get("chat_type")), item.get("direct_key")
        is_direct = chat_type == ChatType.DIRECT.value and key is not None
        is_keyed = not is_direct or keyed_chat_id == item["chat_id"] or not await is_lasting(is_elsewhere)
        return ChatRow(
            chat_id=cast(str, item["chat_id"]),
            chat_type=chat_type,
            epoch=number(item, "epoch"),
            direct_key=None if key is None else text_of(item, "direct_key"),
            is_keyed=is_keyed,
            trimmed_through=number(item, "trimmed_through"),
            archive=mark_in(item),
            resolved_through=number(item, "resolved_through"),
        )

    # Members

    async def members(self, chat: ChatRow) -> AsyncIterator[list[MemberRow]]:
        await self._check_tables()
        async for rows in member_pages(self._dynamo, chat.chat_id):
            accounts = await read_people(self._dynamo, [str(row["user_id"]) for row in rows])
            places = await self._users_in(DELIVERY, [_place(row) for row in rows])
            yield [
                MemberRow(
                    user_id=cast(str, row["user_id"]),
                    role=text_of(row, "role"),
                    joined_sequence=number(row, "joined_sequence"),
                    has_account=row["user_id"] in accounts
                    or not await is_lasting(partial(self._is_without, USERS, _person(row), row)),
                    in_overview=row["user_id"] in places
                    or not await is_lasting(partial(self._is_without, DELIVERY, _place(row), row)),
                )
                for row in rows
            ]

    async def _users_in(self, table: str, keys: list[Item]) -> set[object]:
        """The people with a valid item in a table."""
        items = await self._dynamo.batch_get(table, keys)
        return {item["user_id"] for item in items if not item.get("has_left")}

    async def _is_without(self, table: str, key: Item, member: Item) -> bool:
        """Read both items again: the member may be joining or leaving."""
        found = await self._dynamo.get(table, key)
        if found is not None and not found.get("has_left"):
            return False
        place: Item = {"chat_id": member["chat_id"], "user_id": member["user_id"]}
        return await self._dynamo.get(MEMBERSHIPS, place) is not None

    # The log

    async def log(self, chat: ChatRow) -> AsyncIterator[LogChunk]:
        """Reads the counter before and after the entries: numbers below the first value must be resolved."""
        await self._check_tables()
        before = await self._counters.read(chat.chat_id)
        certain = max(before.written, chat.resolved_through)
        expected, start = chat.trimmed_through + 1, cast("Item | None", None)
        condition, values = "chat_id = :chat", cast(Item, {":chat": chat.chat_id})
        names = None
        if chat.trimmed_through:
            condition, names = f"{condition} AND #s > :trimmed", SEQUENCE
            values[":trimmed"] = chat.trimmed_through
        cut = await bundle_across(self._dynamo, chat.chat_id, expected) if chat.trimmed_through else None
        behind = [] if cut is None else [one for one in unbundled(cut) if number(one, "sequence") >= expected]
        while True:
            page = await self._dynamo.query(MESSAGES, condition, values, names=names, start=start)
            start, after = page.next_key, None
            there, behind = behind + all_unbundled(page.items), []
            through = max([expected - 1, *(number(item, "sequence") for item in there)])
            if start is None:
                after = await self._counters.read(chat.chat_id)
                through = max(through, after.last or 0)
            items, is_certain = await self._with_missing(chat, there, expected, min(through, certain))
            rows = await self._entries(chat, items)
            chunk = LogChunk(rows, certain_through=certain if is_certain else 0)
            expected = through + 1
            if after is not None:
                given = after.written if self._counters.is_atomic else after.last or 0
                chunk.end = CounterRow(after.last, given_through=given)
            yield chunk
            if start is None:
                return

    async def _with_missing(
        self, chat: ChatRow, items: list[Item], first: int, last: int
    ) -> tuple[list[Item], bool]:
        """All items, and whether they are complete: not if the log is trimmed meanwhile."""
        there = {number(item, "sequence") for item in items}
        missing_count = last - first + 1 - sum(first <= sequence <= last for sequence in there)
        if not 0 < missing_count <= STRAY_POSITIONS_MAX:
            return items, True  # nothing is missing, or more than any transaction holds
        missing = [sequence for sequence in range(first, last + 1) if sequence not in there]
        found: list[Item] = []
        is_trimmed = False

        async def is_torn() -> bool:
            nonlocal found, is_trimmed
            now = await self._dynamo.get(CHATS, {"chat_id": chat.chat_id}) or {}
            is_trimmed = number(now, "trimmed_through") >= missing[0] or not now
            places = [(chat.chat_id, sequence) for sequence in missing]
            found = list((await items_at(self._dynamo, places)).values())
            return len(found) < len(missing) and not is_trimmed

        await is_lasting(is_torn)
        return sorted([*items, *found], key=lambda item: number(item, "sequence")), not is_trimmed

    async def _entries(self, chat: ChatRow, items: list[Item]) -> list[EntryRow]:
        tag = tag_of(chat.chat_id)
        rows = [_entry(item, tag) for item in items]
        for item, key_sequence in await self._recent_keys(chat.chat_id, items):
            rows[item].key_sequence = key_sequence
        await self._confirm_imported(chat.chat_id, rows)
        return rows

    async def _confirm_imported(self, chat_id: str, rows: list[EntryRow]) -> None:
        """An id that another engine made leads to its place by an item of its own."""
        foreign = {row.entry.message_id: row for row in rows if row.entry is not None and not row.message_id}
        keys: list[Item] = [{"message_id": message_id} for message_id in foreign]
        for item in await self._dynamo.batch_get(IMPORTED_IDS, keys):
            row = foreign[cast(str, item["message_id"])]
            if (item.get("chat_id"), item.get("sequence")) == (chat_id, row.sequence):
                row.message_id = cast(str, item["message_id"])

    async def _recent_keys(self, chat_id: str, items: list[Item]) -> list[tuple[int, int]]:
        """Where unexpired keys point to: for some days, a message is the only one with its id."""
        since = self._clock() - KEY_DAYS * MS_PER_DAY
        recent: dict[str, int] = {}
        for index, item in enumerate(items):
            key = ids.client_key(str(item.get("client_message_id", "")))
            if key is not None and _ms(str(item.get("created_at"))) > since:
                recent[cast(str, key_of(chat_id, key)["client_message_id"])] = index
        places: list[Item] = [{"chat_id": chat_id, "client_message_id": text} for text in recent]
        found = await self._dynamo.batch_get(KEYS, places)
        return [(recent[cast(str, key["client_message_id"])], number(key, "sequence")) for key in found]

    async def keys(self, chat: ChatRow) -> AsyncIterator[list[KeyRow]]:
        await self._check_tables()
        start: Item | None = None
        while True:
            page = await self._dynamo.query(KEYS, "chat_id = :chat", {":chat": chat.chat_id}, start=start)
            found = await items_of_keys(self._dynamo, page.items)
            yield [
                KeyRow(
                    text_of(key, "client_message_id"),
                    number(key, "sequence"),
                    number(key, "sequence") <= chat.trimmed_through
                    or _agree(key, found.get(number(key, "sequence")))
                    or not await is_lasting(partial(self._differs, key)),
                    text_of(key, "message_id"),
                )
                for key in page.items
            ]
            start = page.next_key
            if start is None:
                return

    async def _differs(self, key: Item) -> bool:
        again = await self._dynamo.get(KEYS, {n: key[n] for n in ("chat_id", "client_message_id")})
        if again is None:
            return False
        return not _agree(again, (await items_of_keys(self._dynamo, [again])).get(number(again, "sequence")))

    # Positions

    async def positions(self, chat_ids: Sequence[str] | None) -> AsyncIterator[list[PositionRow]]:
        await self._check_tables()
        if chat_ids is None:
            for table in (DELIVERY, DEVICES):
                async for items in table_pages(self._dynamo, table):
                    yield await self._positions(table, items)
            return
        for chat_id in filter(is_valid_key, dict.fromkeys(chat_ids)):
            async for members in member_pages(self._dynamo, chat_id):
                places = [_place(row) for row in members]
                yield await self._positions(DELIVERY, await self._dynamo.batch_get(DELIVERY, places))
                for place in places:
                    values: Item = {":user": place["user_id"], ":chat": chat_id}
                    devices = await self._dynamo.query_all(
                        DEVICES, "user_id = :user", values, filter="chat_id = :chat"
                    )
                    yield await self._positions(DEVICES, devices)

    async def _positions(self, table: str, items: list[Item]) -> list[PositionRow]:
        rows = [_position(table, item) for item in items]
        claims = {(row.chat_id, at) for row in rows for at in (row.acked, row.read) if at > 0}
        found = await items_at(self._dynamo, claims)
        missing = {
            claim for claim in claims - found.keys() if await is_lasting(partial(self._is_not_stored, *claim))
        }
        for row in rows:
            row.is_stored = (row.chat_id, row.acked) not in missing
            if not row.is_stored or (row.chat_id, row.read) in missing:
                row.log_end = await self._log_end(row.chat_id)
        return rows

    async def _is_not_stored(self, chat_id: str, sequence: int) -> bool:
        """Whether the position is neither in its log nor trimmed from it."""
        if await item_at(self._dynamo, chat_id, sequence) is not None:
            return False
        chat = await self._dynamo.get(CHATS, {"chat_id": chat_id})
        return chat is not None and sequence > number(chat, "trimmed_through")

    async def _log_end(self, chat_id: str) -> int:
        page = await self._dynamo.query(
            MESSAGES, "chat_id = :chat", {":chat": chat_id}, forward=False, limit=1
        )
        return end_of(page.items[0]) if page.items else 0

    async def own_breaches(self, chat_ids: Sequence[str] | None, *, whole: bool) -> AsyncIterator[Breach]:
        await self._check_tables()
        check = ReferenceCheck(self._dynamo)
        async for breach in check.chat_breaches(chat_ids):
            yield breach
        if chat_ids is None:
            async for breach in check.table_breaches(whole=whole):
                yield breach


def _entry(item: Item, tag: int) -> EntryRow:
    sequence = item.get("sequence")
    if item.get("kind") == VOID:
        return EntryRow(sequence, True, has_content=any(item.get(name) is not None for name in CONTENTS))
    if item.get("kind") == BUNDLE:
        return EntryRow(sequence, False, damage="its bundle cannot be read")
    missing = [name for name in FIELDS if not isinstance(item.get(name), str)]
    if missing:
        return EntryRow(sequence, False, damage=f"it has no {' and no '.join(missing)}")
    if not isinstance(item.get("content"), str):
        return EntryRow(sequence, False)
    entry = entry_in(item | {"epoch": number(item, "epoch")})
    assert entry is not None, "it is not a void"
    is_in_place = place_in(entry.message_id) == (tag, sequence)
    return EntryRow(
        sequence,
        False,
        entry.kind,
        entry,
        message_id=entry.message_id if is_in_place else None,
        sender_id=entry.sender_id,
    )


def _position(table: str, item: Item) -> PositionRow:
    device = f" on {text_of(item, 'device_id')}" if "device_id" in item else ""
    return PositionRow(
        table=table,
        chat_id=cast(str, item.get("chat_id", "")),
        whose=f"{text_of(item, 'user_id')}{device}",
        acked=number(item, "last_acked_sequence"),
        read=number(item, "read_up_to"),
        is_stored=True,
    )


def _person(member: Item) -> Item:
    return person_key(str(member["user_id"]))


def _place(member: Item) -> Item:
    return {"user_id": member["user_id"], "chat_id": member["chat_id"]}


def _agree(key: Item, item: Item | None) -> bool:
    """Whether a key and the item at its position belong to the same message."""
    if item is None:
        return False
    own: Any = ids.client_key(str(item.get("client_message_id", "")))
    return (
        key.get("message_id") == item.get("message_id")
        and key.get("sender_id") == item.get("sender_id")
        and own is not None
        and key_of("", own)["client_message_id"] == key.get("client_message_id")
    )


def _ms(text: str) -> int:
    try:
        return from_iso(text)
    except ValueError:
        return 0
