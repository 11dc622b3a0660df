"""The ports of deliveries on SQLite."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from parley.core.deliveries import (
    DeliveryEvent,
    DeliveryQueue,
    QueueClaim,
)
from parley.store.sqlite.reads import Reads, Row
from parley.store.sqlite.writer import Transaction, Writer

encode = msgspec.json.Encoder().encode
decode_events = msgspec.json.Decoder(tuple[DeliveryEvent, ...]).decode

QUEUE_COLUMNS = "chat_id, recipient, next_sequence, target, due_ms, retry_count, crashes, attempts, claim"
QUEUE = f"SELECT {QUEUE_COLUMNS} FROM lanes"
OPEN_QUEUE = f"INSERT OR IGNORE INTO lanes ({QUEUE_COLUMNS}) VALUES (?, ?, ?, ?, ?, 0, 0, '[]', ?)"
RAISE = "UPDATE lanes SET target = ? WHERE chat_id = ? AND recipient = ? AND target < ?"
OF_KIND = "substr(recipient, 1, length(?1)) = ?1"
DUE = (
    f"{QUEUE} WHERE {OF_KIND} AND due_ms <= ? AND recipient NOT IN (SELECT value FROM json_each(?))"
    " ORDER BY due_ms, chat_id, recipient LIMIT ?"
)
NEXT_DUE = f"SELECT min(due_ms) FROM lanes WHERE {OF_KIND} AND due_ms > ?"
THE_QUEUE = f"{QUEUE} WHERE chat_id = ? AND recipient = ?"
CLAIM = "UPDATE lanes SET claim = ?, due_ms = ? WHERE chat_id = ? AND recipient = ?"
ADVANCE = (
    "UPDATE lanes SET next_sequence = ?, due_ms = ?, retry_count = ?, crashes = ?,"
    " attempts = ?, claim = ? WHERE chat_id = ? AND recipient = ? AND claim = ?"
)
FINISH = "DELETE FROM lanes WHERE chat_id = ? AND recipient = ? AND target <= ? AND claim = ?"
FREE = "UPDATE lanes SET due_ms = 0 WHERE claim <> ''"


class SqliteDeliveryQueues:
    def __init__(self, reads: Reads, writer: Writer) -> None:
        self._reads = reads
        self._writer = writer

    async def extend(
        self, chat_id: str, recipients: Sequence[str], first: int, last: int, claim: QueueClaim | None = None
    ) -> list[DeliveryQueue]:
        token, due_ms = (claim.token, claim.until_ms) if claim is not None else ("", 0)

        def work(tx: Transaction) -> list[DeliveryQueue]:
            new = []
            for recipient in recipients:
                if _changes(tx, OPEN_QUEUE, (chat_id, recipient, first, last, due_ms, token)):
                    new.append(
                        DeliveryQueue(
                            chat_id=chat_id,
                            recipient=recipient,
                            next_sequence=first,
                            target=last,
                            due_ms=due_ms,
                            claim=token,
                        )
                    )
                else:
                    tx.execute(RAISE, (last, chat_id, recipient, last))
            return new

        return await self._writer.run(work)

    async def due(
        self, prefix: str, now_ms: int, limit: int, besides: Collection[str] = ()
    ) -> list[DeliveryQueue]:
        rows = self._reads.rows(DUE, (prefix, now_ms, encode(sorted(besides)).decode(), limit))
        return [_queue(row) for row in rows]

    async def next_due(self, prefix: str, after_ms: int) -> int | None:
        row = self._reads.row(NEXT_DUE, (prefix, after_ms))
        return row[0] if row else None

    async def claim(
        self, chat_id: str, recipient: str, claim: QueueClaim, now_ms: int
    ) -> DeliveryQueue | None:
        def work(tx: Transaction) -> DeliveryQueue | None:
            row = tx.execute(THE_QUEUE, (chat_id, recipient)).fetchone()
            queue = _queue(row) if row is not None else None
            if queue is None or queue.due_ms > now_ms:
                return None
            tx.execute(CLAIM, (claim.token, claim.until_ms, chat_id, recipient))
            return queue

        return await self._writer.run(work)

    async def advance(self, queue: DeliveryQueue, token: str) -> DeliveryQueue | None:
        values = (
            queue.next_sequence,
            queue.due_ms,
            queue.retry_count,
            queue.crashes,
            encode(queue.attempts).decode(),
            queue.claim,
            queue.chat_id,
            queue.recipient,
            token,
        )

        def work(tx: Transaction) -> DeliveryQueue | None:
            if not _changes(tx, ADVANCE, values):
                return None
            row: Any = tx.execute(THE_QUEUE, (queue.chat_id, queue.recipient)).fetchone()
            return _queue(row)

        return await self._writer.run(work)

    async def finish(self, queue: DeliveryQueue) -> bool:
        values = (queue.chat_id, queue.recipient, queue.target, queue.claim)

        def work(tx: Transaction) -> bool:
            if _changes(tx, FINISH, values):
                return True
            return tx.execute(THE_QUEUE, (queue.chat_id, queue.recipient)).fetchone() is None

        return await self._writer.run(work)

    async def free(self) -> None:
        """No other process runs queues: what is claimed was left behind by a crash."""
        await self._writer.run(lambda tx: tx.execute(FREE))

    async def forget(self, recipient: str) -> None:
        await self._writer.run(lambda tx: tx.execute("DELETE FROM lanes WHERE recipient = ?", (recipient,)))


def _changes(transaction: Transaction, sql: str, values: Sequence[Any]) -> int:
    transaction.execute(sql, tuple(values))
    return transaction.connection.changes()


def _queue(row: Row) -> DeliveryQueue:
    chat_id, recipient, next_sequence, target, due_ms, retry_count, crashes, attempts, claim = row
    return DeliveryQueue(
        chat_id=chat_id,
        recipient=recipient,
        next_sequence=next_sequence,
        target=target,
        due_ms=due_ms,
        retry_count=retry_count,
        crashes=crashes,
        attempts=decode_events(attempts),
        claim=claim,
    )
