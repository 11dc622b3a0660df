"""The ports of deliveries on SQLite."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, cast

import msgspec

from parley.store.delivery.rows import (
    DeadLetter,
    DeliveryEvent,
    Lane,
    LaneClaim,
    LetterStatus,
    Selection,
    discarded_letter,
    queued_letter,
)
from parley.store.sqlite.reads import Reads, Row
from parley.store.sqlite.writer import Transaction, Writer

encode = msgspec.json.Encoder().encode
decode_events = msgspec.json.Decoder(tuple[DeliveryEvent, ...]).decode

EXPIRED_PER_STEP = 500
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

COLUMNS = DeadLetter.__struct_fields__
LETTER = f"SELECT {', '.join(COLUMNS)} FROM dead_letters"
ADD = f"INSERT OR IGNORE INTO dead_letters ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
SETTLED = tuple(name for name in COLUMNS if name != "version")
SETTLE = (
    f"UPDATE dead_letters SET {', '.join(f'{name} = ?' for name in SETTLED)}, version = version + 1"
    " WHERE dlq_id = ? AND version = ?"
)
PENDING = "SELECT dlq_id FROM dead_letters WHERE status = 'pending'"
IN_ORDER = "ORDER BY recipient, chat_id, sequence"
FRONTS = (
    f"SELECT {', '.join(COLUMNS)} FROM (SELECT *, row_number() OVER"
    " (PARTITION BY recipient, chat_id ORDER BY sequence) AS place FROM dead_letters"
    f" WHERE is_queued AND {OF_KIND}) WHERE place <= ? ORDER BY recipient, chat_id, sequence"
)
EXPIRE = (
    "DELETE FROM dead_letters WHERE dlq_id IN (SELECT dlq_id FROM dead_letters"
    f" WHERE changed_ms < ? AND NOT is_queued LIMIT {EXPIRED_PER_STEP})"
)


Change = Callable[[DeadLetter], DeadLetter]


class SqliteDeliveries:
    def __init__(self, reads: Reads, writer: Writer) -> None:
        self.lanes = SqliteLanes(reads, writer)
        self.dead_letters = SqliteDeadLetters(reads, writer)


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


class SqliteDeadLetters:
    def __init__(self, reads: Reads, writer: Writer) -> None:
        self._reads = reads
        self._writer = writer

    async def add(self, letter: DeadLetter) -> bool:
        return await self._writer.run(lambda tx: _changes(tx, ADD, _row_of(letter)) == 1)

    async def find(self, selection: Selection, before_id: str, limit: int) -> list[DeadLetter]:
        where, values = _where(selection)
        if before_id:
            where, values = f"{where} AND dlq_id < ?", [*values, before_id]
        sql = f"{LETTER} WHERE {where} ORDER BY dlq_id DESC LIMIT ?"
        return [_letter(row) for row in self._reads.rows(sql, (*values, limit))]

    async def count(self, selection: Selection) -> dict[str, int]:
        where, values = _where(selection)
        sql = f"SELECT error, count(*) FROM dead_letters WHERE {where} GROUP BY error"
        return dict(self._reads.rows(sql, tuple(values)))

    async def queue(self, selection: Selection, job_id: str, event: DeliveryEvent) -> int:
        where, values = _where(selection)
        change = partial(queued_letter, job_id=job_id, event=event)
        return await self._change(f"NOT is_queued AND {where}", values, change)

    async def discard(self, selection: Selection, job_id: str, event: DeliveryEvent) -> int:
        where, values = _where(selection)
        return await self._change(where, values, partial(discarded_letter, job_id=job_id, event=event))

    async def _change(self, where: str, values: Sequence[Any], change: Change) -> int:
        """All of them, or none."""

        def work(tx: Transaction) -> int:
            chosen = tx.execute(f"{PENDING} AND {where} {IN_ORDER}", tuple(values)).fetchall()
            for one in chosen:
                letter = _letter(cast(Row, tx.execute(f"{LETTER} WHERE dlq_id = ?", one).fetchone()))
                tx.execute(SETTLE, (*_settled(change(letter)), letter.dlq_id, letter.version))
            return len(chosen)

        return await self._writer.run(work)

    async def queued(self, prefix: str, limit: int) -> list[DeadLetter]:
        return [_letter(row) for row in self._reads.rows(FRONTS, (prefix, limit))]

    async def settle(self, letter: DeadLetter) -> bool:
        row = (*_settled(letter), letter.dlq_id, letter.version)
        return await self._writer.run(lambda tx: _changes(tx, SETTLE, row) == 1)

    async def expire(self, before_ms: int) -> int:
        gone = 0
        while step := await self._writer.run(lambda tx: _changes(tx, EXPIRE, (before_ms,))):
            gone += step
        return gone


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


def _row_of(letter: DeadLetter) -> tuple[Any, ...]:
    values = {name: getattr(letter, name) for name in COLUMNS}
    values |= {
        "status": letter.status.value,
        "is_queued": int(letter.is_queued),
        "history": encode(letter.history).decode(),
    }
    return tuple(values.values())


def _settled(letter: DeadLetter) -> list[Any]:
    return [value for name, value in zip(COLUMNS, _row_of(letter), strict=True) if name != "version"]


def _letter(row: Row) -> DeadLetter:
    values = dict(zip(COLUMNS, row, strict=True))
    values |= {
        "status": LetterStatus(values["status"]),
        "is_queued": bool(values["is_queued"]),
        "history": decode_events(values["history"]),
    }
    return DeadLetter(**values)


def _where(selection: Selection) -> tuple[str, list[Any]]:
    """As a condition, with the values of its parameters."""
    conditions: list[tuple[str, Any]] = [
        ("status = ?", selection.status and selection.status.value),
        ("is_queued = ?", None if selection.is_queued is None else int(selection.is_queued)),
        ("error = ?", selection.error),
        ("source_topic = ?", selection.topic),
        ("chat_id = ?", selection.chat_id),
        ("recipient = ?", selection.recipient),
        ("job_id = ?", selection.job_id),
        ("dlq_ms >= ?", selection.after_ms),
        ("dlq_ms < ?", selection.before_ms),
    ]
    if selection.ids is not None:
        ids = [dlq_id for dlq_id in selection.ids if "\0" not in dlq_id]
        conditions.append(("dlq_id IN (SELECT value FROM json_each(?))", encode(ids).decode()))
    given = [(text, value) for text, value in conditions if value is not None]
    return " AND ".join(text for text, _ in given) or "1", [value for _, value in given]
