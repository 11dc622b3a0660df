"""Version 17: what earlier versions kept in tables of their own becomes records.

The last of the migrations that knows what a row means. Never change it once it is released.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import apsw
from msgspec import Struct, field

from parley.core.attachments import line_of
from parley.store.records import BOOKS, record_of
from parley.store.sqlite.record_rows import load
from parley.store.tables import (
    API_TOKENS,
    ATTACHMENT_LINES,
    ATTACHMENTS,
    AUDIT,
    ERASURES,
    EXTERNAL_IDS,
    SERVER_KEYS,
    WEBHOOKS,
    RecordTable,
)


class MovedTable(Struct, frozen=True):
    """A table whose rows become records. `renamed`: columns that were named other than the field."""

    name: str
    table: RecordTable[Any]
    renamed: Mapping[str, str] = field(default_factory=dict)


MOVED = (
    MovedTable("api_tokens", API_TOKENS),
    MovedTable("external_ids", EXTERNAL_IDS),
    MovedTable("webhooks", WEBHOOKS),
    MovedTable("audit", AUDIT),
    MovedTable("erasures", ERASURES),
    MovedTable("server_keys", SERVER_KEYS),
    MovedTable("attachments", ATTACHMENTS),
)


def move_to_records(connection: apsw.Connection) -> None:
    """In the transaction that is open."""
    for book, table in BOOKS.items():
        rows = connection.execute("SELECT record FROM books WHERE book = ?", (book,)).fetchall()
        load(connection, table, [table.decode(str(record)) for (record,) in rows])
    for moved in MOVED:
        records = [record_of(moved.table.kind, columns) for columns in rows_of(connection, moved)]
        load(connection, moved.table, records)
        if moved.table is ATTACHMENTS:
            lines = [line_of(name, file, file.since_ms) for file in records for name in file.lists]
            load(connection, ATTACHMENT_LINES, lines)
    for name in ("books", *(moved.name for moved in MOVED)):
        connection.execute(f"DROP TABLE {name}")


def rows_of(connection: apsw.Connection, moved: MovedTable) -> Iterator[dict[str, Any]]:
    """Each row, by the names of the fields."""
    cursor = connection.execute(f"SELECT * FROM {moved.name}")
    names: list[str] = []
    for row in cursor:
        names = names or [moved.renamed.get(name, name) for name, _ in cursor.get_description()]
        yield dict(zip(names, row, strict=True))
