"""Tables whose rows are one record each: a key, and a struct as JSON.

A record is compared as a whole, so every change of one is a compare-and-set without a column for a version.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from parley.errors import StoreUnavailable
from parley.store.cassandra.client import Cas, Cassandra
from parley.store.cassandra.connection import Row

ATTEMPTS_MAX = 30

T = TypeVar("T")

encode = msgspec.json.Encoder().encode


class JsonRows(Generic[T]):
    """`keys`: the columns of the primary key. The last of them may be left out to read many."""

    def __init__(self, cassandra: Cassandra, table: str, keys: Sequence[str], kind: type[T]) -> None:
        self._cassandra = cassandra
        self._decode = msgspec.json.Decoder(kind).decode
        self._table = table
        self._keys = tuple(keys)
        self._where = " AND ".join(f"{name} = ?" for name in keys)
        names, marks = ", ".join((*keys, "record")), ", ".join("?" * (len(keys) + 1))
        self._insert = f"INSERT INTO {table} ({names}) VALUES ({marks})"
        self._select = f"SELECT record FROM {table} WHERE {self._where}"

    async def get(self, *key: object) -> T | None:
        return self._record(await self._cassandra.row(self._select, *key))

    async def all(self, *first: object, more: str = "", values: Sequence[object] = ()) -> list[T]:
        """The records of a partition, in the order of their keys. `more`: further clauses."""
        where = " AND ".join(f"{name} = ?" for name in self._keys[: len(first)])
        cql = f"SELECT record FROM {self._table} WHERE {where}{more}"
        rows = await self._cassandra.rows(cql, *first, *values)
        return [record for row in rows if (record := self._record(row)) is not None]

    async def pages(self) -> AsyncIterator[list[T]]:
        """Every record of the table."""
        async for rows in self._cassandra.pages(f"SELECT record FROM {self._table}"):
            yield [record for row in rows if (record := self._record(row)) is not None]

    async def put(self, *key: object, record: T, seconds: int | None = None) -> None:
        """A plain write, for a table whose records are never compared. `seconds`: how long it is kept."""
        cql = self._insert if seconds is None else f"{self._insert} USING TTL {seconds}"
        await self._cassandra.write(cql, *key, encode(record))

    async def add(self, *key: object, record: T) -> bool:
        """False, and nothing is written, if there is one."""
        return (
            await self._cas(f"{self._insert} IF NOT EXISTS", (*key, encode(record)), key, record)
        ).is_applied

    async def swap(self, *key: object, before: T, after: T | None) -> bool:
        """Replace or delete the record; False, and nothing is written, if it is another one by now."""
        if after is None:
            cql = f"DELETE FROM {self._table} WHERE {self._where} IF record = ?"
            return (await self._cas(cql, (*key, encode(before)), key, None)).is_applied
        cql = f"UPDATE {self._table} SET record = ? WHERE {self._where} IF record = ?"
        return (await self._cas(cql, (encode(after), *key, encode(before)), key, after)).is_applied

    async def change(self, *key: object, change: Callable[[T | None], T | None]) -> T | None:
        """Write what `change` makes of the record; None, and nothing is written, if it makes nothing."""
        for _ in range(ATTEMPTS_MAX):
            before = await self.get(*key)
            after = change(before)
            if after is None or after == before:
                return after
            is_done = (
                self.add(*key, record=after)
                if before is None
                else self.swap(*key, before=before, after=after)
            )
            if await is_done:
                return after
        raise StoreUnavailable(f"a row of {self._table} is being written to by too many at once")

    async def _cas(self, cql: str, values: Sequence[object], key: Sequence[object], wanted: T | None) -> Cas:
        async def is_done() -> bool:
            found = await self._cassandra.row(self._select, *key, is_serial=True)
            return self._record(found) == wanted

        return await self._cassandra.resolve(lambda: self._cassandra.cas((cql, values)), is_done)

    def _record(self, row: Row | None) -> T | None:
        found = row["record"] if row is not None else None
        return None if found is None else self._decode(found)
