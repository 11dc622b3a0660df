"""All rows of a store, as a copy, an export or a comparison goes through them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import cast

from parley.store.ports import Engine
from parley.store.records import ChatRecord, Record
from parley.store.tables import TABLE_OF


class StoreRows:
    """Tables of records by `Records`, alike on every engine; the rest by its `Transfer`."""

    def __init__(self, engine: Engine) -> None:
        self._records = engine.records
        self._transfer = transfer = engine.transfer
        self.positions, self.put_positions = transfer.positions, transfer.put_positions
        self.log_ends, self.settle, self.begin_anew = transfer.log_ends, transfer.settle, transfer.begin_anew

    def records(self, kind: type[Record]) -> AsyncIterator[list[Record]]:
        """All of a kind, page by page; pages may be empty."""
        if kind is ChatRecord:
            return cast("AsyncIterator[list[Record]]", self._transfer.chats())
        table = TABLE_OF.get(kind)
        return self._transfer.records(kind) if table is None else self._records.scan(table)

    async def put(self, records: Sequence[Record]) -> None:
        """Records of one kind, as they are, over whatever is there."""
        table = TABLE_OF.get(type(records[0])) if records else None
        if table is None:
            await self._transfer.put(records)
        else:
            await self._records.load(table, records)
