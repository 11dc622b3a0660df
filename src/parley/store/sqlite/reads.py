"""Reads of committed rows, on a connection of their own. The driver's errors never leave this module."""

from __future__ import annotations

from typing import Any

import apsw

from parley.errors import StoreUnavailable
from parley.store.sqlite.database import Database
from parley.store.sqlite.writer import Writer

Row = tuple[Any, ...]


class Reads:
    def __init__(self, database: Database, writer: Writer) -> None:
        self._database = database
        self._writer = writer

    def execute(self, sql: str, values: tuple[Any, ...] = ()) -> apsw.Cursor:
        """A cursor over committed rows; StoreUnavailable while the file cannot be trusted."""
        if not self._writer.available:
            raise StoreUnavailable("the store is being reopened after a failed write")
        try:
            return self._database.reader.execute(sql, values)
        except apsw.Error as error:
            raise StoreUnavailable(f"the store cannot be read: {error}") from error

    def rows(self, sql: str, values: tuple[Any, ...] = ()) -> list[Row]:
        try:
            return self.execute(sql, values).fetchall()
        except apsw.Error as error:
            raise StoreUnavailable(f"the store cannot be read: {error}") from error

    def row(self, sql: str, values: tuple[Any, ...] = ()) -> Row | None:
        rows = self.rows(sql, values)
        return rows[0] if rows else None
