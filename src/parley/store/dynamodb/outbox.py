"""The `Outbox` port on DynamoDB: how far each chat is on the bus.

Every append lists its chat in the sparse index `unpublished` and writes the newest mark, in its own
transaction. So a busy chat needs no extra write for its marks. An idle chat is removed from the index, on the
condition that nothing was appended since. In atomic the counter shows it. In two_phase nothing on the chat's
item does, so it takes three steps: move the chat to another shard, which any append undoes; read the end of
the log; remove the chat if it is still in that shard.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import cast

from parley.store.compared_overviews import Heads
from parley.store.dynamodb.bundles import end_of
from parley.store.dynamodb.driver import (
    ConditionFailed,
    Dynamo,
    Item,
    map_concurrently,
    number,
    retry_unknown,
)
from parley.store.dynamodb.schema import MESSAGES
from parley.store.entries import UNPUBLISHED_SHARDS, shard_of, tag_of
from parley.store.published_marks import OutboxMarks

WRITES_AT_ONCE_MAX = 16

LEAVING = UNPUBLISHED_SHARDS
"""Added to the shard of a chat while it is being removed from the index."""

NOT_BELOW = "(attribute_not_exists(published_through) OR published_through <= :mark)"
RISES = "(attribute_not_exists(published_through) OR published_through < :mark)"


class DynamoOutbox(OutboxMarks):
    """`table` has the marks: the counters in atomic, the chats in two_phase.

    `heads` reads the heads of logs in two_phase; None in atomic, where the counters have them.
    """

    def __init__(self, dynamo: Dynamo, table: str, heads: Heads | None = None) -> None:
        super().__init__()
        self._dynamo = dynamo
        self._table = table
        self._heads = heads

    async def unpublished(self) -> dict[str, int]:
        shards = UNPUBLISHED_SHARDS if self._heads is None else 2 * UNPUBLISHED_SHARDS
        found = await asyncio.gather(*(self._listed(shard) for shard in range(shards)))
        items = await self._items(chat_id for listed in found for chat_id in listed)
        heads = await self._heads_of(items)
        behind = {}
        for chat_id, item in items.items():
            mark = max(number(item, "published_through"), self._marks.get(chat_id, 0))
            if mark < heads.get(chat_id, 0):
                behind[chat_id] = mark
            else:
                self.note_published(
                    chat_id, mark
                )  # nothing is unpublished: the next flush removes it from the index
        return behind

    async def _listed(self, shard: int) -> list[str]:
        items = await self._dynamo.query_all(
            self._table, "unpublished = :shard", {":shard": shard}, index="unpublished"
        )
        return [cast(str, item["chat_id"]) for item in items]

    async def _items(self, chat_ids: Iterable[str]) -> dict[str, Item]:
        keys: list[Item] = [{"chat_id": chat_id} for chat_id in dict.fromkeys(chat_ids)]
        items = await self._dynamo.batch_get(self._table, keys)
        return {cast(str, item["chat_id"]): item for item in items}

    async def _heads_of(self, items: dict[str, Item]) -> dict[str, int]:
        if self._heads is None:
            return {chat_id: number(item, "sequence_counter") for chat_id, item in items.items()}
        heads = await self._heads(list(items))
        return {chat_id: head.sequence for chat_id, head in heads.items()}

    # Writing marks

    async def _write(self, marks: dict[str, int]) -> None:
        items = await self._items(marks)
        heads = await self._heads_of(items)

        async def write_one(chat_id: str) -> None:
            mark = marks[chat_id]
            if chat_id in items:
                await self._write_mark(chat_id, mark, is_all=mark >= heads.get(chat_id, 0))
            self._forget(chat_id, mark)

        await map_concurrently(write_one, marks, WRITES_AT_ONCE_MAX)

    async def _write_mark(self, chat_id: str, mark: int, *, is_all: bool) -> None:
        unlist = self._unlist_atomic if self._heads is None else self._unlist_two_phase
        if is_all and await unlist(chat_id, mark):
            return
        await self._update(chat_id, "SET published_through = :mark", {":mark": mark}, RISES)

    async def _unlist_atomic(self, chat_id: str, mark: int) -> bool:
        """Set the mark and remove the chat from the index; False if the log has more."""
        expression = "SET published_through = :mark REMOVE unpublished"
        return await self._update(
            chat_id, expression, {":mark": mark}, f"sequence_counter = :mark AND {NOT_BELOW}"
        )

    async def _unlist_two_phase(self, chat_id: str, mark: int) -> bool:
        """The same in three steps. True also if the chat stays listed: its mark is set."""
        leaving = shard_of(tag_of(chat_id)) + LEAVING
        values: Item = {":mark": mark, ":leaving": leaving}
        expression = "SET published_through = :mark, unpublished = :leaving"
        if not await self._update(chat_id, expression, values, NOT_BELOW):
            return False
        if await self._last_position(chat_id) == mark:
            await self._update(chat_id, "REMOVE unpublished", {":leaving": leaving}, "unpublished = :leaving")
        return True

    async def _last_position(self, chat_id: str) -> int:
        """The highest position, resolved or not."""
        page = await self._dynamo.query(
            MESSAGES, "chat_id = :chat", {":chat": chat_id}, forward=False, limit=1
        )
        return end_of(page.items[0]) if page.items else 0

    async def _update(self, chat_id: str, expression: str, values: Item, condition: str) -> bool:
        key: Item = {"chat_id": chat_id}
        condition = f"attribute_exists(chat_id) AND {condition}"
        try:
            await retry_unknown(
                lambda: self._dynamo.update(self._table, key, expression, values, condition=condition)
            )
        except ConditionFailed:
            return False
        return True
