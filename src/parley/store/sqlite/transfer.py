"""The `Transfer` port on SQLite."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import cast

import apsw

from parley import ids
from parley.model import Kind, StoredEntry
from parley.store.records import ChatRecord, MemberStateRecord, Record, column_names, record_of
from parley.store.sqlite import schema
from parley.store.sqlite.command_connection import Row, command_connection, writing
from parley.store.sqlite.parts import begin_anew, renew_changes
from parley.store.sqlite.reads import json_ids
from parley.store.sqlite.record_tables import TABLES
from parley.store.tables import R, askable
from parley.wire.codec import decode_entry

ROWS_PER_PAGE = 1_000
ENTRIES_PER_PAGE = 500
OF_THESE = "chat_id IN (SELECT value FROM json_each(?)) AND "


class SqliteTransfer:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def chats(self, chat_ids: Sequence[str] | None = None) -> AsyncIterator[list[ChatRecord]]:
        where, asked = "", []
        if chat_ids is not None:
            where, asked = OF_THESE, [json_ids(filter(askable, chat_ids))]
        async for page in self._pages(ChatRecord, where, asked):
            yield page

    def records(self, kind: type[Record]) -> AsyncIterator[list[Record]]:
        return self._pages(kind)

    async def _pages(
        self, kind: type[R], where: str = "", values: Sequence[str] = ()
    ) -> AsyncIterator[list[R]]:
        """In the order of their keys. `where`: ends with AND."""
        table, names, after = TABLES[kind], column_names(kind), cast("Row", ())
        keys = len(table.key)
        while True:
            sql = table.select(kind, where + (table.after if after else "TRUE"))
            with command_connection(self._folder, read_only=True) as connection:
                rows = connection.execute(sql, (*values, *after, ROWS_PER_PAGE)).fetchall()
            if not rows:
                return
            yield [record_of(kind, dict(zip(names, row[keys:], strict=True))) for row in rows]
            after = rows[-1][:keys]

    async def put(self, records: Sequence[Record]) -> None:
        if not records:
            return
        kind = type(records[0])
        table = TABLES[kind]
        with command_connection(self._folder, read_only=False) as connection, writing(connection):
            connection.executemany(table.insert(kind), [table.values(record) for record in records])
            for record in records:
                _put_beside(connection, record)

    async def positions(self, chat_id: str, after: int) -> AsyncIterator[list[StoredEntry]]:
        sql = (
            "SELECT sequence, wire FROM entries WHERE chat_no = (SELECT chat_no FROM chats WHERE chat_id = ?)"
            " AND sequence > ? ORDER BY sequence LIMIT ?"
        )
        while True:
            with command_connection(self._folder, read_only=True) as connection:
                rows = connection.execute(sql, (chat_id, after, ENTRIES_PER_PAGE)).fetchall()
            if not rows:
                return
            yield [StoredEntry(cast(int, sequence), cast("bytes | None", wire)) for sequence, wire in rows]
            after = cast(int, rows[-1][0])

    async def put_positions(self, chat_id: str, positions: Sequence[StoredEntry]) -> None:
        with command_connection(self._folder, read_only=False) as connection, writing(connection):
            chat_no: int = connection.execute("SELECT chat_no FROM chats WHERE chat_id = ?", (chat_id,)).get
            people: dict[str, int] = {}
            for position in positions:
                _put_position(connection, chat_no, position, people)

    async def log_ends(self, chat_ids: Sequence[str]) -> dict[str, int]:
        sql = "SELECT max(sequence) FROM entries JOIN chats USING (chat_no) WHERE chat_id = ?"
        with command_connection(self._folder, read_only=True) as connection:
            return {chat_id: int(connection.execute(sql, (chat_id,)).get or 0) for chat_id in chat_ids}

    async def settle(self, groups: Sequence[str], now_ms: int) -> None:
        sql = "INSERT OR REPLACE INTO consumer_offsets SELECT ?, coalesce(max(position), 0) FROM entries"
        with command_connection(self._folder, read_only=False) as connection, writing(connection):
            connection.executemany(sql, [(group,) for group in groups])
            renew_changes(connection, now_ms)

    async def begin_anew(self, now_ms: int) -> int:
        with command_connection(self._folder, read_only=False) as connection, writing(connection):
            begin_anew(connection, now_ms)
            return int(connection.execute("SELECT count(*) FROM chats").get)


def _put_position(
    connection: apsw.Connection, chat_no: int, position: StoredEntry, people: dict[str, int]
) -> None:
    there = connection.execute(
        "SELECT 1 FROM entries WHERE chat_no = ? AND sequence = ?", (chat_no, position.sequence)
    ).fetchall()
    if there:
        return
    row: Row = (chat_no, position.sequence, schema.VOID, None, None, None, None)
    if position.wire is not None:
        entry = decode_entry(position.wire)
        counts = entry.kind == Kind.MESSAGE.value and entry.deleted is not True
        kind = schema.MESSAGE if counts else schema.OTHER
        if entry.sender_id not in people:
            sql = "SELECT user_no FROM user_numbers WHERE user_id = ?"
            people[entry.sender_id] = connection.execute(sql, (entry.sender_id,)).get
        key = ids.client_key(entry.client_message_id or "")
        if key is not None:
            # An engine that forgets ids may have taken one twice: the newer message answers for it.
            connection.execute(
                "UPDATE entries SET client_id = NULL WHERE chat_no = ? AND client_id = ?", (chat_no, key)
            )
        message_key = ids.message_key(entry.message_id)
        sender_no = people[entry.sender_id]
        row = (chat_no, position.sequence, kind, sender_no, key, message_key, position.wire)
    connection.execute(
        "INSERT INTO entries (chat_no, sequence, kind, sender_no, client_id, message_id, wire)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        row,
    )


def _put_beside(connection: apsw.Connection, record: Record) -> None:
    """What a record has in a second table."""
    match record:
        case ChatRecord(chat=chat):
            if record.counter is not None:
                connection.execute(
                    "INSERT OR REPLACE INTO chat_counters (chat_id, sequence_counter, created_at, updated_at,"
                    " recovered_at, recovered_from_sequence, change) VALUES (?, ?, ?, ?, ?, ?,"
                    " (SELECT last FROM changes))",
                    (
                        chat.chat_id,
                        record.counter,
                        chat.created_at,
                        chat.updated_at,
                        record.recovered_at,
                        record.recovered_from_sequence,
                    ),
                )
        case MemberStateRecord(is_unasked=is_unasked):
            connection.execute(
                "UPDATE chat_memberships SET is_unasked = ? WHERE chat_id = ? AND user_id = ?",
                (is_unasked, record.chat_id, record.user_id),
            )
        case _:
            pass
