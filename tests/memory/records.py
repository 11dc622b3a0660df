"""The port `Records` in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import cast

from parley.store.tables import (
    Key,
    PutRecord,
    R,
    RecordChange,
    RecordTable,
    RemoveRecord,
    is_met,
    key_of,
    partition_of,
)
from tests.memory.tables import Tables


class MemoryRecords:
    """Keeps the JSON of each record and its number, as other engines do."""

    rest_seconds = 2.0

    def __init__(self, tables: Tables) -> None:
        self._tables = tables.records

    async def get(
        self, table: RecordTable[R], keys: Sequence[Key], *, may_be_old: bool = False
    ) -> list[R | None]:
        rows = self._tables.get(table.name, {})
        return [table.decode(*rows[key]) if key in rows else None for key in keys]

    async def page(
        self, table: RecordTable[R], partition: str, after: str, limit: int, newest_first: bool = False
    ) -> list[R]:
        rows = self._rows(table)
        keys = sorted((key for key in rows if key[0] == partition), reverse=newest_first)
        beyond = [key for key in keys if not after or (key[1] < after if newest_first else key[1] > after)]
        return [table.decode(*rows[key]) for key in beyond[:limit]]

    async def scan(
        self, table: RecordTable[R], partition: str = "", *, after: str = ""
    ) -> AsyncIterator[list[R]]:
        rows = sorted(self._tables.get(table.name, {}).items())
        yield [
            table.decode(*row)
            for key, row in rows
            if key[0] > after and (not partition or key[0] == partition)
        ]

    async def count(self, table: RecordTable[R]) -> int:
        return len(self._tables.get(table.name, {}))

    async def commit(self, table: RecordTable[R], changes: Sequence[RecordChange[R]]) -> bool:
        partition_of(table, list(changes))
        rows = self._rows(table)
        for change in changes if table.is_compared else ():
            row = rows.get(key_of(table, change))
            if not is_met(table, change, row[0] if row is not None else None):
                return False
        for change in changes:
            if isinstance(change, PutRecord):
                await self.load(table, [change.record])
            elif isinstance(change, RemoveRecord):
                kept = rows.get(change.key, (b"", 0))[1] if table.keeps_highest else 0
                if not table.keeps_highest or kept <= table.number(cast(R, change.before)):
                    rows.pop(change.key, None)
        return True

    async def raise_to(self, table: RecordTable[R], key: Key, number: int) -> bool:
        rows = self._rows(table)
        if key in rows:
            stored, before = rows[key]
            rows[key] = stored, max(before, number)
        return key in rows

    async def expire(self, table: RecordTable[R], now_ms: int) -> int:
        rows, expires_ms = self._rows(table), table.expires_ms
        assert expires_ms is not None
        gone = [key for key, row in rows.items() if expires_ms(table.decode(*row)) <= now_ms]
        for key in gone:
            del rows[key]
        return len(gone)

    async def load(self, table: RecordTable[R], records: Sequence[R]) -> None:
        rows = self._rows(table)
        for record in records:
            _, before = rows.get(table.key(record), (b"", 0))
            if table.keeps_highest and before >= table.number(record):
                continue
            rows[table.key(record)] = table.encode(record), max(before, table.number(record))

    def _rows(self, table: RecordTable[R]) -> dict[Key, tuple[bytes, int]]:
        return self._tables.setdefault(table.name, {})
