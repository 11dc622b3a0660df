"""The `Outbox` port on Cassandra: the chats with news for the bus.

A chat is listed before it is written to, under a name of its own, and the batch sets that name in the fence
(`listing`). So a chat with news is on the list. It is taken off in two steps: the name goes from the fence,
on the condition that nothing was appended since, and then from the list. A name on the list that is not in
the fence belongs to an append that is under way, or has failed: after some time it is removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from parley import ids
from parley.clock import Clock
from parley.concurrency import map_concurrently
from parley.model import Head
from parley.store.cassandra.batches import fence_update
from parley.store.cassandra.chat_state import READ_CHAT, CassandraChatState, CassandraChatStates
from parley.store.cassandra.connection import Row
from parley.store.cassandra.schema import UNPUBLISHED
from parley.store.entries import UNPUBLISHED_SHARDS, shard_of, tag_of
from parley.store.published_marks import OutboxMarks

WRITES_AT_ONCE_MAX = 16
FAILED_AFTER_MS = 60_000
"""An append that has listed its chat for so long has ended."""

LIST = f"INSERT INTO {UNPUBLISHED} (shard_no, chat_id, listing, since_ms) VALUES (?, ?, ?, ?)"
READ_LISTED = f"SELECT chat_id, listing, since_ms FROM {UNPUBLISHED} WHERE shard_no = ?"
UNLIST = f"DELETE FROM {UNPUBLISHED} WHERE shard_no = ? AND chat_id = ? AND listing = ?"

Heads = Callable[[Sequence[str]], Awaitable[dict[str, Head]]]


class CassandraOutbox(OutboxMarks):
    def __init__(self, states: CassandraChatStates, heads: Heads, clock: Clock, make_ids: ids.Ids) -> None:
        super().__init__()
        self._states = states
        self._cassandra = states.cassandra
        self._heads = heads
        self._clock = clock
        self._ids = make_ids

    async def list_chat(self, state: CassandraChatState) -> str:
        listing = self._ids.next(ids.EVENT, self._clock())
        await self._cassandra.write(LIST, state.shard, state.chat_id, listing, self._clock())
        return listing

    async def unpublished(self) -> dict[str, int]:
        """The list is read before the fences: whoever is written to after that is listed the next time."""
        shards = await asyncio.gather(
            *(self._cassandra.rows(READ_LISTED, shard) for shard in range(UNPUBLISHED_SHARDS))
        )
        listed = [row for rows in shards for row in rows]
        chat_ids = list(dict.fromkeys(row["chat_id"] for row in listed))
        heads = await self._heads(chat_ids)
        fences = dict(
            zip(chat_ids, await map_concurrently(self._fence, chat_ids, WRITES_AT_ONCE_MAX), strict=True)
        )
        await map_concurrently(
            lambda row: self._remove_failed(row, fences[row["chat_id"]]), listed, WRITES_AT_ONCE_MAX
        )
        behind = {}
        for chat_id, head in heads.items():
            mark = max(self._marks.get(chat_id, 0), fences[chat_id].get("published_through") or 0)
            if mark < head.sequence:
                behind[chat_id] = mark
            elif fences[chat_id].get("listing") is not None:
                self.note_published(chat_id, mark)  # nothing is unpublished: the next flush takes it off
        return behind

    async def _fence(self, chat_id: str) -> Row:
        row = await self._cassandra.row(READ_CHAT, chat_id)
        if row is None:
            return {}
        bucket, found = await self._states.find_open(chat_id, row["bucket"] or 0)
        return {**found, "bucket": bucket}

    async def _remove_failed(self, row: Row, fence: Row) -> None:
        is_old = row["since_ms"] < self._clock() - FAILED_AFTER_MS
        if is_old and row["listing"] != fence.get("listing"):
            await self._unlist(row["chat_id"], row["listing"])

    async def _unlist(self, chat_id: str, listing: str) -> None:
        await self._cassandra.write(UNLIST, shard_of(tag_of(chat_id)), chat_id, listing)

    async def _write(self, marks: dict[str, int]) -> None:
        heads = await self._heads(list(marks))

        async def write_one(chat_id: str) -> None:
            head = heads.get(chat_id)
            if head is not None:
                await self._write_mark(chat_id, marks[chat_id], head.sequence)
            self._forget(chat_id, marks[chat_id])

        await map_concurrently(write_one, marks, WRITES_AT_ONCE_MAX)

    async def _write_mark(self, chat_id: str, mark: int, head: int) -> None:
        """Take the chat off the list if the mark is its head and still is; otherwise only set the mark."""
        fence = await self._fence(chat_id)
        listing, bucket = fence.get("listing"), fence.get("bucket", 0)
        if mark >= head and listing is not None and await self._is_still(chat_id, fence, head):
            end = "sequence_counter" if self._states.is_atomic else "last_sequence"
            conditions = {"listing =": listing, f"{end} =": fence[end]}
            sets = {"listing": None, "published_through": mark}
            taken_off = await self._cassandra.cas(fence_update(chat_id, bucket, sets, conditions))
            if taken_off.is_applied:
                self._states.doubt(chat_id)
                await self._unlist(chat_id, listing)
                return
        if mark > (fence.get("published_through") or 0):
            before = {"published_through =": fence.get("published_through")}
            await self._cassandra.cas(fence_update(chat_id, bucket, {"published_through": mark}, before))

    async def _is_still(self, chat_id: str, fence: Row, head: int) -> bool:
        """Whether nothing lies above the head, resolved or not."""
        if self._states.is_atomic:
            return bool(fence["sequence_counter"] == head)
        return bool((fence["last_sequence"] or 0) <= head)
