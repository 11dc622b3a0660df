"""What changed for a person, exactly: every row and head that counts is read strongly and compared."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import cast

from parley.model import Changed, Head
from parley.store.dynamodb.changes import DELIVERY
from parley.store.dynamodb.client import Dynamo, Item
from parley.store.dynamodb.overview_positions import Noted, Positions, Row, Standing
from parley.store.dynamodb.overview_token import LEFT_REMEMBERED_MAX, Told, pack, tag_of, unpack
from parley.store.dynamodb.states import number
from parley.store.dynamodb.together import is_key

Heads = Callable[[Sequence[str]], Awaitable[dict[str, Head]]]


class Overviews:
    def __init__(self, dynamo: Dynamo, heads: Heads, noted: Noted) -> None:
        self._dynamo = dynamo
        self._heads = heads
        self._positions = Positions(dynamo, noted)

    async def changed(
        self, user_id: str, device_id: str, after: str | None, limit: int, brief: bool = False
    ) -> Changed:
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
        positions = await self._positions.fitting(user_id, device_id, page[:limit], brief)
        for at in page[: len(positions)]:
            told.pop(at.row.tag, None)
            told[at.row.tag] = at.stamp
        complete = len(positions) == len(page)
        # Until all of it was told, every chat that was left counts: one of them may be on the next page.
        kept = {row.tag for row in (*members, *(remembered if complete else left))}
        return Changed(positions, pack({tag: told[tag] for tag in told if tag in kept}), complete)

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


def _row(item: Item) -> Row:
    chat_id = cast(str, item["chat_id"])
    return Row(
        chat_id=chat_id,
        tag=tag_of(chat_id),
        read_up_to=number(item, "read_up_to"),
        has_left=bool(item.get("has_left")),
        left_sequence=number(item, "left_sequence"),
        revision=number(item, "revision"),
        muted_until=cast("str | None", item.get("muted_until")),
    )


def _standing(row: Row, head: Head) -> Standing:
    if row.has_left:
        return Standing(row, Head(head.epoch, row.left_sequence), row.stamp(None))
    return Standing(row, head, row.stamp(head))
