"""The port `Book` on SQLite: one table holds all of them."""

from __future__ import annotations

from typing import Any, Generic

import msgspec

from parley.store.books import R
from parley.store.sqlite.reads import Reads
from parley.store.sqlite.writer import Transaction, Writer

ADD = "INSERT OR IGNORE INTO books VALUES (?, ?, ?)"
GET = "SELECT record FROM books WHERE book = ? AND record_id = ?"
PAGE = (
    "SELECT record FROM books WHERE book = ?1 AND (record_id < ?2 OR ?2 = '')"
    " ORDER BY record_id DESC LIMIT ?3"
)
REPLACE = "UPDATE books SET record = ? WHERE book = ? AND record_id = ?"
REMOVE = "DELETE FROM books WHERE book = ? AND record_id = ?"


class SqliteBook(Generic[R]):
    def __init__(self, reads: Reads, writer: Writer, book: str, kind: type[R]) -> None:
        self._reads = reads
        self._writer = writer
        self._book = book
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder(kind).decode

    async def add(self, record: R) -> R:
        def work(tx: Transaction) -> R:
            tx.execute(ADD, (self._book, record.record_id, self._encode(record).decode()))
            kept = self._kept(tx, record.record_id)
            assert kept is not None
            return kept

        return await self._writer.run(work)

    async def get(self, record_id: str) -> R | None:
        row = self._reads.row(GET, (self._book, record_id))
        return self._decode(row[0]) if row else None

    async def page(self, before: str, limit: int) -> list[R]:
        return [self._decode(row[0]) for row in self._reads.rows(PAGE, (self._book, before, limit))]

    async def swap(self, before: R, after: R) -> bool:
        def work(tx: Transaction) -> bool:
            if self._kept(tx, before.record_id) != before:
                return False
            tx.execute(REPLACE, (self._encode(after).decode(), self._book, after.record_id))
            return True

        return await self._writer.run(work)

    async def remove(self, record_id: str) -> bool:
        def work(tx: Transaction) -> bool:
            tx.execute(REMOVE, (self._book, record_id))
            return tx.connection.changes() == 1

        return await self._writer.run(work)

    def _kept(self, transaction: Transaction, record_id: str) -> R | None:
        found: Any = transaction.execute(GET, (self._book, record_id)).fetchone()
        return self._decode(found[0]) if found else None
