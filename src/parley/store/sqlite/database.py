"""The file and its connections: how they are opened, made durable and reopened.

The writer connection is used by nothing else: a read on it would see entries that are not committed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import IO

import apsw

from parley.errors import StoreBusy, StoreUnavailable
from parley.store.sqlite import schema

FILE_NAME = "parley.db"
LOCK_NAME = "serve.lock"
PAGE_CACHE_KIB = 64 * 1024
WAL_PAGES_PER_CHECKPOINT = 8_000
OPEN_BUSY_MS_MAX = 5_000
CHECKPOINT_TRIES_MAX = 50
CHECKPOINT_PAUSE_SECONDS = 0.1


class Database:
    """One data folder's store. `vfs` names a SQLite VFS and is for tests that inject faults.

    `beside`: a server may be using the store, so its write-ahead log is left to it.
    """

    def __init__(self, folder: Path, vfs: str | None = None, *, beside: bool = False) -> None:
        self.path = folder / FILE_NAME
        self._vfs = vfs
        self._beside = beside
        self.writer: apsw.Connection
        self.reader: apsw.Connection

    def open(self) -> None:
        """Open, migrate, and make durable whatever a crash left in the write-ahead log.

        A process that died may have left commits in memory that no disk has: without this, a retry
        would be answered from them, and a power cut would take them back.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.writer = self._connect()
            self.writer.pragma("journal_mode", "wal")
            schema.migrate(self.writer)
            if not self._beside:
                self.make_durable()
            self.writer.set_busy_timeout(0)
            self.reader = self._connect()
            self.reader.pragma("query_only", True)
        except (apsw.Error, OSError) as error:
            self.close()
            raise StoreUnavailable(f"cannot open the store {self.path}: {error}") from error

    def make_durable(self) -> None:
        """Every commit so far is in the main file and synced when this returns."""
        for _ in range(CHECKPOINT_TRIES_MAX):
            try:
                pages, moved = self.writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            except apsw.BusyError:
                pages, moved = self.writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            if pages == moved:
                return
            time.sleep(CHECKPOINT_PAUSE_SECONDS)
        raise StoreBusy("another program keeps reading the store; what a crash left cannot be made durable")

    def reopen(self) -> None:
        """As `open`; then a small write proves that the disk takes one: else the next commit is lost too."""
        self.close()
        self.open()
        try:
            self.writer.execute("UPDATE changes SET last = last + 1")
            self.make_durable()
        except apsw.Error as error:
            self.close()
            raise StoreUnavailable(f"cannot write the store {self.path}: {error}") from error

    def close(self) -> None:
        for name in ("reader", "writer"):
            connection = getattr(self, name, None)
            if connection is not None:
                # The last one to go checkpoints, and a bad disk fails that; what it holds stays in the WAL.
                with contextlib.suppress(apsw.Error):
                    connection.close(True)

    def _connect(self) -> apsw.Connection:
        connection = apsw.Connection(str(self.path), vfs=self._vfs)
        connection.set_busy_timeout(OPEN_BUSY_MS_MAX)
        connection.pragma("synchronous", "full")
        connection.pragma("cache_size", -PAGE_CACHE_KIB)
        connection.pragma("wal_autocheckpoint", WAL_PAGES_PER_CHECKPOINT)
        return connection


def lock_folder(folder: Path) -> IO[str]:
    """Hold the folder for one server; StoreBusy when another has it. Closing the file lets go."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = open(folder / LOCK_NAME, "a+", encoding="ascii")  # noqa: SIM115 - held for the server's life
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        raise StoreBusy(
            f"another server (process {holder}) uses {folder}; stop it or choose another --data"
        ) from error
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock
