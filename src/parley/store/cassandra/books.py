"""The port `Book` on Cassandra: one table for all, and a partition for each, which keeps its order."""

from __future__ import annotations

from typing import Generic

from parley.store.books import R
from parley.store.cassandra.client import Cassandra, is_key
from parley.store.cassandra.records import Records
from parley.store.cassandra.schema import BOOKS


class CassandraBook(Generic[R]):
    def __init__(self, cassandra: Cassandra, book: str, kind: type[R]) -> None:
        self._records = Records(cassandra, BOOKS, ("book", "record_id"), kind)
        self._book = book

    async def add(self, record: R) -> R:
        kept = await self._records.change(
            self._book, record.record_id, change=lambda before: before or record
        )
        assert kept is not None
        return kept

    async def get(self, record_id: str) -> R | None:
        return await self._records.get(self._book, record_id) if is_key(record_id) else None

    async def page(self, before: str, limit: int) -> list[R]:
        last = " ORDER BY record_id DESC LIMIT ?"
        if not before:
            return await self._records.all(self._book, more=last, values=[limit])
        if not is_key(before):
            return []
        return await self._records.all(self._book, more=f" AND record_id < ?{last}", values=[before, limit])

    async def swap(self, before: R, after: R) -> bool:
        return await self._records.swap(self._book, before.record_id, before=before, after=after)

    async def remove(self, record_id: str) -> bool:
        while (stored := await self.get(record_id)) is not None:
            if await self._records.swap(self._book, record_id, before=stored, after=None):
                return True
        return False
