"""The `Transfer` port on Cassandra."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from itertools import groupby

from parley import ids
from parley.clock import MS_PER_DAY, MS_PER_SECOND, Clock, from_iso
from parley.concurrency import map_concurrently
from parley.errors import StoreUnavailable
from parley.model import StoredEntry
from parley.store.cassandra.append import BATCH_BYTES_MAX, MESSAGES_PER_BATCH_MAX
from parley.store.cassandra.batches import fence_update
from parley.store.cassandra.chat_state import ATTEMPTS_MAX, KEEP_KEY, KEYS_AT, NO_KEY
from parley.store.cassandra.connection import Row, Statement
from parley.store.cassandra.consents import CassandraConsents
from parley.store.cassandra.counters import LogCounters
from parley.store.cassandra.effects import chat_in
from parley.store.cassandra.log_rows import PUT_ENTRY, PUT_VOID
from parley.store.cassandra.record_rows import SET_EPOCH, RecordRows
from parley.store.cassandra.schema import CHATS, IMPORTED_IDS, LOG
from parley.store.entries import place_in, tag_of
from parley.store.records import ChatRecord, Record
from parley.wire.codec import decode_entry
from parley.wire.frames import Entry
from parley.wire.limits import IDEMPOTENCY_DAYS

CHATS_AT_ONCE_MAX = 16
POSITIONS_PER_PAGE = 500

READ_POSITIONS = f"SELECT sequence, wire FROM {LOG} WHERE chat_id = ? AND bucket = ? AND sequence > ?"
READ_LAST = (
    f"SELECT sequence FROM {LOG} WHERE chat_id = ? AND bucket = ? AND sequence > {KEYS_AT}"
    " ORDER BY sequence DESC LIMIT 1"
)
MARK_DELETED = (
    f"UPDATE {LOG} SET is_deleted = true WHERE chat_id = ? AND bucket = ? AND sequence = ? AND client_key = ?"
)
SET_KEY = (
    f"UPDATE {LOG} SET stored_at = ?, sender_id = ?, message_id = ?"
    f" WHERE chat_id = ? AND bucket = ? AND sequence = {KEYS_AT} AND client_key = ?"
)
"""An engine that forgets ids may have taken one twice: the newer message answers for it."""
PUT_IMPORTED = f"INSERT INTO {IMPORTED_IDS} (message_id, chat_id, sequence) VALUES (?, ?, ?)"


class CassandraTransfer:
    def __init__(
        self,
        rows: RecordRows,
        connect: Callable[[], Awaitable[None]],
        counters: LogCounters,
        consents: CassandraConsents,
        clock: Clock,
    ) -> None:
        self._rows = rows
        self._connect = connect
        self._counters = counters
        self._states = counters.states
        self._cassandra = counters.states.cassandra
        self._consents = consents
        self._clock = clock

    async def chats(self, chat_ids: Sequence[str] | None = None) -> AsyncIterator[list[ChatRecord]]:
        await self._connect()
        async for page in self._rows.chats(chat_ids):
            yield page

    async def records(self, kind: type[Record]) -> AsyncIterator[list[Record]]:
        await self._connect()
        async for page in self._rows.read(kind):
            yield page

    async def put(self, records: Sequence[Record]) -> None:
        await self._connect()
        if records:
            await self._rows.write(records)

    # Entries

    async def positions(self, chat_id: str, after: int) -> AsyncIterator[list[StoredEntry]]:
        await self._connect()
        last, _ = await self._counters.fence(chat_id)
        for bucket in range(self._states.bucket_of(after + 1), last + 1):
            values = (chat_id, bucket, max(after, KEYS_AT))
            async for rows in self._cassandra.pages(READ_POSITIONS, *values, page_size=POSITIONS_PER_PAGE):
                yield [StoredEntry(row["sequence"], row["wire"]) for row in rows]

    async def put_positions(self, chat_id: str, positions: Sequence[StoredEntry]) -> None:
        await self._connect()
        for bucket, some in groupby(positions, key=lambda one: self._states.bucket_of(one.sequence)):
            is_open = await self._reach(chat_id, bucket)
            for batch in _batches(list(some)):
                await self._put_batch(chat_id, bucket, batch, is_open)

    async def _reach(self, chat_id: str, bucket: int) -> bool:
        """Whether a bucket is the open one. A log that is longer than its counter opens more of them."""
        state = self._states.new_state(chat_id, (await self._counters.fence(chat_id))[0])
        while state.bucket < bucket:
            await self._states.roll(state)
        return state.bucket == bucket

    async def _put_batch(
        self, chat_id: str, bucket: int, positions: Sequence[StoredEntry], is_open: bool
    ) -> None:
        """All of them or none, and again until they are there. The keys of a closed bucket are elsewhere."""
        entries = [decode_entry(one.wire) for one in positions if one.wire is not None]
        wires = {one.sequence: one.wire for one in positions if one.wire is not None}
        await self._cassandra.write_all(_foreign_ids(entries))
        if not is_open:
            oldest_ms = self._clock() - IDEMPOTENCY_DAYS * MS_PER_DAY
            live = [one for one in entries if from_iso(one.created_at) >= oldest_ms]
            await self._cassandra.write_all(
                (KEEP_KEY, (chat_id, key, one.sequence, one.sender_id, one.message_id))
                for key, one in _keyed(live).items()
            )
        first, last = positions[0].sequence - 1, positions[-1].sequence
        for _ in range(ATTEMPTS_MAX):
            there = set(await self._states.positions(chat_id, first, last))
            new = [entry for entry in entries if entry.sequence not in there]
            voids = [one.sequence for one in positions if one.sequence not in {*there, *wires}]
            if not new and not voids:
                return
            at, batch = (chat_id, bucket), list[Statement]()
            for entry in new:
                own = (entry.kind, entry.sender_id, entry.message_id, wires[entry.sequence])
                batch.append((PUT_ENTRY, (*at, entry.sequence, NO_KEY, *own)))
                if entry.deleted is True:
                    batch.append((MARK_DELETED, (*at, entry.sequence, NO_KEY)))
            batch += [(PUT_VOID, (*at, void, NO_KEY)) for void in voids]
            if is_open:
                batch += [
                    (SET_KEY, (one.sequence, one.sender_id, one.message_id, *at, key))
                    for key, one in _keyed(new).items()
                ]
            await self._cassandra.repeat(*batch)
        raise StoreUnavailable(f"somebody else writes to {chat_id}")

    async def log_ends(self, chat_ids: Sequence[str]) -> dict[str, int]:
        await self._connect()
        ends = await map_concurrently(self._log_end, chat_ids, CHATS_AT_ONCE_MAX)
        return dict(zip(chat_ids, ends, strict=True))

    async def _log_end(self, chat_id: str) -> int:
        bucket, _ = await self._counters.fence(chat_id)
        for at in range(bucket, -1, -1):
            row = await self._cassandra.row(READ_LAST, chat_id, at)
            if row is not None:
                return int(row["sequence"])
        return 0

    # Afterwards

    async def settle(self, groups: Sequence[str], now_ms: int) -> None:
        """Nothing: chats are put as published, and rows with revisions that no token has."""

    async def begin_anew(self, now_ms: int) -> int:
        await self._connect()
        count = 0
        async for rows in self._cassandra.pages(f"SELECT * FROM {CHATS}"):
            known = [row for row in rows if row["record"] is not None]
            await map_concurrently(lambda row: self._raise_epoch(row, now_ms), known, CHATS_AT_ONCE_MAX)
            count += len(known)
        return count

    async def _raise_epoch(self, chat: Row, now_ms: int) -> None:
        """In the open bucket, which appends go by, then in the chat. The time of that write is the epoch."""
        chat_id = chat["chat_id"]
        for _ in range(ATTEMPTS_MAX):
            state = self._states.new_state(chat_id, chat["bucket"] or 0)
            await self._states.refresh_fence(state)
            epoch = max(state.epoch + 1, chat_in(chat).epoch + 1, now_ms // MS_PER_SECOND)
            sets = {"epoch": epoch, "revision": self._consents.make_revision()}
            update = fence_update(chat_id, state.bucket, sets, {"epoch =": state.epoch})
            if (await self._cassandra.repeat(update)).is_applied:
                await self._cassandra.write(SET_EPOCH, epoch, epoch, chat_id)
                return
        raise StoreUnavailable(f"somebody else writes to {chat_id}")


def _batches(positions: list[StoredEntry]) -> Iterator[list[StoredEntry]]:
    """As many as a conditional batch of an append would hold."""
    some, content_bytes = list[StoredEntry](), 0
    for position in positions:
        content_bytes += len(position.wire or b"")
        if some and (len(some) == MESSAGES_PER_BATCH_MAX or content_bytes > BATCH_BYTES_MAX):
            yield some
            some, content_bytes = [], len(position.wire or b"")
        some.append(position)
    if some:
        yield some


def _keyed(entries: Sequence[Entry]) -> dict[bytes, Entry]:
    """The last entry with each id of a client."""
    found = ((ids.client_key(entry.client_message_id or ""), entry) for entry in entries)
    return {key: entry for key, entry in found if key is not None}


def _foreign_ids(entries: Sequence[Entry]) -> list[Statement]:
    """Of those whose ids do not lead to their places."""
    return [
        (PUT_IMPORTED, (entry.message_id, entry.chat_id, entry.sequence))
        for entry in entries
        if place_in(entry.message_id) != (tag_of(entry.chat_id), entry.sequence)
    ]
