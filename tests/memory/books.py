"""The port `Book` in memory."""

from __future__ import annotations

from typing import Generic

import msgspec

from parley.store.books import R
from tests.memory.tables import Tables


class MemoryBook(Generic[R]):
    """Keeps the JSON of records, as other engines do."""

    def __init__(self, tables: Tables, book: str, kind: type[R]) -> None:
        self._records = tables.books.setdefault(book, {})
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder(kind).decode

    async def add(self, record: R) -> R:
        return self._decode(self._records.setdefault(record.record_id, self._encode(record).decode()))

    async def get(self, record_id: str) -> R | None:
        kept = self._records.get(record_id)
        return self._decode(kept) if kept is not None else None

    async def page(self, before: str, limit: int) -> list[R]:
        found = sorted((one for one in self._records if one < before or not before), reverse=True)
        return [self._decode(self._records[record_id]) for record_id in found[:limit]]

    async def swap(self, before: R, after: R) -> bool:
        if await self.get(before.record_id) != before:
            return False
        self._records[after.record_id] = self._encode(after).decode()
        return True

    async def remove(self, record_id: str) -> bool:
        return self._records.pop(record_id, None) is not None
