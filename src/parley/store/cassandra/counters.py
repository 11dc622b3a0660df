"""Reads the counter of a chat, in the fence of its open bucket or from the allocator."""

from __future__ import annotations

from typing import NamedTuple

from parley.store.cassandra.chat_state import READ_CHAT, READ_FENCE, CassandraChatStates
from parley.store.cassandra.connection import Row
from parley.store.ports import Allocator


class LogCounter(NamedTuple):
    """`last`: the last number given, None without a counter. `written`: up to here the log has no hole."""

    last: int | None
    written: int = 0


class LogCounters:
    """`allocator`: has the counters in another service; None if they are here."""

    def __init__(self, states: CassandraChatStates, allocator: Allocator | None) -> None:
        self.states = states
        self.allocator = allocator
        self.is_atomic = states.is_atomic

    async def fence(self, chat_id: str) -> tuple[int, Row]:
        """The last bucket of a chat that is there, and its fence. Writes nothing, whatever it finds."""
        cassandra = self.states.cassandra
        chat = await cassandra.row(READ_CHAT, chat_id)
        bucket = (chat["bucket"] or 0) if chat is not None else 0
        fence = await cassandra.row(READ_FENCE, chat_id, bucket) or {}
        while fence.get("is_closed") is None and bucket > 0:  # as in `find_open`
            bucket -= 1
            fence = await cassandra.row(READ_FENCE, chat_id, bucket) or {}
        while fence.get("is_closed"):
            following = await cassandra.row(READ_FENCE, chat_id, bucket + 1)
            if following is None or following["is_closed"] is None:
                break
            bucket, fence = bucket + 1, following
        return bucket, fence

    async def read(self, chat_id: str) -> LogCounter:
        bucket, fence = await self.fence(chat_id)
        start = max(bucket * self.states.bucket_positions, fence.get("trimmed_through") or 0)
        if self.allocator is not None:
            return LogCounter(await self.allocator.last(chat_id), start)
        last = fence.get("sequence_counter")
        if last is None:
            return LogCounter(None, start)
        written = fence.get("written_through") or 0 if self.is_atomic else 0
        return LogCounter(last, max(start, min(written, last)))
