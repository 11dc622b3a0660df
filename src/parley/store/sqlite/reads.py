"""Reads of committed rows, on a connection of their own. The driver's errors never leave this module."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import apsw
import msgspec

from parley.errors import StoreError
from parley.store.sqlite.command_connection import command_connection
from parley.store.sqlite.damage import note, store_error, tables_of
from parley.store.sqlite.database import Database
from parley.store.sqlite.writer import Writer

Row = tuple[Any, ...]


class Reads:
    def __init__(self, database: Database, writer: Writer) -> None:
        self._database = database
        self._writer = writer

    def execute(self, sql: str, values: tuple[Any, ...] = ()) -> apsw.Cursor:
        """A cursor over committed rows; StoreUnavailable while the file cannot be trusted.

        Only inside `about`, which maps the errors of its later rows.
        """
        if not self._writer.available:
            raise self._writer.why_unavailable()
        return self._database.reader.execute(sql, values)

    @contextlib.contextmanager
    def about(self, place: str, what: str = "") -> Iterator[None]:
        """What is read inside is about this place, such as a chat: damage is told with its name."""
        try:
            yield
        except apsw.Error as error:
            raise self._failed(error, place, what) from error

    def rows(self, sql: str, values: tuple[Any, ...] = ()) -> list[Row]:
        """Commands also ask without `Engine.open`: then the file is opened as it is, for this alone."""
        if not self._database.is_open and not self._writer.is_reopening:
            with command_connection(self._database.path.parent, read_only=True) as connection:
                return connection.execute(sql, values).fetchall()
        try:
            return self.execute(sql, values).fetchall()
        except apsw.Error as error:
            raise self._failed(error, tables_of(sql)) from error

    def _failed(self, error: apsw.Error, place: str, what: str = "") -> StoreError:
        failure = store_error(error, "the store cannot be read", place, what)
        note(self._writer.metrics, failure)
        return failure

    def row(self, sql: str, values: tuple[Any, ...] = ()) -> Row | None:
        rows = self.rows(sql, values)
        return rows[0] if rows else None


def json_ids(user_ids: Iterable[str]) -> str:
    """The ids without duplicates, as a JSON list. SQLite would cut an id at a NUL; no existing id has one."""
    wanted = [user_id for user_id in dict.fromkeys(user_ids) if "\0" not in user_id]
    return msgspec.json.encode(wanted).decode()
