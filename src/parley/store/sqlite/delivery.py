"""The ports of deliveries on SQLite."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from parley.core.deliveries import (
    DeliveryEvent,
    Lane,
    LaneClaim,
)
from parley.store.sqlite.reads import Reads, Row
from parley.store.sqlite.writer import Transaction, Writer

encode = msgspec.json.Encoder().encode
decode_events = msgspec.json.Decoder(tuple[DeliveryEvent, ...]).decode

LANE_COLUMNS = "chat_id, recipient, next_sequence, target, due_ms, retry_count, crashes, attempts, claim"
LANE = f"SELECT {LANE_COLUMNS} FROM lanes"
OPEN_LANE = f"INSERT OR IGNORE INTO lanes ({LANE_COLUMNS}) VALUES (?, ?, ?, ?, ?, 0, 0, '[]', ?)"
RAISE = "UPDATE lanes SET target = ? WHERE chat_id = ? AND recipient = ? AND target < ?"
OF_KIND = "substr(recipient, 1, length(?1)) = ?1"
DUE = (
    f"{LANE} WHERE {OF_KIND} AND due_ms <= ? AND recipient NOT IN (SELECT value FROM json_each(?))"
    " ORDER BY due_ms, chat_id, recipient LIMIT ?"
)
NEXT_DUE = f"SELECT min(due_ms) FROM lanes WHERE {OF_KIND} AND due_ms > ?"
THE_LANE = f"{LANE} WHERE chat_id = ? AND recipient = ?"
CLAIM = "UPDATE lanes SET claim = ?, due_ms = ? WHERE chat_id = ? AND recipient = ?"
ADVANCE = (
    "UPDATE lanes SET next_sequence = ?, due_ms = ?, retry_count = ?, crashes = ?,"
    " attempts = ?, claim = ? WHERE chat_id = ? AND recipient = ? AND claim = ?"
)
FINISH = "DELETE FROM lanes WHERE chat_id = ? AND recipient = ? AND target <= ? AND claim = ?"
FREE = "UPDATE lanes SET due_ms = 0 WHERE claim <> ''"


class SqliteLanes:
    def __init__(self, reads: Reads, writer: Writer) -> None:
        self._reads = reads
        self._writer = writer

    async def extend(
        self, chat_id: str, recipients: Sequence[str], first: int, last: int, claim: LaneClaim | None = None
    ) -> list[Lane]:
        token, due_ms = (claim.token, claim.until_ms) if claim is not None else ("", 0)

        def work(tx: Transaction) -> list[Lane]:
            new = []
            for recipient in recipients:
                if _changes(tx, OPEN_LANE, (chat_id, recipient, first, last, due_ms, token)):
                    new.append(
                        Lane(
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

    async def due(self, prefix: str, now_ms: int, limit: int, besides: Collection[str] = ()) -> list[Lane]:
        rows = self._reads.rows(DUE, (prefix, now_ms, encode(sorted(besides)).decode(), limit))
        return [_lane(row) for row in rows]

    async def next_due(self, prefix: str, after_ms: int) -> int | None:
        row = self._reads.row(NEXT_DUE, (prefix, after_ms))
        return row[0] if row else None

    async def claim(self, chat_id: str, recipient: str, claim: LaneClaim, now_ms: int) -> Lane | None:
        def work(tx: Transaction) -> Lane | None:
            row = tx.execute(THE_LANE, (chat_id, recipient)).fetchone()
            lane = _lane(row) if row is not None else None
            if lane is None or lane.due_ms > now_ms:
                return None
            tx.execute(CLAIM, (claim.token, claim.until_ms, chat_id, recipient))
            return lane

        return await self._writer.run(work)

    async def advance(self, lane: Lane, token: str) -> Lane | None:
        values = (
            lane.next_sequence,
            lane.due_ms,
            lane.retry_count,
            lane.crashes,
            encode(lane.attempts).decode(),
            lane.claim,
            lane.chat_id,
            lane.recipient,
            token,
        )

        def work(tx: Transaction) -> Lane | None:
            if not _changes(tx, ADVANCE, values):
                return None
            row: Any = tx.execute(THE_LANE, (lane.chat_id, lane.recipient)).fetchone()
            return _lane(row)

        return await self._writer.run(work)

    async def finish(self, lane: Lane) -> bool:
        values = (lane.chat_id, lane.recipient, lane.target, lane.claim)

        def work(tx: Transaction) -> bool:
            if _changes(tx, FINISH, values):
                return True
            return tx.execute(THE_LANE, (lane.chat_id, lane.recipient)).fetchone() is None

        return await self._writer.run(work)

    async def free(self) -> None:
        """No other process runs lanes: what is claimed was left behind by a crash."""
        await self._writer.run(lambda tx: tx.execute(FREE))

    async def forget(self, recipient: str) -> None:
        await self._writer.run(lambda tx: tx.execute("DELETE FROM lanes WHERE recipient = ?", (recipient,)))


def _changes(transaction: Transaction, sql: str, values: Sequence[Any]) -> int:
    transaction.execute(sql, tuple(values))
    return transaction.connection.changes()


def _lane(row: Row) -> Lane:
    chat_id, recipient, next_sequence, target, due_ms, retry_count, crashes, attempts, claim = row
    return Lane(
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
