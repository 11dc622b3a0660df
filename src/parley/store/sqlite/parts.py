"""A store as files that a backup keeps, and back: entries in commit order, and a snapshot of the rest.

The table of entries only grows, in commit order, so a range of it never changes and is kept once. All other
tables are small beside it, and change everywhere: each backup holds them whole. Every part is an SQLite
file of its own, with the rows as they are.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import apsw

from parley.errors import StoreUnavailable
from parley.store.backup import EntryRange, SnapshotParts, StoredFile, StoreState
from parley.store.folder import DATABASE_NAME, FOLDER_MODE, create_private
from parley.store.rows import EVERYTHING, ArchiveMark
from parley.store.sqlite import schema
from parley.store.sqlite.command_connection import Row, command_connection, writing
from parley.store.sqlite.moved import MOVED

PART_BYTES_MAX = 32 * 1024 * 1024
PART_ENTRIES_MAX = 100_000
"""What one part holds of the log: a part is compressed and checked in memory."""
TAIL_ENTRIES = 100
"""By so many entries a log is recognised as the one that a backup continues."""

SIZES = (
    "SELECT position, coalesce(length(wire), 0) FROM entries WHERE position > ? AND position <= ?"
    " ORDER BY position LIMIT ?"
)
TAIL = (
    "SELECT position, chat_no, sequence, message_id FROM entries WHERE position <= ?"
    " ORDER BY position DESC LIMIT ?"
)
"""What no erasure changes of an entry."""
LAST_REWRITE = "SELECT coalesce(max(number), 0) FROM rewritten_spans"
REWRITTEN = "SELECT span FROM rewritten_spans WHERE number > ? ORDER BY span"
REWRITTEN_ENTRIES = (
    "CREATE TABLE part.rewritten_entries AS SELECT position, kind, wire FROM main.entries WHERE position <= ?"
    f" AND position / {schema.REWRITTEN_SPAN} IN (SELECT span FROM main.rewritten_spans WHERE number > ?)"
)
REWRITE = (
    "UPDATE main.entries SET wire = new.wire, kind = new.kind FROM part.rewritten_entries AS new"
    " WHERE new.position = entries.position AND new.wire IS NOT entries.wire"
)
MARKS = (
    "SELECT chat_id, archived_through, trimmed_through, version, manifest FROM part.chat_archives"
    " WHERE version > 0"
)
OLD_FILES = "SELECT * FROM part.attachments"
FILES_AS_RECORDS = """
SELECT record ->> 'chat_id' AS chat_id, record ->> 'attachment_id' AS attachment_id,
    record ->> 'size' AS size, record ->> 'sha256' AS sha256, record ->> 'state' AS state,
    coalesce(record ->> 'sequence', 0) AS sequence
FROM part.records WHERE kind = 'attachments'
"""
FILES = """
SELECT attachment_id, size, sha256, state = 'removing' FROM ({}) AS file
WHERE state IN ('complete', 'claimed', 'attached') OR (state = 'removing' AND sequence > 0 AND NOT EXISTS (
    SELECT 1 FROM main.entries JOIN main.chats USING (chat_no)
    WHERE chat_id = file.chat_id AND entries.sequence = file.sequence
        AND instr(coalesce(wire, ''), attachment_id) = 0
))
ORDER BY attachment_id
"""
"""Not what is being uploaded, or is removed but for its bytes: its message has lost it."""
LOGS = (
    "CREATE TABLE part.backed_up_logs AS SELECT chat_no, count(*) AS entries, min(sequence) AS first,"
    " max(sequence) AS last FROM main.entries GROUP BY chat_no"
)
RANGE = (
    "CREATE TABLE log.entries AS SELECT * FROM main.entries WHERE position > ? AND position <= ?"
    " ORDER BY position"
)
TABLES = "SELECT name FROM pragma_table_list WHERE schema = ? AND type = 'table' AND name NOT LIKE 'sqlite_%'"
COLUMNS = "SELECT name FROM pragma_table_info(?, ?) ORDER BY cid"
DIFFERENT_LOGS = """
SELECT logs.chat_no FROM part.backed_up_logs AS logs LEFT JOIN
    (SELECT chat_no, count(*) AS entries, min(sequence) AS first, max(sequence) AS last
        FROM main.entries GROUP BY chat_no) AS found USING (chat_no)
WHERE (logs.entries, logs.first, logs.last) IS NOT (found.entries, found.first, found.last) LIMIT 1
"""
TRIMMED = (
    "DELETE FROM main.entries WHERE sequence < coalesce((SELECT first FROM part.backed_up_logs AS logs"
    " WHERE logs.chat_no = main.entries.chat_no), sequence + 1)"
)
"""Entries that were there when their part was written, and were trimmed before the snapshot."""


class SqliteParts:
    """The store of a folder, as a `BackupSource`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def tail(self, through: int) -> str | None:
        """A digest of the last entries up to a position; None if the store has no entry there."""
        with command_connection(self._folder, read_only=True) as connection:
            rows = connection.execute(TAIL, (through, TAIL_ENTRIES)).fetchall()
        return _digest(rows) if rows and rows[0][0] == through else None

    def last_rewrite(self) -> int | None:
        with command_connection(self._folder, read_only=True) as connection:
            if "rewritten_spans" not in _tables(connection, "main"):
                return None
            return int(connection.execute(LAST_REWRITE).get)

    def rewritten(self, since: int) -> list[tuple[int, int]]:
        with command_connection(self._folder, read_only=True) as connection:
            spans = [span for (span,) in connection.execute(REWRITTEN, (since,))]
        size = schema.REWRITTEN_SPAN
        return [(span * size, span * size + size - 1) for span in spans]

    def entries(self, after: int) -> tuple[EntryRange, bytes] | None:
        return self._part(after, EVERYTHING, must_be_full=True)

    def stretch(self, after: int, through: int) -> tuple[EntryRange, bytes]:
        found = self._part(after, through, must_be_full=False)
        assert found is not None
        return found

    def _part(self, after: int, end: int, *, must_be_full: bool) -> tuple[EntryRange, bytes] | None:
        with command_connection(self._folder, read_only=False) as connection:
            _attach(connection, "log")
            with _snapshot(connection):
                through, is_full = _end_of_part(connection, after, end)
                if must_be_full and not is_full:
                    return None
                found = _take_range(connection, after, through if is_full else end)
            return found, connection.serialize("log")

    def rest(self, after: int, since: int) -> SnapshotParts:
        with command_connection(self._folder, read_only=False) as connection:
            _attach(connection, "log")
            _attach(connection, "part")
            with _snapshot(connection):
                through: int = connection.execute("SELECT coalesce(max(position), 0) FROM main.entries").get
                entries = _take_range(connection, after, max(after, through))
                for name in _tables(connection, "main"):
                    if name != "entries":
                        connection.execute(f"CREATE TABLE part.{name} AS SELECT * FROM main.{name}")
                connection.execute(LOGS)
                if "rewritten_spans" in _tables(connection, "main"):
                    connection.execute(REWRITTEN_ENTRIES, (after, since))
                state = _state(connection)
            return SnapshotParts(
                entries=entries,
                entries_part=connection.serialize("log"),
                state=state,
                state_part=connection.serialize("part"),
            )


def _end_of_part(connection: apsw.Connection, after: int, end: int) -> tuple[int, bool]:
    through, size, count = after, 0, 0
    for position, length in connection.execute(SIZES, (after, end, PART_ENTRIES_MAX)):
        through, size, count = position, size + length, count + 1
        if size >= PART_BYTES_MAX:
            break
    return through, size >= PART_BYTES_MAX or count >= PART_ENTRIES_MAX


def _take_range(connection: apsw.Connection, after: int, through: int) -> EntryRange:
    connection.execute(RANGE, (after, through))
    return EntryRange(after, through, int(connection.execute("SELECT count(*) FROM log.entries").get))


def _attach(connection: apsw.Connection, name: str) -> None:
    """In memory: a part that went over the disk would delay the server's own commits."""
    connection.execute(f"ATTACH ':memory:' AS {name}")


class _snapshot:  # noqa: N801 - reads like a function in a with statement
    """One transaction that only reads the store: it takes no lock that a writer waits for."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._connection.execute("COMMIT" if kind is None else "ROLLBACK")


def _state(connection: apsw.Connection) -> StoreState:
    are_records = "user_numbers" in _tables(connection, "part")
    people_of = "part.records WHERE kind = 'people'" if are_records else "part.users"
    chats, people = (
        int(connection.execute(f"SELECT count(*) FROM {rows}").get) for rows in ("part.chats", people_of)
    )
    marks = {}
    if "chat_archives" in _tables(connection, "part"):
        for chat_id, archived, trimmed, version, manifest in connection.execute(MARKS):
            marks[chat_id] = ArchiveMark(
                archived_through=archived, trimmed_through=trimmed, version=version, manifest=manifest
            )
    files = []
    tables = _tables(connection, "part")
    kept = FILES_AS_RECORDS if "records" in tables else OLD_FILES if "attachments" in tables else None
    if kept is not None:
        for attachment_id, size, sha256, is_going in connection.execute(FILES.format(kept)):
            files.append(StoredFile(attachment_id, size, sha256, bool(is_going)))
    return StoreState(schema.version_of(connection), chats, people, marks, files)


def _tables(connection: apsw.Connection, database: str) -> list[str]:
    """The plain tables. Those of an index that is derived from them (FTS) are made anew."""
    return [name for (name,) in connection.execute(TABLES, (database,))]


def _digest(rows: list[Row]) -> str:
    found = hashlib.sha256()
    for row in rows:
        for value in row:
            data = value if isinstance(value, bytes) else str(value).encode()
            found.update(len(data).to_bytes(8, "big") + data)
    return found.hexdigest()


# Restoring


class SqliteRebuild:
    """A `RestoreTarget` in a folder that is not served yet."""

    def __init__(self, folder: Path, schema_version: int) -> None:
        """StoreUnavailable if the parts come from a newer Parley."""
        if schema_version > len(schema.MIGRATIONS):
            raise StoreUnavailable(
                f"the backup has schema version {schema_version}, this Parley knows"
                f" {len(schema.MIGRATIONS)}: use a newer Parley"
            )
        folder.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
        create_private(folder / DATABASE_NAME)
        self._connection = apsw.Connection(str(folder / DATABASE_NAME))
        self._connection.pragma("synchronous", "off")  # `finish` makes all of it durable
        schema.advance(self._connection, schema_version)

    def add_entries(self, part: bytes) -> int:
        before: int = self._connection.total_changes()
        self._from_part(part, lambda: self._insert("entries"))
        return self._connection.total_changes() - before

    def set_rest(self, part: bytes) -> None:
        def take() -> None:
            kept = set(_tables(self._connection, "part"))
            for name in kept & MOVED:  # a version of its time: what it had is moved by `finish`
                self._connection.execute(f"DROP TABLE IF EXISTS main.{name}")
                self._connection.execute(f"CREATE TABLE main.{name} AS SELECT * FROM part.{name}")
            for name in _tables(self._connection, "main"):
                if name == "entries" or name in MOVED:
                    continue
                if name not in kept:
                    raise StoreUnavailable(f"the backup has no table {name}")
                self._connection.execute(f"DELETE FROM main.{name}")
                self._insert(name)
            if "rewritten_entries" in kept:
                self._connection.execute(REWRITE)
            self._connection.execute(TRIMMED)
            for (chat_no,) in self._connection.execute(DIFFERENT_LOGS):
                raise StoreUnavailable(f"the backup has not all entries of the chat with number {chat_no}")

        self._from_part(part, take)

    def _insert(self, table: str) -> None:
        columns = ", ".join(name for (name,) in self._connection.execute(COLUMNS, (table, "part")))
        self._connection.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM part.{table}")

    def _from_part(self, part: bytes, work: Callable[[], None]) -> None:
        self._connection.execute("ATTACH ':memory:' AS part")
        try:
            self._connection.deserialize("part", part)
            with writing(self._connection):
                work()
        except apsw.Error as error:
            raise StoreUnavailable(f"a part of the backup cannot be used: {error}") from error
        finally:
            self._connection.execute("DETACH part")

    def finish(self, now_ms: int, *, ends_sessions: bool) -> None:
        """Make of it a store that no client takes for the one it knew, on the disk."""
        schema.migrate(self._connection)
        with writing(self._connection):
            begin_anew(self._connection, now_ms)
            if ends_sessions:
                self._connection.execute("DELETE FROM records WHERE kind IN ('sessions', 'user_sessions')")
        self._connection.pragma("synchronous", "full")
        self._connection.pragma("journal_mode", "wal")
        self._connection.close()

    def close(self) -> None:
        self._connection.close()


def begin_anew(connection: apsw.Connection, now_ms: int) -> None:
    """Give every chat an epoch that no earlier life of this store has given.

    The same backup may be restored twice, so it may not follow from the backup alone: it is the time of the
    restore, or the next number if that is higher.
    """
    connection.execute("UPDATE chats SET epoch = max(epoch + 1, ?)", (now_ms // 1_000,))
    renew_changes(connection, now_ms)


def renew_changes(connection: apsw.Connection, now_ms: int) -> None:
    """Every chat has changed, after whatever an earlier life of this store has told a device.

    No store makes more than a thousand changes each second of its life.
    """
    connection.execute("UPDATE changes SET last = max(last + 1, ?)", (now_ms,))
    for table in ("chat_counters", "delivery_state"):
        connection.execute(f"UPDATE {table} SET change = (SELECT last FROM changes)")


def move_into_place(built: Path, folder: Path) -> None:
    """The store has its name from one instant on, and keeps it after a power cut."""
    with open(built / DATABASE_NAME, "rb") as file:
        os.fsync(file.fileno())
    os.rename(built / DATABASE_NAME, folder / DATABASE_NAME)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
