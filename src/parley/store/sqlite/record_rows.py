"""Records as rows of the table that holds all of them."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from parley.store.tables import R, RecordTable

PUT = (
    "INSERT INTO records (kind, partition, place, record, number, expires_ms) VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT DO UPDATE SET record = excluded.record, number = max(number, excluded.number),"
    " expires_ms = excluded.expires_ms"
)

PUT_HIGHEST = f"{PUT} WHERE excluded.number > number"


def put_into(table: RecordTable[R]) -> str:
    return PUT_HIGHEST if table.keeps_highest else PUT


def load(connection: apsw.Connection, table: RecordTable[R], records: Sequence[R]) -> None:
    """Over whatever is there, in the transaction that is open."""
    connection.executemany(put_into(table), [row_of(table, record) for record in records])


def row_of(table: RecordTable[R], record: R) -> tuple[str | int | None, ...]:
    expires_ms = table.expires_ms(record) if table.expires_ms is not None else None
    stored = table.encode(record).decode()
    return (table.name, *table.key(record), stored, table.number(record), expires_ms)
