"""The `Overviews` port on Cassandra: the rows, counts and last entries that an overview is made of."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from parley.concurrency import map_concurrently
from parley.model import Kind
from parley.store.cassandra.chat_state import READ_CHAT
from parley.store.cassandra.client import Cassandra, is_key
from parley.store.cassandra.connection import Row
from parley.store.cassandra.cursors import READ_DEVICE
from parley.store.cassandra.effects import chat_in
from parley.store.cassandra.log_rows import VOID, LogRows
from parley.store.cassandra.schema import DELIVERY
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
from parley.wire.limits import UNREAD_MAX

READ_ROWS = f"SELECT * FROM {DELIVERY} WHERE user_id = ?"
VOIDS_PER_READ_MAX = 256
RISING = (
    "joined_sequence",
    "left_sequence",
    "last_acked_sequence",
    "read_up_to",
    "setting_changes",
    "copied_at",
)
"""Each of these only rises, so their sum is another after every change, and after a copy."""


class CassandraOverviews(ComparedOverviews):
    def __init__(self, cassandra: Cassandra, rows: LogRows, heads: Heads, noted: NotedCursors) -> None:
        super().__init__(heads, noted)
        self._cassandra = cassandra
        self._log_rows = rows

    async def _rows(self, user_id: str) -> list[OverviewRow]:
        rows = await self._cassandra.rows(READ_ROWS, user_id) if is_key(user_id) else []
        return [_row(row) for row in rows if row["has_left"] is not None]

    async def _details(self, user_id: str, device_id: str, chat_ids: Sequence[str]) -> dict[str, ChatDetails]:
        places = [(user_id, device_id, chat_id) for chat_id in chat_ids if is_key(device_id)]
        devices, rows = await asyncio.gather(
            self._cassandra.rows_of(READ_DEVICE, places),
            self._cassandra.rows_of(READ_CHAT, [(chat_id,) for chat_id in chat_ids]),
        )
        acked = {row["chat_id"]: row["last_acked_sequence"] or 0 for row in devices}
        found = {
            row["chat_id"]: (chat_in(row), row["direct_key"]) for row in rows if row["record"] is not None
        }
        return {
            chat_id: ChatDetails(chat.chat_type, chat.title, key, acked.get(chat_id, 0), chat.created_at)
            for chat_id, (chat, key) in found.items()
        }

    async def _last_entries(self, chunk: list[RowAndHead]) -> dict[str, bytes]:
        chats = [at for at in chunk if at.head.sequence > 0 and not at.row.has_left]
        found = await map_concurrently(self._last_entry, chats, READS_AT_ONCE_MAX)
        return {at.row.chat_id: entry for at, entry in zip(chats, found, strict=True) if entry is not None}

    async def _last_entry(self, at: RowAndHead) -> bytes | None:
        """The entry at the head, or the last one before a void."""
        until, limit = at.head.sequence, 1
        while until > 0:
            rows = await self._log_rows.rows(
                at.row.chat_id, max(0, until - limit), until, "kind, wire", forward=False
            )
            if not rows:
                return None  # they were trimmed
            for row in rows:
                if row["kind"] != VOID:
                    entry: bytes | None = row["wire"]
                    return entry
            until, limit = until - limit, VOIDS_PER_READ_MAX
        return None

    async def _count_of_others(self, user_id: str, chat_id: str, after: int, head: int) -> int:
        """Bodies are not read."""
        counted, at = 0, after
        while at < head and counted <= UNREAD_MAX:
            until = min(head, at + UNREAD_MAX + 1 - counted)
            rows = await self._log_rows.rows(chat_id, at, until, "kind, sender_id, is_deleted")
            counted += sum(_is_unread(row, user_id) for row in rows)
            at = until if rows else max(until, await self._log_rows.trimmed(chat_id))
        return counted


def _is_unread(row: Row, user_id: str) -> bool:
    return row["kind"] == Kind.MESSAGE.value and row["sender_id"] != user_id and not row["is_deleted"]


def _row(row: Row) -> OverviewRow:
    return OverviewRow(
        chat_id=row["chat_id"],
        tag=tag_of(row["chat_id"]),
        read_up_to=row["read_up_to"] or 0,
        has_left=bool(row["has_left"]),
        left_sequence=row["left_sequence"] or 0,
        revision=1 + sum(row[name] or 0 for name in RISING),
        muted_until=row["muted_until"],
    )
