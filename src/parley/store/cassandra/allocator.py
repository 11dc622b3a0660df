"""The `Allocator` on the counter in a chat's open bucket: the same that `atomic` moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from parley.clock import Clock, iso
from parley.errors import CounterMissingError, InconsistentCounterError, OutcomeUnknown, StoreUnavailable
from parley.store.cassandra.chat_state import READ_CHAT, READ_FENCE, CassandraChatStates
from parley.store.cassandra.client import Cassandra
from parley.store.cassandra.connection import Row
from parley.store.cassandra.records import CassandraRecords
from parley.store.cassandra.schema import LOG

DEADLINE_SECONDS = 2.5
RACE_PAUSE_SECONDS_MAX = 0.05

CREATE = (
    f"UPDATE {LOG} SET sequence_counter = 0 WHERE chat_id = ? AND bucket = 0"
    " IF is_closed = null AND sequence_counter = null"
)
MOVE = (
    f"UPDATE {LOG} SET sequence_counter = ? WHERE chat_id = ? AND bucket = ?"
    " IF sequence_counter = ? AND is_closed = ?"
)
RESTORE = (
    f"UPDATE {LOG} SET sequence_counter = ?, recovered_at = ?, recovered_from_sequence = ?"
    " WHERE chat_id = ? AND bucket = ? IF sequence_counter = ? AND is_closed = ?"
)


class CassandraAllocator:
    """If a response is lost, its numbers are lost too, and the next attempt takes others."""

    def __init__(
        self,
        cassandra: Cassandra,
        *,
        clock: Clock,
        random: Callable[[], float],
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        self._cassandra = cassandra
        self._clock = clock
        self._random = random
        self._deadline_seconds = deadline_seconds
        records = CassandraRecords(cassandra, clock, cassandra.connect)
        self._states = CassandraChatStates(cassandra, records, False, 1)
        self._buckets: dict[str, int] = {}

    async def create(self, chat_id: str) -> None:
        await self._cassandra.resolve(
            lambda: self._cassandra.cas((CREATE, (chat_id,))), lambda: self._is_there(chat_id)
        )

    async def _is_there(self, chat_id: str) -> bool:
        return await self.last(chat_id) is not None

    async def allocate(self, chat_id: str, count: int, floor: int) -> int:
        if count < 1:
            raise ValueError("count must be at least 1")
        time = asyncio.get_running_loop().time
        deadline = time() + self._deadline_seconds
        while True:
            bucket, fence = await self._open(chat_id)
            counter = fence.get("sequence_counter")
            if counter is None:
                raise CounterMissingError(f"{chat_id} has no counter in Cassandra")
            if counter < floor:
                raise InconsistentCounterError(counter, floor)
            values = (counter + count, chat_id, bucket, counter, fence["is_closed"])
            try:
                if (await self._cassandra.cas((MOVE, values))).is_applied:
                    return int(counter) + count
            except OutcomeUnknown:  # its numbers may be lost: take others
                if time() > deadline:
                    raise
            if time() > deadline:
                raise StoreUnavailable("too many take numbers of this chat at once")
            await asyncio.sleep(self._random() * RACE_PAUSE_SECONDS_MAX)

    async def last(self, chat_id: str) -> int | None:
        found = (await self._open(chat_id))[1].get("sequence_counter")
        return None if found is None else int(found)

    async def restore(self, chat_id: str, at_least: int) -> int:
        while True:
            bucket, fence = await self._open(chat_id)
            counter = fence.get("sequence_counter")
            if counter is not None and counter >= at_least:
                return int(counter)
            now = iso(self._clock())
            values = (at_least, now, at_least, chat_id, bucket, counter, fence.get("is_closed"))
            if (await self._cassandra.cas((RESTORE, values))).is_applied:
                return at_least

    async def close(self) -> None:
        """The client belongs to the store."""

    async def _open(self, chat_id: str) -> tuple[int, Row]:
        """The open bucket and its fence; that of a chat which has not begun has a counter, too.

        The counter of a closed bucket must not move: it goes on in the next one.
        """
        bucket = self._buckets.get(chat_id)
        if bucket is None:
            row = await self._cassandra.row(READ_CHAT, chat_id)
            bucket = (row["bucket"] or 0) if row is not None else 0
        fence = await self._cassandra.row(READ_FENCE, chat_id, bucket) or {}
        if fence.get("is_closed"):
            bucket, fence = await self._states.find_open(chat_id, bucket)
        self._buckets[chat_id] = bucket
        return bucket, fence
