"""SQLite's errors in the words of the store: what is damage, where, and what is an outage."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import apsw

from parley.errors import StoreDamaged, StoreError, StoreUnavailable
from parley.store.damage import note_damage
from parley.telemetry import Metrics

DAMAGE = (apsw.CorruptError, apsw.NotADBError)
TABLES = re.compile(r"\b(?:FROM|JOIN|INTO|UPDATE)\s+(\w+)", re.IGNORECASE)
WHOLE_FILE = "the whole file"
REMEDY = "stop the server, keep a copy of the folder, and restore the last backup (docs/OPERATING.md)"
ROOTS = "SELECT name, tbl_name, type, sql FROM sqlite_schema WHERE rootpage > 0 ORDER BY rowid"


def store_error(error: apsw.Error, failed: str, place: str = WHOLE_FILE, what: str = "") -> StoreError:
    """`failed`: what cannot be done, such as `the store cannot be read`. `what`: of the place."""
    if isinstance(error, DAMAGE):
        return StoreDamaged(place, f"{what}: {error}" if what else str(error))
    return StoreUnavailable(f"{failed}: {error}")


def note(metrics: Metrics, error: Exception, *, by_write: bool = False) -> None:
    """A file does not heal while a server has it open: after a write that met damage, until the restart."""
    note_damage(metrics, error, by_write=by_write, seconds=math.inf)


def tables_of(sql: str) -> str:
    """The tables that a statement names, as a place."""
    names = dict.fromkeys(TABLES.findall(sql))
    return f"table {', '.join(names)}" if names else WHOLE_FILE


def check_roots(connection: apsw.Connection) -> None:
    """Follow each table and index from its root page to its first row, and tables to their last.

    It takes a millisecond. Without these pages nothing can be found or added, however sound the others are.
    """
    place = WHOLE_FILE
    try:
        trees: list[Any] = connection.execute(ROOTS).fetchall()
        for name, table, kind, sql in trees:
            place = f"table {table}"
            for probe in _probes(name, table, kind, sql or ""):
                connection.execute(probe).fetchall()
    except DAMAGE as error:
        raise StoreDamaged(place, str(error)) from error


def _probes(name: str, table: str, kind: str, sql: str) -> Iterator[str]:
    if kind == "index":
        _, where, condition = sql.partition(" WHERE ")
        yield f'SELECT 1 FROM "{table}" INDEXED BY "{name}"{where}{condition} LIMIT 1'
    elif "WITHOUT ROWID" in sql:  # its primary key is the table; another index would be taken for shorter
        yield f'SELECT 1 FROM "{table}" INDEXED BY "sqlite_autoindex_{table}_1" LIMIT 1'
    else:
        yield f'SELECT 1 FROM "{table}" NOT INDEXED LIMIT 1'
        yield f'SELECT max(rowid) FROM "{table}"'
