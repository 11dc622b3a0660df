"""The file and its connections: how they are opened, made durable and reopened.

The writer connection is used by nothing else: a read on it would see entries that are not committed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

import apsw

from parley.errors import StoreBusy, StoreDamaged, StoreError, StoreUnavailable
from parley.store.folder import DATABASE_NAME, FOLDER_MODE, create_private
from parley.store.sqlite import schema
from parley.store.sqlite.damage import REMEDY, check_roots, store_error

PAGE_CACHE_KIB = 64 * 1024
WAL_PAGES_PER_CHECKPOINT = 8_000
OPEN_BUSY_MS_MAX = 5_000
CHECKPOINT_TRIES_MAX = 50
CHECKPOINT_PAUSE_SECONDS = 0.1
SCAN_BYTES = 1024 * 1024
"""Of the file that are looked through at once: some hundred microseconds."""


class Database:
    """One data folder's store. `vfs` names a SQLite VFS, for tests that inject faults.

    `beside`: a server may be using the store, so its write-ahead log must not be changed.
    """

    def __init__(self, folder: Path, vfs: str | None = None, *, beside: bool = False) -> None:
        self.path = folder / DATABASE_NAME
        self._vfs = vfs
        self._beside = beside
        self.writer: apsw.Connection
        self.reader: apsw.Connection
        self.is_open = False

    def open(self) -> None:
        """Open, migrate, and make durable what a crash left in the write-ahead log.

        A process that died may have left commits that are not on the disk yet: without this, the server
        would answer a retry from them, and a power cut could lose them. StoreDamaged if a table cannot be
        found or added to.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
            create_private(self.path)
            self.writer = self._connect()
            self.writer.pragma("journal_mode", "wal")
            schema.migrate(self.writer)
            if not self._beside:
                self.make_durable()
            self.writer.set_busy_timeout(0)
            self.reader = self._connect()
            self.reader.pragma("query_only", True)
            check_roots(self.reader)
            self.is_open = True
        except (apsw.Error, OSError, StoreDamaged) as error:
            self.close()
            raise self._unusable(error) from error

    def _unusable(self, error: apsw.Error | OSError | StoreDamaged) -> StoreError:
        failure: StoreError = StoreUnavailable(f"cannot open the store {self.path}: {error}")
        if isinstance(error, apsw.Error):
            failure = store_error(error, f"cannot open the store {self.path}")
        damage = error if isinstance(error, StoreDamaged) else failure
        if isinstance(damage, StoreDamaged):
            return StoreDamaged(damage.place, f"{damage.problem}, in {self.path}; {REMEDY}")
        return failure

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
        raise StoreBusy("another program keeps reading the store, so it cannot be repaired after a crash")

    def reopen(self) -> None:
        """As `open`; then a small write proves that the disk accepts writes again."""
        self.close()
        self.open()
        try:
            self.writer.execute("UPDATE changes SET last = last + 1")
            self.make_durable()
        except apsw.Error as error:
            self.close()
            raise store_error(error, f"cannot write the store {self.path}") from error

    def rewrite(self) -> None:
        """Everything that was deleted is in neither file when this returns. Others cannot write meanwhile.

        On a connection of its own, so that it may run in a thread. Readers of the server see the same rows.
        """
        with contextlib.closing(self._connect()) as connection:
            connection.execute("VACUUM")
            _empty_log(connection)

    def clean(self, leftovers: Sequence[bytes]) -> None:
        """Nothing that was overwritten is in the write-ahead log, and none of these bytes in the file.

        Deleted bytes are overwritten in their place, so a trace is rare: a copy on a page whose rows were
        moved before. Only then is the file rewritten. As `rewrite`, it may run in a thread.
        """
        with contextlib.closing(self._connect()) as connection:
            _empty_log(connection)
            if self._holds(leftovers):
                connection.execute("VACUUM")
                _empty_log(connection)

    def _holds(self, leftovers: Sequence[bytes]) -> bool:
        """Whether the file has a body behind one of these. It is read in parts: others run meanwhile."""
        longest = max(map(len, leftovers), default=0) + 1
        before = b""
        with self.path.open("rb") as file:
            while part := file.read(SCAN_BYTES):
                view = before + part
                if any(_has_body(view, one) for one in leftovers):
                    return True
                before = view[-longest:]
        return False

    def close(self) -> None:
        for name in ("reader", "writer"):
            connection = getattr(self, name, None)
            if connection is not None:
                # The last connection checkpoints, which a bad disk fails; the commits stay in the WAL.
                with contextlib.suppress(apsw.Error):
                    connection.close(True)

    def _connect(self) -> apsw.Connection:
        connection = apsw.Connection(str(self.path), vfs=self._vfs)
        connection.set_busy_timeout(OPEN_BUSY_MS_MAX)
        connection.pragma("synchronous", "full")
        connection.pragma("secure_delete", True)
        connection.pragma("cache_size", -PAGE_CACHE_KIB)
        connection.pragma("wal_autocheckpoint", WAL_PAGES_PER_CHECKPOINT)
        return connection


def _has_body(view: bytes, trace: bytes) -> bool:
    at = view.find(trace)
    while at >= 0:
        behind = view[at + len(trace) : at + len(trace) + 1]
        if behind and behind != b'"':
            return True
        at = view.find(trace, at + 1)
    return False


def _empty_log(connection: apsw.Connection) -> None:
    """Bring everything from the write-ahead log to the file, and truncate the log."""
    for _ in range(CHECKPOINT_TRIES_MAX):
        pages, moved = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        if pages == moved == 0:
            return
        time.sleep(CHECKPOINT_PAUSE_SECONDS)
    raise apsw.BusyError("the write-ahead log is in use")
