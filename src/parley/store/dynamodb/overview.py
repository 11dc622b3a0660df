"""The `Overviews` port on DynamoDB: the rows, counts and last entries that an overview is made of."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from parley.model import ChatType, Kind
from parley.store.compared_overviews import (
    READS_AT_ONCE_MAX,
    ChatDetails,
    ComparedOverviews,
    Heads,
    NotedCursors,
    OverviewRow,
    RowAndHead,
    tag_of,
)
from parley.store.dynamodb.bundles import (
    BUNDLE,
    SPAN,
    SPAN_NAMES,
    bundle_across,
    deleted_in,
    end_of,
    senders_in,
    span_of,
    unbundled,
)
from parley.store.dynamodb.driver import Dynamo, Item, is_valid_key, map_concurrently, number
from parley.store.dynamodb.entries import VOID, entry_in, sequence_of
from parley.store.dynamodb.schema import CHATS, DELIVERY, DEVICES, MESSAGES, device_key
from parley.wire.codec import encode_entry
from parley.wire.limits import (
    UNREAD_MAX,
)

VOIDS_PER_QUERY = 16
VOIDS_PER_QUERY_MAX = 256


class DynamoOverviews(ComparedOverviews):
    def __init__(self, dynamo: Dynamo, heads: Heads, noted: NotedCursors) -> None:
        super().__init__(heads, noted)
        self._dynamo = dynamo

    async def _rows(self, user_id: str) -> list[OverviewRow]:
        if not is_valid_key(user_id):
            return []
        items = await self._dynamo.query_all(DELIVERY, "user_id = :user", {":user": user_id})
        return [
            OverviewRow(
                chat_id=(chat_id := cast(str, item["chat_id"])),
                tag=tag_of(chat_id),
                read_up_to=number(item, "read_up_to"),
                has_left=bool(item.get("has_left")),
                left_sequence=number(item, "left_sequence"),
                revision=number(item, "revision"),
                muted_until=cast("str | None", item.get("muted_until")),
            )
            for item in items
        ]

    async def _details(self, user_id: str, device_id: str, chat_ids: Sequence[str]) -> dict[str, ChatDetails]:
        device_keys = [device_key(user_id, device_id, chat_id) for chat_id in chat_ids if device_id]
        chat_keys: list[Item] = [{"chat_id": chat_id} for chat_id in chat_ids]
        devices, items = await asyncio.gather(
            self._dynamo.batch_get(DEVICES, device_keys), self._dynamo.batch_get(CHATS, chat_keys)
        )
        acked = {item["chat_id"]: number(item, "last_acked_sequence") for item in devices}
        return {
            cast(str, chat["chat_id"]): ChatDetails(
                ChatType(cast(str, chat.get("chat_type", ChatType.GROUP))),
                cast("str | None", chat.get("name")),
                cast("str | None", chat.get("direct_key")),
                acked.get(chat["chat_id"], 0),
                cast(str, chat.get("created_at", "")),
            )
            for chat in items
        }

    async def _last_entries(self, chunk: list[RowAndHead]) -> dict[str, bytes]:
        """The last entries by chat; none for a chat that is empty or was left."""
        places: dict[str, Item] = {
            at.row.chat_id: {"chat_id": at.row.chat_id, "sequence": at.head.sequence}
            for at in chunk
            if at.head.sequence > 0 and not at.row.has_left
        }
        items = await self._dynamo.batch_get(MESSAGES, list(places.values()))
        entries = {
            cast(str, item["chat_id"]): wire
            for item in items
            if (wire := _wire(unbundled(item)[0])) is not None
        }
        missing = [chat_id for chat_id in places if chat_id not in entries]
        found = await map_concurrently(
            lambda chat_id: self._last_entry(places[chat_id]), missing, READS_AT_ONCE_MAX
        )
        return entries | {
            chat_id: entry for chat_id, entry in zip(missing, found, strict=True) if entry is not None
        }

    async def _last_entry(self, place: Item) -> bytes | None:
        """The entry at this position, or the last one before a void. A batch may miss an entry.

        The first query reads one item: it is nearly always an entry, or the bundle that ends here.
        """
        limit, start = 1, cast("Item | None", None)
        while True:
            page = await self._dynamo.query(
                MESSAGES,
                "chat_id = :chat AND #s <= :last",
                {":chat": place["chat_id"], ":last": place["sequence"], ":void": VOID},
                names={"#s": "sequence"},
                filter="kind <> :void",
                forward=False,
                limit=limit,
                start=start,
            )
            if page.items:
                last = sequence_of(place)
                return _wire([one for one in unbundled(page.items[0]) if sequence_of(one) <= last][-1])
            limit, start = min(max(2 * limit, VOIDS_PER_QUERY), VOIDS_PER_QUERY_MAX), page.next_key
            if start is None:
                return None

    async def _count_of_others(self, user_id: str, chat_id: str, after: int, head: int) -> int:
        """How many messages of others there are between two positions, up to more than `UNREAD_MAX`.

        A bundle has its senders beside its entries, so that its texts need not travel.
        """
        counted, at = 0, after
        while at < head and counted <= UNREAD_MAX:
            until = min(head, at + UNREAD_MAX + 1 - counted)
            page = await self._dynamo.query(
                MESSAGES,
                "chat_id = :chat AND #s BETWEEN :first AND :last",
                {":chat": chat_id, ":first": at + 1, ":last": until},
                names=SPAN_NAMES,
                projection=f"{SPAN}, kind, sender_id, senders, deleted",
            )
            items = page.items
            if at == after > 0 and not (items and sequence_of(items[0]) == after + 1):
                bundle = await bundle_across(self._dynamo, chat_id, after + 1)
                items = items if bundle is None else [bundle, *items]
            counted += sum(_count_of_others(user_id, item, after, head) for item in items)
            last = end_of(items[-1]) if items else at
            at = last if page.next_key is not None else max(until, last)
        return counted


def _count_of_others(user_id: str, item: Item, after: int, until: int) -> int:
    """The same in one item, which may be a bundle across either position."""
    if item["kind"] == BUNDLE:
        senders, deleted = zip(span_of(item), senders_in(item), strict=False), deleted_in(item)
        return sum(
            after < at <= until and sender_id != user_id and at not in deleted for at, sender_id in senders
        )
    is_message = item["kind"] == Kind.MESSAGE.value and not item.get("deleted")
    return is_message and item.get("sender_id") != user_id


def _wire(item: Item) -> bytes | None:
    entry = entry_in(item)
    return None if entry is None else encode_entry(entry)
