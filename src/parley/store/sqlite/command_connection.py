"""A command's own connection to the file, which a server may be using at the same time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw

from parley.errors import StoreBusy, StoreDamaged, StoreUnavailable
from parley.store.folder import DATABASE_NAME
from parley.store.invariants import Breach, StoreUnreadable
from parley.store.sqlite import schema
from parley.store.sqlite.damage import DAMAGE, store_error, tables_of

LOCK_POLL_SECONDS = 0.002
LOCK_SECONDS_MAX = 15.0
DAMAGED = "stop the server, copy the folder, and restore the last backup that passes this check"

Row = tuple[Any, ...]


@contextlib.contextmanager
def command_connection(folder: Path, *, read_only: bool) -> Iterator[apsw.Connection]:
    """Opens the file as it is: creates, migrates, seals and checkpoints nothing, not even on closing."""
    try:
        with contextlib.closing(_connect(folder, read_only)) as connection:
            yield connection
    except apsw.BusyError as error:
        raise StoreBusy("another program holds the store's write lock; try again") from error
    except apsw.Error as error:
        path = folder / DATABASE_NAME
        place = f"the file {path}"
        raise store_error(error, f"cannot use the store {path}", place) from error


def _connect(folder: Path, read_only: bool) -> apsw.Connection:
    path = folder / DATABASE_NAME
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.set_busy_handler(BusyHandler())
        connection.pragma("synchronous", "full")
        connection.pragma("query_only", read_only)
        _check_version(path, schema.version_of(connection))
    except BaseException:
        connection.close()
        raise
    return connection


class BusyHandler:
    """Polls often for the write lock: a busy server releases it only for moments."""

    def __init__(self) -> None:
        self._since = 0.0

    def __call__(self, attempt: int) -> bool:
        now = time.monotonic()
        if attempt == 0:
            self._since = now
        time.sleep(LOCK_POLL_SECONDS)
        return now - self._since < LOCK_SECONDS_MAX


class CommandReader:
    """Reads for a command that reads many times: one connection, opened by the first read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open = contextlib.ExitStack()
        self._connection: apsw.Connection | None = None

    def rows(self, sql: str, values: Row = ()) -> list[Row]:
        """StoreUnreadable when the file is damaged there."""
        try:
            if self._connection is None:
                opened = command_connection(self._folder, read_only=True)
                self._connection = self._open.enter_context(opened)
            return self._connection.execute(sql, values).fetchall()
        except DAMAGE as error:
            problem = f"{tables_of(sql)} cannot be read: {error}"
            raise StoreUnreadable(Breach("file_integrity", problem, DAMAGED)) from error
        except StoreDamaged as error:
            raise StoreUnreadable(Breach("file_integrity", str(error), DAMAGED)) from error
        except apsw.Error as error:
            raise StoreUnavailable(f"the store cannot be read: {error}") from error

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """All reads inside see one snapshot. Writers do not wait for it."""
        self.rows("BEGIN")
        try:
            yield
        finally:
            self.rows("COMMIT")

    def close(self) -> None:
        self._open.close()
        self._connection = None


@contextlib.contextmanager
def writing(connection: apsw.Connection) -> Iterator[None]:
    """One transaction that holds the write lock from its start; rolled back after an exception."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _check_version(path: Path, version: int) -> None:
    known = len(schema.MIGRATIONS)
    if version > known:
        raise StoreUnavailable(
            f"the store {path} has schema version {version}, this Parley knows {known}: use a newer Parley"
        )
    if version < known:
        raise StoreUnavailable(
            f"the store {path} has schema version {version}, this Parley needs {known}:"
            " start the server once to migrate it"
        )
