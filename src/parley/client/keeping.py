"""What a client must not forget: unacknowledged messages and how far it is in each chat.

`SqliteKeeper` keeps it in one file, durable before `commit` returns; `MemoryKeeper` forgets with the process.
"""

from __future__ import annotations

import os
from typing import Protocol

import apsw
import msgspec
from msgspec import Struct

from parley.client.errors import OutboxUnusable
from parley.clock import iso

SCHEMA_VERSION = 1
SCHEMA = """
    CREATE TABLE outbox (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        chat_id TEXT NOT NULL,
        client_message_id TEXT NOT NULL,
        content TEXT NOT NULL,
        content_type TEXT NOT NULL,
        display_time TEXT,
        created_at_ms INTEGER NOT NULL,
        UNIQUE (chat_id, client_message_id)
    );
    CREATE TABLE cursors (
        chat_id TEXT PRIMARY KEY,
        epoch INTEGER NOT NULL,
        last_acked_sequence INTEGER NOT NULL,
        message_id TEXT
    ) WITHOUT ROWID;
    CREATE TABLE owner (user_id TEXT NOT NULL, device_id TEXT NOT NULL);
"""

MessageKey = tuple[str, str]
"""Chat and client_message_id."""


class Outgoing(Struct, frozen=True, kw_only=True):
    """A message that is not yet acknowledged, as it is kept; `display_time` is when the person sent it."""

    chat_id: str
    client_message_id: str
    content: str
    content_type: str = "text/plain"
    display_time: str | None = None
    created_at_ms: int

    @property
    def key(self) -> MessageKey:
        return (self.chat_id, self.client_message_id)


MESSAGE_COLUMNS = ", ".join(Outgoing.__struct_fields__)


class Cursor(Struct, frozen=True):
    """A position in a log; on a void, or told by the server, it has no message_id. Epoch 0: unknown."""

    epoch: int = 0
    sequence: int = 0
    message_id: str | None = None


class Changes(Struct):
    """What is to be made durable together."""

    added: list[Outgoing] = []
    removed: list[MessageKey] = []
    cursors: dict[str, Cursor] = {}

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.cursors)


class Kept(Struct):
    """What an earlier run left behind, messages in the order in which they were sent."""

    outgoing: list[Outgoing] = []
    cursors: dict[str, Cursor] = {}


class Keeper(Protocol):
    """Where a client keeps what must survive it."""

    blocking: bool
    """Whether `commit` waits for a disk and belongs in a thread."""

    def load(self) -> Kept:
        """Everything kept so far."""
        ...

    def claim(self, user_id: str, device_id: str) -> None:
        """Bind it to one person's device. OutboxUnusable if it is another's: nobody sends as another."""
        ...

    def commit(self, changes: Changes) -> None:
        """All of it or nothing, durable before it returns. OutboxUnusable if it cannot be."""
        ...

    def close(self) -> None:
        """Let go of the file."""
        ...


class MemoryKeeper:
    """Keeps nothing beyond the process; the client's own memory is the outbox."""

    blocking = False

    def load(self) -> Kept:
        return Kept()

    def claim(self, user_id: str, device_id: str) -> None:
        pass

    def commit(self, changes: Changes) -> None:
        pass

    def close(self) -> None:
        pass


class SqliteKeeper:
    """One SQLite file, synced at every commit, held by one process at a time."""

    blocking = True

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            # What people write to each other is for nobody else's eyes.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            self._db = apsw.Connection(path)
            self._prepare()
        except (apsw.Error, OSError) as error:
            raise OutboxUnusable.because(path, _explained(error)) from error

    def _prepare(self) -> None:
        # Two processes on one outbox would interleave one device's messages.
        self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        with self._db:
            version = self._db.pragma("user_version")
            if version == 0:
                self._db.execute(SCHEMA)
                self._db.pragma("user_version", SCHEMA_VERSION)
            elif version != SCHEMA_VERSION:
                raise OutboxUnusable.because(self._path, f"it has format {version}, not {SCHEMA_VERSION}")

    def load(self) -> Kept:
        rows = self._db.execute(f"SELECT {MESSAGE_COLUMNS} FROM outbox ORDER BY number")
        messages = [Outgoing(**dict(zip(Outgoing.__struct_fields__, row, strict=True))) for row in rows]
        positions = self._db.execute("SELECT chat_id, epoch, last_acked_sequence, message_id FROM cursors")
        cursors = {chat_id: Cursor(*cursor) for chat_id, *cursor in positions}
        return Kept([_timed(message) for message in messages], cursors)

    def claim(self, user_id: str, device_id: str) -> None:
        try:
            owner = self._db.execute("SELECT user_id, device_id FROM owner").fetchone()
            if owner is None:
                self._db.execute("INSERT INTO owner VALUES (?, ?)", (user_id, device_id))
        except apsw.Error as error:
            raise OutboxUnusable.because(self._path, _explained(error)) from error
        if owner not in (None, (user_id, device_id)):
            raise OutboxUnusable.because(self._path, f"it belongs to {owner[0]} on device {owner[1]}")

    def commit(self, changes: Changes) -> None:
        try:
            with self._db:
                self._write(changes)
        except apsw.Error as error:
            raise OutboxUnusable.because(self._path, _explained(error)) from error

    def _write(self, changes: Changes) -> None:
        self._db.executemany(
            "DELETE FROM outbox WHERE chat_id = ? AND client_message_id = ?", changes.removed
        )
        self._db.executemany(
            f"INSERT INTO outbox ({MESSAGE_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",
            [msgspec.structs.astuple(message) for message in changes.added],
        )
        self._db.executemany(
            "INSERT OR REPLACE INTO cursors VALUES (?, ?, ?, ?)",
            [(chat_id, *msgspec.structs.astuple(cursor)) for chat_id, cursor in changes.cursors.items()],
        )

    def close(self) -> None:
        self._db.close()


def _timed(message: Outgoing) -> Outgoing:
    """Earlier versions did not keep when a message was sent: that is when it was queued."""
    if message.display_time is not None:
        return message
    return msgspec.structs.replace(message, display_time=iso(message.created_at_ms))


def open_keeper(path: str | None) -> Keeper:
    """The keeper of a file, or of memory when there is no path."""
    return MemoryKeeper() if path is None else SqliteKeeper(path)


def _explained(error: apsw.Error | OSError) -> object:
    if isinstance(error, OSError):
        return error.strerror
    return "another process has it open" if isinstance(error, apsw.BusyError) else error
