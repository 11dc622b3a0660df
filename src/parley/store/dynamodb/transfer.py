"""The `Transfer` port on DynamoDB."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

from parley import ids
from parley.clock import MS_PER_SECOND, Clock
from parley.model import StoredEntry
from parley.store.dynamodb.bundles import BUNDLED_MAX, all_unbundled, last_position
from parley.store.dynamodb.counters import Counters
from parley.store.dynamodb.driver import (
    Action,
    Dynamo,
    Item,
    UpdateItem,
    map_concurrently,
    number,
    retry_unknown,
)
from parley.store.dynamodb.entries import (
    is_live,
    key_item,
    put_entry,
    put_void,
    sequence_of,
    stored_in,
)
from parley.store.dynamodb.record_items import RecordItems
from parley.store.dynamodb.scans import table_pages
from parley.store.dynamodb.schema import CHATS, COUNTERS, IMPORTED_IDS, KEYS, MESSAGES
from parley.store.entries import place_in, tag_of
from parley.store.records import ChatRecord, Record
from parley.wire.codec import decode_entry
from parley.wire.frames import Entry

CHATS_AT_ONCE_MAX = 16


class DynamoTransfer:
    def __init__(
        self,
        dynamo: Dynamo,
        connect: Callable[[], Awaitable[None]],
        counters: Counters,
        clock: Clock,
        make_ids: ids.Ids,
    ) -> None:
        self._dynamo = dynamo
        self._connect = connect
        self._clock = clock
        self._ids = make_ids
        self._items = RecordItems(dynamo, counters, clock, make_ids)

    async def chats(self, chat_ids: Sequence[str] | None = None) -> AsyncIterator[list[ChatRecord]]:
        await self._connect()
        async for page in self._items.chats(chat_ids):
            yield page

    async def records(self, kind: type[Record]) -> AsyncIterator[list[Record]]:
        await self._connect()
        async for page in self._items.read(kind):
            yield page

    async def put(self, records: Sequence[Record]) -> None:
        await self._connect()
        if records:
            await self._items.write(records)

    # Entries

    async def positions(self, chat_id: str, after: int) -> AsyncIterator[list[StoredEntry]]:
        """Begins where a bundle may begin that holds the first position."""
        await self._connect()
        start: Item | None = None
        while True:
            page = await self._dynamo.query(
                MESSAGES,
                "chat_id = :chat AND #s > :before",
                {":chat": chat_id, ":before": after - BUNDLED_MAX},
                names={"#s": "sequence"},
                start=start,
            )
            yield [stored_in(one) for one in all_unbundled(page.items) if sequence_of(one) > after]
            start = page.next_key
            if start is None:
                return

    async def put_positions(self, chat_id: str, positions: Sequence[StoredEntry]) -> None:
        """One item for each position: bundles of a repeated call could begin elsewhere."""
        await self._connect()
        chat = await self._dynamo.get(CHATS, {"chat_id": chat_id}) or {}
        epoch, now_ms = number(chat, "epoch"), self._clock()
        entries = [decode_entry(one.wire) for one in positions if one.wire is not None]
        items = [put_entry(entry).item for entry in entries]
        items += [put_void(chat_id, one.sequence, epoch).item for one in positions if one.wire is None]
        keys = {str(key["client_message_id"]): key for key in _keys(entries) if is_live(key, now_ms)}
        await self._put(KEYS, list(keys.values()))
        await self._put(IMPORTED_IDS, list(_foreign_ids(entries)))
        await self._put(MESSAGES, items)

    async def _put(self, table: str, items: Sequence[Item]) -> None:
        if items:
            await retry_unknown(lambda: self._dynamo.batch_put(table, items))

    async def log_ends(self, chat_ids: Sequence[str]) -> dict[str, int]:
        await self._connect()
        ends = await map_concurrently(
            lambda chat_id: last_position(self._dynamo, chat_id), chat_ids, CHATS_AT_ONCE_MAX
        )
        return dict(zip(chat_ids, ends, strict=True))

    # Afterwards

    async def settle(self, groups: Sequence[str], now_ms: int) -> None:
        """Nothing: chats are put as published, and rows with revisions that no token has."""

    async def begin_anew(self, now_ms: int) -> int:
        await self._connect()
        count = 0
        async for chats in table_pages(self._dynamo, CHATS):
            await map_concurrently(lambda chat: self._raise_epoch(chat, now_ms), chats, CHATS_AT_ONCE_MAX)
            count += len(chats)
        return count

    async def _raise_epoch(self, chat: Item, now_ms: int) -> None:
        """In the chat and its counter together: either may be asked for it."""
        key: Item = {"chat_id": chat["chat_id"]}
        values: Item = {":epoch": max(number(chat, "epoch") + 1, now_ms // MS_PER_SECOND)}
        exists = "attribute_exists(chat_id)"
        actions: list[Action] = [UpdateItem(CHATS, key, "SET epoch = :epoch", values, exists)]
        if await self._dynamo.get(COUNTERS, key) is not None:
            actions.append(UpdateItem(COUNTERS, key, "SET epoch = :epoch", values, exists))
        token = self._ids.next(ids.EVENT, self._clock())
        await retry_unknown(lambda: self._dynamo.transact(actions, token))


def _keys(entries: Iterable[Entry]) -> Iterable[Item]:
    for entry in entries:
        key = ids.client_key(entry.client_message_id or "")
        if key is not None:
            yield key_item(entry, key, entry.sequence)


def _foreign_ids(entries: Iterable[Entry]) -> Iterable[Item]:
    """Of those whose ids do not lead to their places."""
    for entry in entries:
        if place_in(entry.message_id) != (tag_of(entry.chat_id), entry.sequence):
            yield {"message_id": entry.message_id, "chat_id": entry.chat_id, "sequence": entry.sequence}
