"""The `LogHashes` port on Cassandra: plain writes, because whoever computes a hash again writes the same."""

from __future__ import annotations

from collections.abc import Sequence

from parley.core.log_hash import LogHash
from parley.store.cassandra.client import Cassandra, is_key
from parley.store.cassandra.connection import Row
from parley.store.cassandra.schema import LOG_HASHES

READ_HASHES = f"SELECT epoch, sequence, log_hash FROM {LOG_HASHES} WHERE chat_id = ? AND epoch = ?"
READ_LAST = f"{READ_HASHES} AND sequence <= ? ORDER BY epoch DESC, sequence DESC LIMIT 1"
PUT_HASH = f"INSERT INTO {LOG_HASHES} (chat_id, epoch, sequence, log_hash) VALUES (?, ?, ?, ?)"


class CassandraLogHashes:
    tail_seconds = 60.0

    def __init__(self, cassandra: Cassandra) -> None:
        self._cassandra = cassandra

    async def last(self, chat_id: str, epoch: int, up_to: int) -> LogHash | None:
        if not is_key(chat_id):
            return None
        row = await self._cassandra.row(READ_LAST, chat_id, epoch, up_to)
        return None if row is None else hash_in(row)

    async def write(self, chat_id: str, hashes: Sequence[LogHash]) -> None:
        rows = [(chat_id, one.epoch, one.sequence, one.value) for one in hashes]
        await self._cassandra.write_all((PUT_HASH, row) for row in rows)


def hash_in(row: Row) -> LogHash:
    return LogHash(row["epoch"], row["sequence"], row["log_hash"])
