"""Storage for what must survive the process: unacknowledged messages, and this device's cursors.

`SqliteStorage` writes them to one file, durable before `commit` returns; `MemoryStorage` saves nothing.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from parley.client.errors import OutboxUnusable
from parley.clock import iso
from parley.model import Kind

FILE_MODE = 0o600
OTHERS = stat.S_IRWXG | stat.S_IRWXO
SCHEMA_VERSION = 8
SCHEMA = """
    CREATE TABLE outbox (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        chat_id TEXT NOT NULL,
        client_message_id TEXT NOT NULL,
        content TEXT NOT NULL,
        content_type TEXT NOT NULL,
        display_time TEXT,
        created_at_ms INTEGER NOT NULL,
        mentions TEXT NOT NULL DEFAULT '[]',
        reply_to TEXT,
        kind TEXT NOT NULL DEFAULT 'message',
        target_id TEXT NOT NULL DEFAULT '',
        is_on INTEGER NOT NULL DEFAULT 1,
        attachments TEXT NOT NULL DEFAULT '[]',
        UNIQUE (chat_id, client_message_id)
    );
    CREATE TABLE cursors (
        chat_id TEXT PRIMARY KEY,
        epoch INTEGER NOT NULL,
        last_acked_sequence INTEGER NOT NULL,
        message_id TEXT,
        log_hash BLOB
    ) WITHOUT ROWID;
    CREATE TABLE owner (user_id TEXT NOT NULL, device_id TEXT NOT NULL);
"""

UPGRADES = {
    1: "ALTER TABLE outbox ADD COLUMN mentions TEXT NOT NULL DEFAULT '[]'",
    2: "ALTER TABLE cursors ADD COLUMN log_hash BLOB",
    3: "ALTER TABLE outbox ADD COLUMN reply_to TEXT",
    4: "ALTER TABLE outbox ADD COLUMN kind TEXT NOT NULL DEFAULT 'message'",
    5: "ALTER TABLE outbox ADD COLUMN target_id TEXT NOT NULL DEFAULT ''",
    6: "ALTER TABLE outbox ADD COLUMN is_on INTEGER NOT NULL DEFAULT 1",
    7: "ALTER TABLE outbox ADD COLUMN attachments TEXT NOT NULL DEFAULT '[]'",
}
"""From each older format to the next one."""

MessageKey = tuple[str, str]
"""Chat and client_message_id."""


class OutgoingMessage(Struct, frozen=True, kw_only=True):
    """A message that is not yet acknowledged; `display_time` is when the person sent it.

    Or an edit, a delete or a reaction (`kind`) of the message `target_id`.
    """

    chat_id: str
    client_message_id: str
    content: str
    content_type: str = "text/plain"
    display_time: str | None = None
    created_at_ms: int
    mentions: tuple[str, ...] = ()
    reply_to: str | None = None
    kind: str = Kind.MESSAGE.value
    target_id: str = ""
    is_on: bool = True
    attachments: tuple[str, ...] = ()

    @property
    def key(self) -> MessageKey:
        return (self.chat_id, self.client_message_id)


MESSAGE_COLUMNS = ", ".join(OutgoingMessage.__struct_fields__)
LISTS = ("mentions", "attachments")
"""Columns that hold a list of texts, as JSON."""
PLACES = ", ".join("?" for _ in OutgoingMessage.__struct_fields__)


class Cursor(Struct, frozen=True):
    """A position in a log. Epoch 0 is unknown. A void, or a position from the server, has no message_id.

    `log_hash`: the hash of what was read up to here, if everything was.
    """

    epoch: int = 0
    sequence: int = 0
    message_id: str | None = None
    log_hash: bytes | None = None


class StateChanges(Struct):
    """What one commit makes durable."""

    added: list[OutgoingMessage] = []
    removed: list[MessageKey] = []
    cursors: dict[str, Cursor] = {}

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.cursors)


class SavedState(Struct):
    """The state of an earlier run; messages in the order in which they were sent."""

    outgoing: list[OutgoingMessage] = []
    cursors: dict[str, Cursor] = {}


class ClientStorage(Protocol):
    """Saves the client's state."""

    blocking: bool
    """Whether `commit` waits for a disk and belongs in a thread."""

    def load(self) -> SavedState:
        """Everything saved so far."""
        ...

    def claim(self, user_id: str, device_id: str) -> None:
        """Bind it to one device of one person. OutboxUnusable if it belongs to another one."""
        ...

    def commit(self, changes: StateChanges) -> None:
        """Save all changes or none, durable before it returns. OutboxUnusable if that fails."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class MemoryStorage:
    """Saves nothing: the client's own memory is the outbox."""

    blocking = False

    def load(self) -> SavedState:
        return SavedState()

    def claim(self, user_id: str, device_id: str) -> None:
        pass

    def commit(self, changes: StateChanges) -> None:
        pass

    def close(self) -> None:
        pass


class SqliteStorage:
    """One SQLite file, synced at every commit, locked by one process at a time."""

    blocking = True

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            _make_private(path)
            # Commits run in a worker thread, one at a time.
            self._db = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        except (sqlite3.Error, OSError) as error:
            raise OutboxUnusable.because(path, _reason(error)) from error
        try:
            self._prepare()
        except sqlite3.Error as error:
            self._db.close()
            raise OutboxUnusable.because(path, _reason(error)) from error
        except OutboxUnusable:
            self._db.close()
            raise

    def _prepare(self) -> None:
        # Two processes on one outbox would interleave one device's messages.
        self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        with self._transaction():
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            if version == 0:
                for statement in SCHEMA.split(";"):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            elif version in UPGRADES:
                for older in range(version, SCHEMA_VERSION):
                    self._db.execute(UPGRADES[older])
                self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            elif version != SCHEMA_VERSION:
                raise OutboxUnusable.because(self._path, f"it has format {version}, not {SCHEMA_VERSION}")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def load(self) -> SavedState:
        rows = self._db.execute(f"SELECT {MESSAGE_COLUMNS} FROM outbox ORDER BY number")
        messages = [_message(row) for row in rows]
        positions = self._db.execute(
            "SELECT chat_id, epoch, last_acked_sequence, message_id, log_hash FROM cursors"
        )
        cursors = {chat_id: Cursor(*cursor) for chat_id, *cursor in positions}
        return SavedState([_with_display_time(message) for message in messages], cursors)

    def claim(self, user_id: str, device_id: str) -> None:
        try:
            owner = self._db.execute("SELECT user_id, device_id FROM owner").fetchone()
            if owner is None:
                self._db.execute("INSERT INTO owner VALUES (?, ?)", (user_id, device_id))
        except sqlite3.Error as error:
            raise OutboxUnusable.because(self._path, _reason(error)) from error
        if owner not in (None, (user_id, device_id)):
            raise OutboxUnusable.because(self._path, f"it belongs to {owner[0]} on device {owner[1]}")

    def commit(self, changes: StateChanges) -> None:
        try:
            with self._transaction():
                self._write(changes)
        except sqlite3.Error as error:
            raise OutboxUnusable.because(self._path, _reason(error)) from error

    def _write(self, changes: StateChanges) -> None:
        self._db.executemany(
            "DELETE FROM outbox WHERE chat_id = ? AND client_message_id = ?", changes.removed
        )
        self._db.executemany(
            f"INSERT INTO outbox ({MESSAGE_COLUMNS}) VALUES ({PLACES})",
            [_row(message) for message in changes.added],
        )
        self._db.executemany(
            "INSERT OR REPLACE INTO cursors VALUES (?, ?, ?, ?, ?)",
            [(chat_id, *msgspec.structs.astuple(cursor)) for chat_id, cursor in changes.cursors.items()],
        )

    def close(self) -> None:
        self._db.close()


def _row(message: OutgoingMessage) -> tuple[object, ...]:
    values = msgspec.structs.asdict(message)
    for name in LISTS:
        values[name] = msgspec.json.encode(values[name]).decode()
    return tuple(values.values())


def _message(row: tuple[Any, ...]) -> OutgoingMessage:
    values = dict(zip(OutgoingMessage.__struct_fields__, row, strict=True))
    for name in LISTS:
        values[name] = msgspec.json.decode(values[name], type=tuple[str, ...])
    return OutgoingMessage(**values | {"is_on": bool(values["is_on"])})


def _make_private(path: str) -> None:
    """Messages are private: only this user may read the file, its log too, also one that was copied here."""
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, FILE_MODE))
    for name in (path, f"{path}-wal"):
        if os.path.exists(name) and os.stat(name).st_mode & OTHERS:
            os.chmod(name, FILE_MODE)


def _with_display_time(message: OutgoingMessage) -> OutgoingMessage:
    """Earlier versions did not save `display_time`: the message was sent when it was queued."""
    if message.display_time is not None:
        return message
    return msgspec.structs.replace(message, display_time=iso(message.created_at_ms))


def open_storage(path: str | None) -> ClientStorage:
    """Storage in a file, or in memory when there is no path."""
    return MemoryStorage() if path is None else SqliteStorage(path)


def _reason(error: sqlite3.Error | OSError) -> object:
    if isinstance(error, OSError):
        return error.strerror
    is_busy = isinstance(error, sqlite3.OperationalError) and error.sqlite_errorname == "SQLITE_BUSY"
    return "another process has it open" if is_busy else error
