"""The `Inspection` port on SQLite: the rows of the file, while a server may use it.

Each page is a read transaction of its own: a page is a snapshot, memory stays small, and a server's
checkpoints never wait for long.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import apsw
import msgspec

from parley import ids
from parley.store.invariants import Breach
from parley.store.rows import (
    ArchiveMark,
    ChatRow,
    CounterRow,
    EntryRow,
    KeyRow,
    LogChunk,
    MemberRow,
    PositionRow,
)
from parley.store.sqlite import schema
from parley.store.sqlite.command_connection import DAMAGED, CommandReader, Row
from parley.wire.codec import decode_entry

ROWS_PER_PAGE = 2_000
CHATS_PER_PAGE = 500
ENTRIES_PER_CHUNK = 2_000
KEYS_PER_PAGE = 5_000
PEOPLE_REMEMBERED_MAX = 10_000
FILE_PROBLEMS_MAX = 20
ORPHANS_LISTED_MAX = 10
"""Of each table: a problem of one row is often a problem of thousands."""
BEFORE_EVERYTHING = (-(2**62), 0)

CHATS = (
    "SELECT chat_no, chat_id, chat_type, epoch, direct_key, direct_key IS NULL OR"
    " (SELECT count(*) FROM chats AS twin WHERE twin.direct_key = chats.direct_key) = 1,"
    " archived_through, trimmed_through, version, manifest"
    " FROM chats LEFT JOIN chat_archives USING (chat_id)"
)
MEMBERS = """
SELECT user_id, role, joined_sequence,
    EXISTS (SELECT 1 FROM users AS u WHERE u.user_id = m.user_id),
    EXISTS (
        SELECT 1 FROM delivery_state AS d
        WHERE d.user_id = m.user_id AND d.chat_id = m.chat_id AND NOT d.has_left
    )
FROM chat_memberships AS m WHERE chat_id = ? AND user_id > ? ORDER BY user_id LIMIT ?
"""
ENTRIES = (
    "SELECT position, sequence, kind, sender_no, client_id, message_id, wire FROM entries"
    " WHERE chat_no = ? AND (sequence, position) > (?, ?) ORDER BY sequence, position LIMIT ?"
)
COUNTER = "SELECT sequence_counter, change, (SELECT last FROM changes) FROM chat_counters WHERE chat_id = ?"
TRIMMED_NOW = "SELECT trimmed_through FROM chat_archives WHERE chat_id = ?"
OPEN = "SELECT sequence, allocated_at_ms FROM open_allocations WHERE chat_no = ? AND sequence > ?"
KEYS = (
    "SELECT client_id, min(sequence), max(sequence) FROM entries"
    " WHERE chat_no = ? AND client_id > ? GROUP BY client_id ORDER BY client_id LIMIT ?"
)
TRIMMED = "coalesce((SELECT trimmed_through FROM chat_archives AS a WHERE a.chat_id = chats.chat_id), 0)"
IS_STORED = (
    "(EXISTS (SELECT 1 FROM entries AS e WHERE e.chat_no = chats.chat_no AND e.sequence = at)"
    f" OR at <= {TRIMMED})"
)
LOG_END = (
    f"max(coalesce((SELECT max(sequence) FROM entries AS e WHERE e.chat_no = chats.chat_no), 0), {TRIMMED})"
)
DEVICE_POSITIONS = f"""
SELECT chat_no, chat_id, user_id || ' on ' || device_id, at, 0, at < 1 OR {IS_STORED}, {LOG_END}, 0,
    user_id, device_id, chat_id
FROM (SELECT *, last_acked_sequence AS at FROM user_device_cursors
    WHERE (user_id, device_id, chat_id) > (?, ?, ?)
    ORDER BY user_id, device_id, chat_id LIMIT ?)
LEFT JOIN chats USING (chat_id) ORDER BY user_id, device_id, chat_id
"""
PEOPLE_POSITIONS = f"""
SELECT chat_no, chat_id, user_id, at, read_up_to, at < 1 OR {IS_STORED}, {LOG_END},
    change > (SELECT last FROM changes), user_id, chat_id
FROM (SELECT *, last_acked_sequence AS at FROM delivery_state
    WHERE (user_id, chat_id) > (?, ?)
    ORDER BY user_id, chat_id LIMIT ?)
LEFT JOIN chats USING (chat_id) ORDER BY user_id, chat_id
"""
REFERENCES = [
    ("chat_counters", "chat_id", "chat_id", "chats", "chat_id"),
    ("chat_memberships", "chat_id", "chat_id", "chats", "chat_id"),
    ("user_device_cursors", "chat_id", "chat_id", "chats", "chat_id"),
    ("delivery_state", "chat_id", "chat_id", "chats", "chat_id"),
    ("open_allocations", "chat_no", "chat_no", "chats", "chat_no"),
    ("chat_archives", "chat_id", "chat_id", "chats", "chat_id"),
]
"""A table, an expression that names its rows, a column, and the table and column that it refers to."""


class SqliteInspection:
    not_shown: frozenset[str] = frozenset()
    chats_at_once_max = 1

    def __init__(self, folder: Path) -> None:
        self._reader = CommandReader(folder)
        self._rows = self._reader.rows
        self._user_ids: dict[int, str | None] = {}

    def close(self) -> None:
        self._reader.close()

    async def chat_count(self) -> int:
        return int(self._rows("SELECT count(*) FROM chats")[0][0])

    async def chats(self, chat_ids: Sequence[str] | None) -> AsyncIterator[list[ChatRow]]:
        if chat_ids is not None:
            by_id = f"{CHATS} WHERE chat_id = ?"
            yield [_chat(row) for name in dict.fromkeys(chat_ids) for row in self._rows(by_id, (name,))]
            return
        after, page = -1, f"{CHATS} WHERE chat_no > ? ORDER BY chat_no LIMIT ?"
        while rows := self._rows(page, (after, CHATS_PER_PAGE)):
            yield [_chat(row) for row in rows]
            after = rows[-1][0]

    async def members(self, chat: ChatRow) -> AsyncIterator[list[MemberRow]]:
        after = ""
        while rows := self._rows(MEMBERS, (chat.chat_id, after, ROWS_PER_PAGE)):
            yield [
                MemberRow(user_id, role, joined, bool(has_account), bool(in_overview))
                for user_id, role, joined, has_account, in_overview in rows
            ]
            after = rows[-1][0]

    # The log

    async def log(self, chat: ChatRow) -> AsyncIterator[LogChunk]:
        chat_no = self._chat_no(chat)
        after = (chat.trimmed_through, 2**62) if chat.trimmed_through else BEFORE_EVERYTHING
        while True:
            with self._reader.snapshot():
                counter = self._rows(COUNTER, (chat.chat_id,))
                rows = self._rows(ENTRIES, (chat_no, *after, ENTRIES_PER_CHUNK))
                unresolved = self._rows(OPEN, (chat_no, after[0]))
                trimmed = self._rows(TRIMMED_NOW, (chat.chat_id,))
            is_last = len(rows) < ENTRIES_PER_CHUNK or not isinstance(rows[-1][1], int)
            chunk = LogChunk(
                [self._entry(row) for row in rows],
                open=dict(unresolved),
                trimmed_through=trimmed[0][0] if trimmed else 0,
            )
            if is_last:
                value, change, change_last = counter[0] if counter else (None, 0, 0)
                chunk.end = CounterRow(value, change=change, change_last=change_last)
            yield chunk
            if is_last:
                return
            after = rows[-1][1], rows[-1][0]

    def _chat_no(self, chat: ChatRow) -> int:
        rows = self._rows("SELECT chat_no FROM chats WHERE chat_id = ?", (chat.chat_id,))
        return int(rows[0][0]) if rows else 0

    def _entry(self, row: Row) -> EntryRow:
        position, sequence, kind, sender_no, client_key, message_id, wire = row
        if kind == schema.VOID:
            has_content = not (client_key is message_id is wire is None)
            return EntryRow(sequence, True, has_content=has_content)
        if wire is None:
            return EntryRow(sequence, False)
        try:
            entry = decode_entry(wire)
        except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as error:
            return EntryRow(sequence, False, damage=str(error))
        counts = entry.kind == "message" and entry.deleted is not True
        expected = schema.MESSAGE if counts else schema.OTHER
        return EntryRow(
            sequence,
            False,
            entry.kind if kind == expected else "",
            entry,
            message_id=None if message_id is None else _message_id(message_id),
            sender_id=None if sender_no is None else self._user_id(sender_no),
            client_key=client_key,
            position=position,
        )

    def _user_id(self, user_no: int) -> str | None:
        if user_no not in self._user_ids:
            if len(self._user_ids) >= PEOPLE_REMEMBERED_MAX:
                self._user_ids.clear()
            rows = self._rows("SELECT user_id FROM user_numbers WHERE user_no = ?", (user_no,))
            self._user_ids[user_no] = rows[0][0] if rows else None
        return self._user_ids[user_no]

    async def keys(self, chat: ChatRow) -> AsyncIterator[list[KeyRow]]:
        """A key is a column of its entry, so it always points to it, and perhaps to another one, too."""
        chat_no, after = self._chat_no(chat), b""
        while rows := self._rows(KEYS, (chat_no, after, KEYS_PER_PAGE)):
            page = [KeyRow(key, first) for key, first, _ in rows]
            page += [KeyRow(key, last) for key, first, last in rows if last != first]
            yield sorted(page, key=lambda row: row.key) if len(page) > len(rows) else page
            after = rows[-1][0]

    # Positions

    async def positions(self, chat_ids: Sequence[str] | None) -> AsyncIterator[list[PositionRow]]:
        chosen = None if chat_ids is None else set(chat_ids)
        for table, sql, key_columns in (
            ("user_device_cursors", DEVICE_POSITIONS, 3),
            ("delivery_state", PEOPLE_POSITIONS, 2),
        ):
            after: Row = ("",) * key_columns
            while rows := self._rows(sql, (*after, ROWS_PER_PAGE)):
                yield [
                    PositionRow(table, chat_id, whose, acked, read, bool(stored), end or 0, bool(ahead))
                    for chat_no, chat_id, whose, acked, read, stored, end, ahead, *_ in rows
                    if chat_no is not None and (chosen is None or chat_id in chosen)
                ]
                after = rows[-1][-key_columns:]

    # Breaches that only a file can have

    async def own_breaches(self, chat_ids: Sequence[str] | None, *, whole: bool) -> AsyncIterator[Breach]:
        if chat_ids is not None:
            return
        for breach in (*self._schema_breaches(), *self._reference_breaches()):
            yield breach
        if whole:
            for (problem,) in self._rows(f"PRAGMA quick_check({FILE_PROBLEMS_MAX})"):
                if problem != "ok":
                    yield Breach("file_integrity", str(problem), DAMAGED)

    def _schema_breaches(self) -> Iterator[Breach]:
        """Compare with a new store: without its unique index, a table may hold duplicates."""
        fresh = apsw.Connection(":memory:")
        schema.advance(fresh, len(schema.MIGRATIONS))
        expected = _schema(fresh.execute(SCHEMA).fetchall())
        found = _schema(self._rows(SCHEMA))
        for name, sql in expected.items():
            if found.get(name) != sql:
                how = "is missing" if name not in found else "differs from this version's"
                remedy = "restore the file from a backup, or create it as in a new store"
                yield Breach("schema", f"{name} {how}", remedy)

    def _reference_breaches(self) -> Iterator[Breach]:
        for table, named_by, column, target, target_column in REFERENCES:
            sql = (
                f"SELECT DISTINCT {named_by} FROM {table} WHERE NOT EXISTS"
                f" (SELECT 1 FROM {target} WHERE {target}.{target_column} = {table}.{column})"
                f" LIMIT {ORPHANS_LISTED_MAX}"
            )
            for (name,) in self._rows(sql):
                problem = f"{table}: {name} refers to a row that does not exist"
                yield Breach("references", problem, f"delete the row from {table}")
        for chat_no in self._orphaned_logs():
            problem = f"entries: there is no chat with number {chat_no}"
            yield Breach("references", problem, "restore a backup")

    def _orphaned_logs(self) -> Iterator[int]:
        """Skip from log to log with the index, without reading the entries in between."""
        chat_no: int | None = -1
        while True:
            chat_no = self._rows("SELECT min(chat_no) FROM entries WHERE chat_no > ?", (chat_no,))[0][0]
            if chat_no is None:
                return
            if not self._rows("SELECT 1 FROM chats WHERE chat_no = ?", (chat_no,)):
                yield chat_no


SCHEMA = (
    "SELECT type || ' ' || name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"
)


def _schema(rows: list[Row]) -> dict[str, str]:
    return {name: " ".join(sql.split()) for name, sql in rows}


def _chat(row: Row) -> ChatRow:
    _, chat_id, chat_type, epoch, key, is_keyed, archived, trimmed, version, manifest = row
    mark = ArchiveMark(
        archived_through=archived or 0,
        trimmed_through=trimmed or 0,
        version=version or 0,
        manifest=manifest or "",
    )
    return ChatRow(chat_id, chat_type, epoch, key, bool(is_keyed), trimmed or 0, archive=mark)


def _message_id(key: bytes) -> str:
    number = int.from_bytes(key, "big")
    return ids.MESSAGE + ids.ulid(number >> ids.RANDOM_BITS, number)
