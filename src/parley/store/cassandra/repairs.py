"""The `Repairs` port on Cassandra."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from parley import ids
from parley.clock import Clock, iso
from parley.concurrency import map_concurrently
from parley.errors import CounterMissingError
from parley.store.cassandra.batches import fence_update
from parley.store.cassandra.chat_state import READ_CHAT, READ_KEYS, CassandraChatState
from parley.store.cassandra.client import is_key
from parley.store.cassandra.connection import Row
from parley.store.cassandra.counters import LogCounters
from parley.store.cassandra.log_rows import VOID, LogRows
from parley.store.cassandra.prefixes import CassandraPrefixes
from parley.store.cassandra.schema import CHATS, DELIVERY, DEVICES, LOG
from parley.store.entries import tag_of
from parley.store.invariants import NoSuchChat
from parley.store.rows import Remains, Repair

READS_AT_ONCE_MAX = 16
POSITIONS_PER_READ = 1_000
PUBLISHED_AGAIN = 1_000
"""How far the mark of the bus goes back with a lost counter: it was lost, too."""


class ReportedPositions(Struct):
    """The highest positions that devices and people have reported."""

    devices: int = 0
    people: int = 0


class CassandraRepairs:
    """`connect` opens the client, once. A counter of an allocator in another service may be raised."""

    def __init__(
        self,
        counters: LogCounters,
        prefixes: CassandraPrefixes,
        rows: LogRows,
        connect: Callable[[], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._counters = counters
        self._states = counters.states
        self._cassandra = counters.states.cassandra
        self._prefixes = prefixes
        self._rows = rows
        self._connect = connect
        self._clock = clock
        self.may_raise = counters.allocator is not None
        self._reported: dict[str, ReportedPositions] = {}

    # Reading

    async def chats_without_counter(self) -> list[str]:
        """Also caches their reported positions: one scan of the tables of positions serves all chats."""
        await self._connect()
        lost: list[str] = []
        async for rows in self._cassandra.pages(f"SELECT chat_id, record FROM {CHATS}"):
            chat_ids = [row["chat_id"] for row in rows if row["record"] is not None]
            states = await map_concurrently(self._is_lost, chat_ids, READS_AT_ONCE_MAX)
            lost += [chat_id for chat_id, is_lost in zip(chat_ids, states, strict=True) if is_lost]
        if lost:
            self._reported = await self._reported_in(lost)
        return sorted(lost)

    async def _is_lost(self, chat_id: str) -> bool:
        counter = await self._counters.read(chat_id)
        if counter.last is None or not self.may_raise:
            return counter.last is None
        ends = await self._log_ends(chat_id)
        return counter.last < max(ends[0], await self._rows.trimmed(chat_id))

    async def remains(self, chat_id: str) -> Remains:
        chat = await self._chat(chat_id)
        last, last_entry = await self._log_ends(chat_id)
        bucket, _ = await self._counters.fence(chat_id)
        keys = await self._cassandra.rows(READ_KEYS, chat_id, bucket)
        reported = self._reported.get(chat_id) or (await self._reported_in([chat_id]))[chat_id]
        return Remains(
            chat_id=chat_id,
            counter=(await self._counters.read(chat_id)).last,
            entries=last_entry,
            voids=last if last > last_entry else 0,
            keys=max((key["stored_at"] for key in keys), default=0),
            trimmed=max(chat["archived_through"] or 0, chat["trimmed_through"] or 0),
            device_cursors=reported.devices,
            delivery_state=reported.people,
        )

    async def _chat(self, chat_id: str) -> Row:
        await self._connect()
        chat = await self._cassandra.row(READ_CHAT, chat_id) if is_key(chat_id) else None
        if chat is None or chat["record"] is None:
            raise NoSuchChat(f"there is no chat {chat_id}")
        return chat

    async def _reported_in(self, chat_ids: Sequence[str]) -> dict[str, ReportedPositions]:
        """The positions reported in these chats, including those of people who left."""
        reported = {chat_id: ReportedPositions() for chat_id in chat_ids}
        async for rows in self._cassandra.pages(f"SELECT chat_id, last_acked_sequence FROM {DEVICES}"):
            for row in rows:
                if (found := reported.get(row["chat_id"])) is not None:
                    found.devices = max(found.devices, row["last_acked_sequence"] or 0)
        columns = "chat_id, last_acked_sequence, read_up_to"
        async for rows in self._cassandra.pages(f"SELECT {columns} FROM {DELIVERY}"):
            for row in rows:
                if (found := reported.get(row["chat_id"])) is not None:
                    furthest = max(row["last_acked_sequence"] or 0, row["read_up_to"] or 0)
                    found.people = max(found.people, furthest)
        return reported

    async def _log_ends(self, chat_id: str) -> tuple[int, int]:
        """The highest position that is there of a log, and the highest that is not void."""
        bucket, _ = await self._counters.fence(chat_id)
        end, last, trimmed = self._states.end_of(bucket), 0, await self._rows.trimmed(chat_id)
        while end > trimmed:
            start = max(trimmed, end - POSITIONS_PER_READ)
            for row in await self._rows.rows(chat_id, start, end, "kind", forward=False):
                last = max(last, row["sequence"])
                if row["kind"] != VOID:
                    return last, row["sequence"]
            end = start
        return last, 0

    async def holes(self, chat_id: str, first: int, last: int) -> list[tuple[int, int]]:
        await self._chat(chat_id)
        found, expected = list[tuple[int, int]](), first
        start = first - 1
        while start < last:
            end = min(last, start + POSITIONS_PER_READ)
            for at in await self._states.positions(chat_id, start, end):
                if at > expected:
                    found.append((expected, at - 1))
                expected = at + 1
            start = end
        return [*found, (expected, last)] if expected <= last else found

    # Writing

    async def write(self, repair: Repair) -> int:
        """Voids first: no node can write at a void's position any more."""
        chat = await self._chat(repair.chat_id)
        state = self._states.new_state(repair.chat_id, chat["bucket"] or 0)
        state.take_chat(chat)
        await self._states.refresh_fence(state)
        for first, last in repair.voids:
            await self._put_voids(state, first, last)
        if repair.counter_is_lost and self._counters.allocator is not None:
            return await self._counters.allocator.restore(repair.chat_id, repair.counter)
        if repair.counter_is_lost:
            await self._put_counter(state, repair.counter)
        elif self._counters.allocator is None:
            await self._prefixes.mark_whole(state, repair.counter)
        counter = (await self._counters.read(repair.chat_id)).last
        if counter is None:
            raise CounterMissingError("the counter was lost meanwhile; run this again")
        return counter

    async def _put_voids(self, state: CassandraChatState, first: int, last: int) -> None:
        """In a bucket that is closed, where a row was lost, or in the open one and those to come."""
        start = state.bucket * self._states.bucket_positions
        for at in range(first, min(last, start) + 1):
            await self._prefixes.put_void(state.chat_id, at)
        await self._prefixes.fill(state, max(start, first - 1), last)

    async def _put_counter(self, state: CassandraChatState, counter: int) -> None:
        """Also sets a new membership revision, so that nodes that cache the chat read it again."""
        now_ms = self._clock()
        sets = {
            "sequence_counter": counter,
            "written_through": counter,
            "published_through": max(0, counter - PUBLISHED_AGAIN),
            "recovered_at": iso(now_ms),
            "recovered_from_sequence": counter,
            "revision": ids.EVENT + ids.ulid(now_ms, tag_of(f"{state.revision}{counter}")),
        }
        update = fence_update(state.chat_id, state.bucket, sets, {"sequence_counter =": None})

        async def is_there() -> bool:
            return (await self._counters.fence(state.chat_id))[1].get("sequence_counter") == counter

        cas = await self._cassandra.resolve(lambda: self._cassandra.cas(update), is_there)
        if not cas.is_applied:
            raise CounterMissingError("another process restored the counter meanwhile; run this again")

    def how_to_delete_counter(self, chat_id: str) -> str:
        keyspace = self._cassandra.keyspace
        return (
            f"in cqlsh: SELECT bucket FROM {keyspace}.{CHATS} WHERE chat_id = '{chat_id}';"
            f" UPDATE {keyspace}.{LOG} SET sequence_counter = null WHERE chat_id = '{chat_id}' AND bucket = N"
            " IF EXISTS; with that bucket as N"
            f"\nparley recover {chat_id} --apply, with the same configuration"
        )
