"""Hashes of logs (`core.log_hash`) that were computed behind the appends. See docs/proof.md.

Each follows from the entries: to lose one costs time, and whoever computes it again writes the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from parley.core.log_hash import LogHash, StoredHash
from parley.store.ports import Records
from parley.store.tables import CHANGES_MAX, LOG_HASHES, PutRecord, hash_place


class LogHashes:
    def __init__(self, records: Records) -> None:
        self._records = records
        self.tail_seconds = records.rest_seconds
        """How long a chat rests before the hash at its end is stored, too."""

    async def last(self, chat_id: str, epoch: int, up_to: int) -> LogHash | None:
        """The stored hash of this epoch with the highest position up to this one. May be a moment old."""
        beyond = hash_place(epoch, up_to + 1)
        found = await self._records.page(LOG_HASHES, chat_id, beyond, 1, newest_first=True)
        if not found or found[0].epoch != epoch:
            return None
        return LogHash(epoch, found[0].sequence, found[0].value)

    async def write(self, chat_id: str, hashes: Sequence[LogHash]) -> None:
        """Durable before it returns; each at its epoch and position. Several nodes may write the same."""
        changes = [
            PutRecord(StoredHash(chat_id=chat_id, epoch=one.epoch, sequence=one.sequence, value=one.value))
            for one in hashes
        ]
        for at in range(0, len(changes), CHANGES_MAX):
            await self._records.commit(LOG_HASHES, changes[at : at + CHANGES_MAX])
