"""A connection of one's own to a store that a server may be using at the same time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import apsw

from parley.errors import StoreBusy, StoreUnavailable
from parley.store.sqlite import schema
from parley.store.sqlite.database import FILE_NAME

LOCK_LOOK_SECONDS = 0.002
LOCK_SECONDS_MAX = 15.0


@contextlib.contextmanager
def connect_beside(folder: Path, *, read_only: bool) -> Iterator[apsw.Connection]:
    """Open the store as it is: nothing is created, migrated, sealed or checkpointed, also not on closing."""
    path = folder / FILE_NAME
    try:
        with contextlib.closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.set_busy_handler(Patience())
            connection.pragma("synchronous", "full")
            connection.pragma("query_only", read_only)
            _check_version(path, schema.version_of(connection))
            yield connection
    except apsw.BusyError as error:
        raise StoreBusy("another program holds the store's write lock; try again") from error
    except apsw.Error as error:
        raise StoreUnavailable(f"cannot use the store {path}: {error}") from error


class Patience:
    """A busy handler that looks often: a busy server leaves the lock free for moments only."""

    def __init__(self) -> None:
        self._since = 0.0

    def __call__(self, attempt: int) -> bool:
        now = time.monotonic()
        if attempt == 0:
            self._since = now
        time.sleep(LOCK_LOOK_SECONDS)
        return now - self._since < LOCK_SECONDS_MAX


@contextlib.contextmanager
def snapshot(connection: apsw.Connection) -> Iterator[None]:
    """Everything read inside is of one moment; a writer is not kept waiting."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("COMMIT")


@contextlib.contextmanager
def writing(connection: apsw.Connection) -> Iterator[None]:
    """One transaction that holds the write lock from its start; undone if anything is raised."""
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
            " start the server once, which brings it up to date"
        )
