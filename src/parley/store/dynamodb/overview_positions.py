"""What an overview tells of each chat, as much as fits into one page.

Last entries are read by their places, so many chats at once; nothing more is read once a page is full.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from msgspec import Struct

from parley.model import ChatType, Head, Kind, Position
from parley.store.dynamodb.client import BATCH_GET_MAX, Dynamo, Item
from parley.store.dynamodb.cursor_writing import DEVICES, device_key
from parley.store.dynamodb.entries import MESSAGES, VOID, encode_entry, entry_in
from parley.store.dynamodb.overview_token import Stamp
from parley.store.dynamodb.states import CHATS, number
from parley.store.dynamodb.together import together
from parley.wire.limits import PAGE_BYTES_MAX, UNREAD_LOOKED_AT_MAX, UNREAD_MAX

LOOKS_AT_ONCE_MAX = 16
CHATS_AT_ONCE = BATCH_GET_MAX // 2
"""A page of long entries is full after a few of them: what was read of the others is read for nothing."""
VOIDS_PER_LOOK = 16
VOIDS_PER_LOOK_MAX = 256


class Noted(Protocol):
    """What is known of positions before it is durable."""

    def acked_of(self, user_id: str, device_id: str, chat_id: str) -> int: ...

    def read_of(self, user_id: str, chat_id: str) -> int: ...


class Row(Struct):
    """A person's own row of a chat."""

    chat_id: str
    tag: bytes
    read_up_to: int
    has_left: bool
    left_sequence: int
    revision: int
    muted_until: str | None

    def stamp(self, head: Head | None) -> Stamp:
        """What a token says of it. A chat that was left stands still for whoever left it."""
        if head is None:
            return 0, self.left_sequence, self.revision
        return head.epoch, head.sequence, self.revision


class Standing(Struct):
    """A row, where its chat stands, and the stamp of both."""

    row: Row
    head: Head
    stamp: Stamp


class Telling(Struct):
    """What has been read to tell of one chat."""

    at: Standing
    last_entry: bytes | None
    chat: Item
    acked: int
    unread: int
    unread_more: bool


class Positions:
    def __init__(self, dynamo: Dynamo, noted: Noted) -> None:
        self._dynamo = dynamo
        self._noted = noted

    async def fitting(
        self, user_id: str, device_id: str, page: list[Standing], brief: bool
    ) -> list[Position]:
        """The first of these, as many as their last entries leave room for, and one in any case."""
        if brief:
            return await self._positions(user_id, device_id, [(at, None) for at in page])
        found, room_bytes = list[Position](), PAGE_BYTES_MAX
        for first in range(0, len(page), CHATS_AT_ONCE):
            chunk = page[first : first + CHATS_AT_ONCE]
            entries = await self._last_entries(chunk)
            told = list[tuple[Standing, bytes | None]]()
            for at in chunk:
                entry = entries.get(at.row.chat_id)
                room_bytes -= len(entry or b"")
                if room_bytes < 0 and (found or told):
                    break
                told.append((at, entry))
            found += await self._positions(user_id, device_id, told)
            if len(told) < len(chunk):
                break
        return found

    async def _positions(
        self, user_id: str, device_id: str, told: list[tuple[Standing, bytes | None]]
    ) -> list[Position]:
        rows = [at.row for at, _ in told]
        acked, chats, unread = await asyncio.gather(
            self._acked(user_id, device_id, [row.chat_id for row in rows]),
            self._chats([row.chat_id for row in rows]),
            together(lambda one: self._unread(user_id, one[0]), told, LOOKS_AT_ONCE_MAX),
        )
        return [
            _position(
                user_id,
                Telling(at, entry, chats.get(at.row.chat_id, {}), acked[at.row.chat_id], *count),
                self._read_up_to(user_id, at.row),
            )
            for (at, entry), count in zip(told, unread, strict=True)
        ]

    async def _acked(self, user_id: str, device_id: str, chat_ids: list[str]) -> dict[str, int]:
        """The device's own positions, noted ones included."""
        keys = [device_key(user_id, device_id, chat_id) for chat_id in chat_ids]
        items = await self._dynamo.batch_get(DEVICES, keys)
        acked = {cast(str, item["chat_id"]): number(item, "last_acked_sequence") for item in items}
        return {
            chat_id: max(acked.get(chat_id, 0), self._noted.acked_of(user_id, device_id, chat_id))
            for chat_id in chat_ids
        }

    async def _chats(self, chat_ids: list[str]) -> dict[str, Item]:
        items = await self._dynamo.batch_get(CHATS, [{"chat_id": chat_id} for chat_id in chat_ids])
        return {cast(str, item["chat_id"]): item for item in items}

    # Last entries

    async def _last_entries(self, chunk: list[Standing]) -> dict[str, bytes]:
        """By chat; nothing of those that were left, and of those that have none."""
        places = {
            at.row.chat_id: _place(at.row.chat_id, at.head.sequence)
            for at in chunk
            if at.head.sequence > 0 and not at.row.has_left
        }
        items = await self._dynamo.batch_get(MESSAGES, list(places.values()))
        entries = {cast(str, item["chat_id"]): wire for item in items if (wire := _wire(item)) is not None}
        voids = [place for chat_id, place in places.items() if chat_id not in entries]
        before = await together(self._last_entry, voids, LOOKS_AT_ONCE_MAX)
        for place, found in zip(voids, before, strict=True):
            if found is not None:
                entries[cast(str, place["chat_id"])] = found
        return entries

    async def _last_entry(self, place: Item) -> bytes | None:
        """At a place that seems to hold none, or the newest before it. A batch may miss what is there."""
        item = await self._dynamo.get(MESSAGES, place)
        if item is not None and item["kind"] != VOID:
            return _wire(item)
        limit, start = VOIDS_PER_LOOK, cast("Item | None", place)
        while start is not None:
            page = await self._dynamo.query(
                MESSAGES,
                "chat_id = :chat",
                {":chat": place["chat_id"], ":void": VOID},
                filter="kind <> :void",
                forward=False,
                limit=limit,
                start=start,
            )
            if page.items:
                return _wire(page.items[0])
            limit, start = min(2 * limit, VOIDS_PER_LOOK_MAX), page.next_key
        return None

    # Unread

    def _read_up_to(self, user_id: str, row: Row) -> int:
        return max(row.read_up_to, self._noted.read_of(user_id, row.chat_id))

    async def _unread(self, user_id: str, at: Standing) -> tuple[int, bool]:
        """What others said after what was read, and whether there may be more than was counted."""
        read_up_to, head = self._read_up_to(user_id, at.row), at.head.sequence
        if at.row.has_left or read_up_to >= head:
            return 0, False
        after = max(read_up_to, head - UNREAD_LOOKED_AT_MAX)
        values: Item = {":chat": at.row.chat_id, ":first": after + 1, ":head": head}
        found = await self._dynamo.count(
            MESSAGES,
            "chat_id = :chat AND #sequence BETWEEN :first AND :head",
            values | {":kind": Kind.MESSAGE.value, ":me": user_id},
            names={"#sequence": "sequence"},
            filter="kind = :kind AND sender_id <> :me",
            maximum=UNREAD_MAX + 1,
        )
        return min(found, UNREAD_MAX), found > UNREAD_MAX or after > read_up_to


def _place(chat_id: str, sequence: int) -> Item:
    return {"chat_id": chat_id, "sequence": sequence}


def _wire(item: Item) -> bytes | None:
    entry = entry_in(item)
    return None if entry is None else encode_entry(entry)


def _position(user_id: str, told: Telling, read_up_to: int) -> Position:
    row, head, chat = told.at.row, told.at.head, told.chat
    return Position(
        chat_id=row.chat_id,
        epoch=head.epoch,
        head=head.sequence,
        last_acked_sequence=told.acked,
        read_up_to=read_up_to,
        unread=told.unread,
        unread_more=told.unread_more,
        left=row.has_left,
        chat_type=ChatType(cast(str, chat.get("chat_type", ChatType.GROUP))),
        title=None if row.has_left else cast("str | None", chat.get("name")),
        peer_id=_peer(user_id, cast("str | None", chat.get("direct_key"))),
        last_entry=told.last_entry,
        muted_until=row.muted_until,
    )


def _peer(user_id: str, direct_key: str | None) -> str | None:
    """The other one of a direct chat."""
    people = direct_key.split("|") if direct_key is not None else []
    return next((person for person in people if person != user_id), None)
