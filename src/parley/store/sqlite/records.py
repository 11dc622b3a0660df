"""The port `Records` on SQLite: one table holds all of them, each as its JSON."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec

from parley.store.sqlite.command_connection import Row, command_connection, writing
from parley.store.sqlite.reads import Reads
from parley.store.sqlite.record_rows import load, put_into, row_of
from parley.store.sqlite.writer import Transaction, Writer
from parley.store.tables import (
    ALONE,
    Key,
    PutRecord,
    R,
    RecordChange,
    RecordTable,
    RemoveRecord,
    Whatever,
    askable,
    is_met,
    key_of,
    partition_of,
)

ROWS_PER_PAGE = 500
LAST_PLACE = "\U0010ffff"
"""Behind every place of a partition."""
EXPIRED_PER_STEP = 500
KEYS_PER_SLICE = 64
"""So many are read without giving way to others: about half a millisecond."""

PLACE = "kind = ? AND partition = ? AND place = ?"
GET = f"SELECT record, number FROM records WHERE {PLACE}"
GET_SOME = """
SELECT partition, place, record, number FROM json_each(?2) AS asked
CROSS JOIN records ON kind = ?1 AND partition = asked.value ->> 0 AND place = asked.value ->> 1
"""
PAGE = (
    "SELECT record, number FROM records WHERE kind = ?1 AND partition = ?2 AND place > ?3"
    " ORDER BY place LIMIT ?4"
)
PAGE_BACKWARDS = (
    "SELECT record, number FROM records WHERE kind = ?1 AND partition = ?2 AND (place < ?3 OR ?3 = '')"
    " ORDER BY place DESC LIMIT ?4"
)
SCAN = (
    "SELECT partition, place, record, number FROM records WHERE kind = ? AND (partition, place) > (?, ?)"
    " ORDER BY partition, place LIMIT ?"
)
COUNT = "SELECT count(*) FROM records WHERE kind = ?"
SCAN_PARTITION = (
    "SELECT partition, place, record, number FROM records WHERE kind = ? AND partition = ? AND place > ?"
    " ORDER BY place LIMIT ?"
)
REMOVE = f"DELETE FROM records WHERE {PLACE}"
REMOVE_UP_TO = f"{REMOVE} AND number <= ?"
RAISE = f"UPDATE records SET number = max(number, ?) WHERE {PLACE}"
EXPIRE = (
    "DELETE FROM records WHERE (kind, partition, place) IN (SELECT kind, partition, place FROM records"
    f" WHERE kind = ? AND expires_ms <= ? LIMIT {EXPIRED_PER_STEP})"
)


class SqliteScans:
    """What of it needs no server."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def get(
        self, table: RecordTable[R], keys: Sequence[Key], *, may_be_old: bool = False
    ) -> list[R | None]:
        if len(keys) == 1 and askable(*keys[0]):  # most are: half the time of a list
            rows = self._rows(GET, (table.name, *keys[0]))
            return [table.decode(*rows[0]) if rows else None]
        found: dict[Key, R] = {}
        for start in range(0, len(keys), KEYS_PER_SLICE):
            if start:
                await asyncio.sleep(0)
            # SQLite would cut a key at a NUL; no record has one.
            asked = [
                key
                for key in keys[start : start + KEYS_PER_SLICE]
                if askable(*key) and "\0" not in key[0] + key[1]
            ]
            values = (table.name, msgspec.json.encode(asked).decode())
            for partition, place, *row in self._rows(GET_SOME, values) if asked else ():
                found[partition, place] = table.decode(*row)
        return [found.get(key) for key in keys]

    def _rows(self, sql: str, values: tuple[str, ...]) -> list[Row]:
        with command_connection(self._folder, read_only=True) as connection:
            return connection.execute(sql, values).fetchall()

    def scan(self, table: RecordTable[R], partition: str = "", *, after: str = "") -> AsyncIterator[list[R]]:
        return scan(self._folder, table, partition, after)


class SqliteRecords(SqliteScans):
    rest_seconds = 2.0

    def __init__(self, reads: Reads, writer: Writer, folder: Path) -> None:
        super().__init__(folder)
        self._reads = reads
        self._writer = writer

    def _rows(self, sql: str, values: tuple[str, ...]) -> list[Row]:
        return self._reads.rows(sql, values)

    async def page(
        self, table: RecordTable[R], partition: str, after: str, limit: int, newest_first: bool = False
    ) -> list[R]:
        if not askable(partition, after or ALONE):
            return []
        sql = PAGE_BACKWARDS if newest_first else PAGE
        return [table.decode(*row) for row in self._reads.rows(sql, (table.name, partition, after, limit))]

    async def count(self, table: RecordTable[R]) -> int:
        row = self._reads.row(COUNT, (table.name,))
        return int(row[0]) if row is not None else 0

    async def commit(self, table: RecordTable[R], changes: Sequence[RecordChange[R]]) -> bool:
        partition_of(table, list(changes))

        def work(tx: Transaction) -> bool:
            for change in changes if table.is_compared else ():
                row = tx.execute(GET, (table.name, *key_of(table, change))).fetchone()
                if not is_met(table, change, str(row[0]) if row is not None else None):
                    return False
            for change in changes:
                if isinstance(change, PutRecord):
                    tx.execute(put_into(table), row_of(table, change.record))
                elif isinstance(change, RemoveRecord) and table.keeps_highest:
                    assert not isinstance(change.before, Whatever)
                    tx.execute(REMOVE_UP_TO, (table.name, *change.key, table.number(change.before)))
                elif isinstance(change, RemoveRecord):
                    tx.execute(REMOVE, (table.name, *change.key))
            return True

        return await self._writer.run(work)

    async def raise_to(self, table: RecordTable[R], key: Key, number: int) -> bool:
        def work(tx: Transaction) -> bool:
            tx.execute(RAISE, (number, table.name, *key))
            return tx.connection.changes() == 1

        return await self._writer.run(work)

    async def expire(self, table: RecordTable[R], now_ms: int) -> int:
        def work(tx: Transaction) -> int:
            tx.execute(EXPIRE, (table.name, now_ms))
            return tx.connection.changes()

        gone = 0
        while step := await self._writer.run(work):
            gone += step
        return gone

    async def load(self, table: RecordTable[R], records: Sequence[R]) -> None:
        write(self._folder, table, records)


async def scan(
    folder: Path, table: RecordTable[R], partition: str = "", beyond: str = ""
) -> AsyncIterator[list[R]]:
    """A page is a snapshot; no connection is kept between them. Others run meanwhile."""
    sql, after = SCAN, (beyond, LAST_PLACE if beyond else "")
    if partition:
        sql, after = SCAN_PARTITION, (partition, "")
    while True:
        with command_connection(folder, read_only=True) as connection:
            rows: list[Row] = connection.execute(sql, (table.name, *after, ROWS_PER_PAGE)).fetchall()
        await asyncio.sleep(0)
        if not rows:
            return
        yield [table.decode(record, number) for _, _, record, number in rows]
        after = rows[-1][:2]


def write(folder: Path, table: RecordTable[R], records: Sequence[R]) -> None:
    """All of them, or none."""
    with command_connection(folder, read_only=False) as connection, writing(connection):
        load(connection, table, records)
