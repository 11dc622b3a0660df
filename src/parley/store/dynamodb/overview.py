"""What changed for a person, exactly: every row and head that counts is read strongly and compared."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol, cast

from msgspec import Struct

from parley.model import Changed, Head, Kind, Position
from parley.store.dynamodb.changes import DELIVERY
from parley.store.dynamodb.client import Dynamo, Item
from parley.store.dynamodb.cursor_writing import DEVICES, device_key
from parley.store.dynamodb.entries import MESSAGES
from parley.store.dynamodb.overview_token import LEFT_REMEMBERED_MAX, Stamp, Told, pack, tag_of, unpack
from parley.store.dynamodb.states import number
from parley.store.dynamodb.together import is_key, together
from parley.wire.limits import UNREAD_MAX

COUNTS_AT_ONCE_MAX = 16
UNREAD_LOOKED_AT_MAX = 10_000
"""Unread messages are counted among so many last positions: who only writes into a chat has none of them."""
assert UNREAD_LOOKED_AT_MAX > UNREAD_MAX

Heads = Callable[[Sequence[str]], Awaitable[dict[str, Head]]]


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


class Overviews:
    def __init__(self, dynamo: Dynamo, heads: Heads, noted: Noted) -> None:
        self._dynamo = dynamo
        self._heads = heads
        self._noted = noted

    async def changed(self, user_id: str, device_id: str, after: str | None, limit: int) -> Changed:
        """Chats of which the token says nothing come first, then those that waited longest.

        So pages come to an end however often some chats change meanwhile, and a page of a first overview
        costs the heads of its own chats alone.
        """
        told = unpack(after) if after is not None else Told()
        rows = await self._rows(user_id)
        members = [row for row in rows if not row.has_left]
        left = [row for row in rows if row.has_left]
        remembered = left[:LEFT_REMEMBERED_MAX]
        if after is None:
            told = {row.tag: row.stamp(None) for row in remembered}
        page = await self._new(members, told, limit + 1)
        if len(page) <= limit:
            page += await self._differing([row for row in members if row.tag in told], left, told)
        kept = {row.tag for row in (*members, *remembered)}
        told = {tag: stamp for tag, stamp in told.items() if tag in kept}
        return await self._answer(user_id, device_id, page[:limit], told, kept, len(page) <= limit)

    async def _rows(self, user_id: str) -> list[Row]:
        if not is_key(user_id):
            return []
        items = await self._dynamo.query_all(DELIVERY, "user_id = :user", {":user": user_id})
        return [_row(item) for item in items]

    async def _new(self, members: Iterable[Row], told: Told, count_max: int) -> list[Standing]:
        """The first chats of which nothing was told; a row whose chat was never finished is passed over."""
        rows, found = [row for row in members if row.tag not in told], list[Standing]()
        for first in range(0, len(rows), count_max):
            chunk = rows[first : first + count_max]
            heads = await self._heads([row.chat_id for row in chunk])
            found += [_standing(row, heads[row.chat_id]) for row in chunk if row.chat_id in heads]
            if len(found) >= count_max:
                break
        return found

    async def _differing(self, members: list[Row], left: list[Row], told: Told) -> list[Standing]:
        """What was told differently, the oldest first; and who left what nobody remembers being told."""
        gone = [
            row
            for place, row in enumerate(left)
            if told.get(row.tag) != row.stamp(None) and (row.tag in told or place < LEFT_REMEMBERED_MAX)
        ]
        heads = await self._heads([row.chat_id for row in (*members, *gone)])
        order = {tag: place for place, tag in enumerate(told)}
        standing = [_standing(row, heads[row.chat_id]) for row in (*members, *gone) if row.chat_id in heads]
        differing = [at for at in standing if told.get(at.row.tag) != at.stamp]
        return sorted(differing, key=lambda at: order.get(at.row.tag, -1))

    async def _answer(
        self,
        user_id: str,
        device_id: str,
        page: list[Standing],
        told: Told,
        kept: set[bytes],
        complete: bool,
    ) -> Changed:
        acked = await self._acked(user_id, device_id, [at.row.chat_id for at in page])
        positions = await together(
            lambda at: self._position(user_id, at, acked.get(at.row.chat_id, 0)), page, COUNTS_AT_ONCE_MAX
        )
        for at in page:
            told.pop(at.row.tag, None)
            if at.row.tag in kept:
                told[at.row.tag] = at.stamp
        return Changed(positions, pack(told), complete)

    async def _acked(self, user_id: str, device_id: str, chat_ids: list[str]) -> dict[str, int]:
        """The device's own positions, noted ones included."""
        keys = [device_key(user_id, device_id, chat_id) for chat_id in chat_ids]
        items = await self._dynamo.batch_get(DEVICES, keys)
        acked = {cast(str, item["chat_id"]): number(item, "last_acked_sequence") for item in items}
        return {
            chat_id: max(acked.get(chat_id, 0), self._noted.acked_of(user_id, device_id, chat_id))
            for chat_id in chat_ids
        }

    async def _position(self, user_id: str, at: Standing, acked: int) -> Position:
        row, head = at.row, at.head
        read_up_to = max(row.read_up_to, self._noted.read_of(user_id, row.chat_id))
        unread = 0 if row.has_left else await self._unread(user_id, row.chat_id, read_up_to, head.sequence)
        return Position(
            row.chat_id,
            head.epoch,
            head.sequence,
            acked,
            read_up_to,
            min(unread, UNREAD_MAX),
            unread > UNREAD_MAX,
            row.has_left,
        )

    async def _unread(self, user_id: str, chat_id: str, read_up_to: int, head: int) -> int:
        """What others said after; one more than the limit at most."""
        if read_up_to >= head:
            return 0
        first = max(read_up_to + 1, head - UNREAD_LOOKED_AT_MAX + 1)
        return await self._dynamo.count(
            MESSAGES,
            "chat_id = :chat AND #sequence BETWEEN :first AND :head",
            {":chat": chat_id, ":first": first, ":head": head, ":kind": Kind.MESSAGE.value, ":me": user_id},
            names={"#sequence": "sequence"},
            filter="kind = :kind AND sender_id <> :me",
            maximum=UNREAD_MAX + 1,
        )


def _row(item: Item) -> Row:
    chat_id = cast(str, item["chat_id"])
    return Row(
        chat_id=chat_id,
        tag=tag_of(chat_id),
        read_up_to=number(item, "read_up_to"),
        has_left=bool(item.get("has_left")),
        left_sequence=number(item, "left_sequence"),
        revision=number(item, "revision"),
    )


def _standing(row: Row, head: Head) -> Standing:
    if row.has_left:
        return Standing(row, Head(head.epoch, row.left_sequence), row.stamp(None))
    return Standing(row, head, row.stamp(head))
