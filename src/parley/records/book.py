"""Records that are found by one id: added once, replaced only if they are still what was read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic

from parley.store.ports import Records
from parley.store.tables import ONE_LIST, Key, PutRecord, R, RecordTable, RemoveRecord, listed

PAGE = 1_000


class Book(Generic[R]):
    """`at`: the key of an id, as the table has it."""

    def __init__(self, records: Records, table: RecordTable[R], at: Callable[[str], Key] = listed) -> None:
        self._records = records
        self._table = table
        self._at = at

    async def add(self, record: R) -> R:
        """What is kept under its id, durably: another record, if one was there before."""
        while True:
            if await self._records.commit(self._table, [PutRecord(record, before=None)]):
                return record
            (kept,) = await self._records.get(self._table, [self._table.key(record)])
            if kept is not None:
                return kept

    async def get(self, record_id: str) -> R | None:
        """The record with this id. Whatever a person types may be asked for."""
        (found,) = await self._records.get(self._table, [self._at(record_id)])
        return found

    async def page(self, before: str, limit: int) -> list[R]:
        """The records with the highest ids, descending: below `before`, if that is not empty."""
        return await self._records.page(self._table, ONE_LIST, before, limit, newest_first=True)

    async def all(self) -> list[R]:
        """Every record, in the order of the ids. For books of few."""
        return await all_in(self._records, self._table, ONE_LIST)

    async def swap(self, before: R, after: R) -> bool:
        """Replace a record, durably; False, and nothing changes, if it is not `before` any more."""
        return await self._records.commit(self._table, [PutRecord(after, before=before)])

    async def remove(self, record_id: str) -> bool:
        """Durable before it returns: nobody reads it again. False if there is none."""
        while (stored := await self.get(record_id)) is not None:
            gone = RemoveRecord(self._at(record_id), before=stored)
            if await self._records.commit(self._table, [gone]):
                return True
        return False


async def all_in(records: Records, table: RecordTable[R], partition: str) -> list[R]:
    """Every record of a partition, in the order of their places. For partitions of few."""
    found: list[R] = []
    after = ""
    while True:
        page = await records.page(table, partition, after, PAGE)
        found += page
        if len(page) < PAGE:
            return found
        after = table.key(page[-1])[1]
