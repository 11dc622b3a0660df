"""The port `Book` on DynamoDB: one table for all, and a partition for each, which keeps its order."""

from __future__ import annotations

from typing import Generic, cast

import msgspec

from parley.dynamodb import ConditionFailed, Dynamo, Item, is_valid_key, retry_unknown
from parley.store.books import KeptRecord, R
from parley.store.dynamodb.schema import BOOKS

IS_NEW = "attribute_not_exists(book)"
NAMES = {"#record": "record"}


class DynamoBook(Generic[R]):
    def __init__(self, dynamo: Dynamo, book: str, kind: type[R]) -> None:
        self._dynamo = dynamo
        self._book = book
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder(kind).decode

    async def add(self, record: R) -> R:
        item = record_item(self._kept(record))
        try:
            await retry_unknown(lambda: self._dynamo.put(BOOKS, item, condition=IS_NEW))
        except ConditionFailed:  # by somebody else, or by this attempt, whose answer was lost
            return await self.get(record.record_id) or record
        return record

    async def get(self, record_id: str) -> R | None:
        kept = await self._read(record_id)
        return self._decode(kept) if kept is not None else None

    async def page(self, before: str, limit: int) -> list[R]:
        condition, values = "book = :book", cast(Item, {":book": self._book})
        if before:
            if not is_valid_key(before):
                return []
            condition, values = f"{condition} AND record_id < :before", values | {":before": before}
        found: list[R] = []
        start: Item | None = None
        while len(found) < limit:
            page = await self._dynamo.query(
                BOOKS, condition, values, forward=False, limit=limit - len(found), start=start
            )
            found += [self._decode(cast(str, item["record"])) for item in page.items]
            start = page.next_key
            if start is None:
                break
        return found

    async def swap(self, before: R, after: R) -> bool:
        """A retry after a lost answer may find what it has written itself: that counts as done."""
        stored = await self._read(before.record_id)
        if stored is None or self._decode(stored) != before:
            return False
        item, was = record_item(self._kept(after)), cast(Item, {":was": stored})
        try:
            await retry_unknown(
                lambda: self._dynamo.put(BOOKS, item, condition="#record = :was", values=was, names=NAMES)
            )
        except ConditionFailed:
            return await self._read(before.record_id) == item["record"]
        return True

    async def remove(self, record_id: str) -> bool:
        """A retry after a lost answer may find it gone: then it was there."""
        if await self._read(record_id) is None:
            return False
        await retry_unknown(lambda: self._dynamo.delete(BOOKS, self._key(record_id)))
        return True

    async def _read(self, record_id: str) -> str | None:
        item = await self._dynamo.get(BOOKS, self._key(record_id)) if is_valid_key(record_id) else None
        return cast(str, item["record"]) if item is not None else None

    def _key(self, record_id: str) -> Item:
        return {"book": self._book, "record_id": record_id}

    def _kept(self, record: R) -> KeptRecord:
        return KeptRecord(book=self._book, record_id=record.record_id, record=self._encode(record).decode())


def record_item(kept: KeptRecord) -> Item:
    return {"book": kept.book, "record_id": kept.record_id, "record": kept.record}


def record_in(item: Item) -> KeptRecord:
    return KeptRecord(
        book=cast(str, item["book"]), record_id=cast(str, item["record_id"]), record=cast(str, item["record"])
    )
