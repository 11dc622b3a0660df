"""Rows of a log, across its buckets, and the keys of its clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from parley.store.cassandra.chat_state import KEYS_AT, NO_KEY, CassandraChatState, CassandraChatStates
from parley.store.cassandra.connection import Row, Statement
from parley.store.cassandra.schema import CHATS, KEYS, LOG
from parley.store.chat_append import Placed
from parley.wire.codec import encode_entry
from parley.wire.frames import Entry

VOID = "void"
KEYS_PER_READ_MAX = 100

PUT_ENTRY = (
    f"INSERT INTO {LOG} (chat_id, bucket, sequence, client_key, kind, sender_id, message_id, wire)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS"
)
PUT_VOID = (
    f"INSERT INTO {LOG} (chat_id, bucket, sequence, client_key, kind) VALUES (?, ?, ?, ?, '{VOID}')"
    " IF NOT EXISTS"
)
SEAL = (
    f"UPDATE {LOG} SET kind = '{VOID}' WHERE chat_id = ? AND bucket = ? AND sequence = ? AND client_key = ?"
    " IF kind = null AND trimmed_through < ?"
)
"""A void alone: nothing may be there, and nothing may have been there and trimmed."""
PUT_KEY = (
    f"INSERT INTO {LOG} (chat_id, bucket, sequence, client_key, stored_at, sender_id, message_id)"
    f" VALUES (?, ?, {KEYS_AT}, ?, ?, ?, ?) IF NOT EXISTS"
)
READ_STRETCH = f"FROM {LOG} WHERE chat_id = ? AND bucket = ? AND sequence > ? AND sequence <= ?"
READ_AT = (
    f"SELECT kind, sender_id, message_id, wire FROM {LOG} WHERE chat_id = ? AND bucket = ? AND sequence = ?"
)
READ_OPEN_KEYS = (
    f"SELECT client_key, stored_at, sender_id, message_id FROM {LOG}"
    f" WHERE chat_id = ? AND bucket = ? AND sequence = {KEYS_AT} AND client_key IN ?"
)
READ_CLOSED_KEY = (
    f"SELECT client_key, stored_at, sender_id, message_id FROM {KEYS} WHERE chat_id = ? AND client_key = ?"
)


READ_TRIMMED = f"SELECT trimmed_through FROM {CHATS} WHERE chat_id = ?"


class StoredKey(NamedTuple):
    """Where the message with a client's id stands, and whose it is."""

    sequence: int
    sender_id: str
    message_id: str


class LogRows:
    def __init__(self, states: CassandraChatStates) -> None:
        self._states = states
        self._cassandra = states.cassandra

    # Writing

    def put(
        self, state: CassandraChatState, placed: Sequence[Placed], voids: Iterable[int] = ()
    ) -> list[Statement]:
        """Entries, their keys, and voids: each of them is new, or nothing of the batch is written."""
        at = (state.chat_id, state.bucket)
        found: list[Statement] = []
        for one in placed:
            entry = one.entry
            own = (entry.kind, entry.sender_id, entry.message_id, encode_entry(entry))
            found.append((PUT_ENTRY, (*at, entry.sequence, NO_KEY, *own)))
            if one.draft.client_key is not None:
                key = (one.draft.client_key, entry.sequence, entry.sender_id, entry.message_id)
                found.append((PUT_KEY, (*at, *key)))
        return [*found, *((PUT_VOID, (*at, void, NO_KEY)) for void in voids)]

    async def are_there(self, state: CassandraChatState, entries: Sequence[Entry]) -> bool:
        """Whether these stand at their positions. Compared as wholes, and read at LOCAL_SERIAL."""
        first = entries[0]
        bucket = self._states.bucket_of(first.sequence)
        found = await self._cassandra.row(READ_AT, first.chat_id, bucket, first.sequence, is_serial=True)
        return found is not None and found["wire"] == encode_entry(first)

    # Reading

    async def rows(
        self, chat_id: str, after: int, until: int, columns: str, *, forward: bool = True, limit: int = 0
    ) -> list[Row]:
        """Of a stretch of the log, with their sequences; at most `limit`, if it is given."""
        first, last = self._states.bucket_of(after + 1), self._states.bucket_of(until)
        found: list[Row] = []
        cql = f"SELECT sequence, {columns} {READ_STRETCH}"
        if not forward:
            cql += " ORDER BY sequence DESC"
        if after >= until:
            return found
        for bucket in range(first, last + 1) if forward else range(last, first - 1, -1):
            more = f" LIMIT {limit - len(found)}" if limit else ""
            found += await self._cassandra.rows(cql + more, chat_id, bucket, max(after, KEYS_AT), until)
            if limit and len(found) >= limit:
                break
        return found

    async def pages(self, chat_id: str, bucket: int, page_size: int) -> AsyncIterator[list[Row]]:
        """All of a bucket's positions, for those who look at everything."""
        columns = "sequence, kind, sender_id, message_id, wire"
        cql = f"SELECT {columns} FROM {LOG} WHERE chat_id = ? AND bucket = ? AND sequence > {KEYS_AT}"
        async for rows in self._cassandra.pages(cql, chat_id, bucket, page_size=page_size):
            yield rows

    async def at(self, chat_id: str, sequence: int) -> Row | None:
        if sequence < 1:
            return None
        return await self._cassandra.row(READ_AT, chat_id, self._states.bucket_of(sequence), sequence)

    async def trimmed(self, chat_id: str) -> int:
        """Up to here the log is in the cold tier alone."""
        row = await self._cassandra.row(READ_TRIMMED, chat_id)
        return 0 if row is None else int(row["trimmed_through"] or 0)

    async def keys(self, state: CassandraChatState, keys: Iterable[bytes]) -> dict[bytes, StoredKey]:
        """Those of these ids that are in the log. `state.bucket` was open when the caller's head was read.

        So every key of an older bucket is in the other table, and stays as it is.
        """
        asked = iter(dict.fromkeys(keys))
        rows: list[Row] = []
        while some := list(islice(asked, KEYS_PER_READ_MAX)):
            rows += await self._cassandra.rows(READ_OPEN_KEYS, state.chat_id, state.bucket, some)
            if state.bucket > 0:
                rows += await self._cassandra.rows_of(READ_CLOSED_KEY, [(state.chat_id, key) for key in some])
        return {
            row["client_key"]: StoredKey(row["stored_at"], row["sender_id"], row["message_id"])
            for row in rows
        }
