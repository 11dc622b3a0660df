"""The `LogHashes` port on SQLite."""

from __future__ import annotations

from collections.abc import Sequence

from parley.core.log_hash import LogHash
from parley.store.sqlite.reads import Reads
from parley.store.sqlite.writer import Transaction, Writer

LAST = (
    "SELECT sequence, log_hash FROM log_hashes JOIN chats USING (chat_no)"
    " WHERE chat_id = ? AND log_hashes.epoch = ? AND sequence <= ? ORDER BY sequence DESC LIMIT 1"
)
WRITE = (
    "INSERT OR REPLACE INTO log_hashes (chat_no, epoch, sequence, log_hash)"
    " SELECT chat_no, ?, ?, ? FROM chats WHERE chat_id = ?"
)


class SqliteLogHashes:
    tail_seconds = 2.0

    def __init__(self, reads: Reads, writer: Writer) -> None:
        self._reads = reads
        self._writer = writer

    async def last(self, chat_id: str, epoch: int, up_to: int) -> LogHash | None:
        row = self._reads.row(LAST, (chat_id, epoch, up_to))
        return None if row is None else LogHash(epoch, *row)

    async def write(self, chat_id: str, hashes: Sequence[LogHash]) -> None:
        rows = [(one.epoch, one.sequence, one.value, chat_id) for one in hashes]

        def insert(transaction: Transaction) -> None:
            transaction.executemany(WRITE, rows)

        await self._writer.run(insert)
