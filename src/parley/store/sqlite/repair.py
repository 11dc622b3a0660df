"""The repair room: a chat whose counter is gone gets it back, after the sources' recovery procedure.

A missing counter is never guessed from one table alone. What was ever given out shows in entries, voids,
open allocations, idempotency keys, and in the positions that devices and people have reported: the highest
of all is where the chat goes on. Numbers between the last entry and that become voids in the same
transaction, so that no reader waits for what nobody has.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import structlog
from msgspec import Struct

from parley.clock import Clock, iso
from parley.errors import CounterMissingError, InconsistentCounterError, StoreError
from parley.store.checks import Breach, Findings
from parley.store.sqlite import schema
from parley.store.sqlite.beside import connect_beside, snapshot, writing
from parley.store.sqlite.check_log import LogCheck
from parley.store.sqlite.states import STRAY_POSITIONS_MAX

log = structlog.get_logger("parley.store")

FOUND = """
SELECT chats.chat_no,
    (SELECT sequence_counter FROM chat_counters WHERE chat_counters.chat_id = chats.chat_id),
    (SELECT max(sequence) FROM entries WHERE entries.chat_no = chats.chat_no AND kind <> 0),
    (SELECT max(sequence) FROM entries WHERE entries.chat_no = chats.chat_no),
    (SELECT max(sequence) FROM open_allocations WHERE open_allocations.chat_no = chats.chat_no),
    (SELECT max(sequence) FROM entries WHERE entries.chat_no = chats.chat_no AND client_id IS NOT NULL),
    (SELECT max(last_acked_sequence) FROM user_device_cursors AS u WHERE u.chat_id = chats.chat_id),
    (SELECT max(max(last_acked_sequence, read_up_to)) FROM delivery_state AS d
        WHERE d.chat_id = chats.chat_id)
FROM chats WHERE chats.chat_id = ?
"""
HOLES = """
SELECT before + 1, sequence - 1 FROM (
    SELECT sequence, lag(sequence, 1, ?2 - 1) OVER (ORDER BY sequence) AS before FROM (
        SELECT sequence FROM entries WHERE chat_no = ?1 AND sequence >= ?2
        UNION SELECT sequence FROM open_allocations WHERE chat_no = ?1 AND sequence >= ?2
        UNION SELECT ?3 + 1
    )
) WHERE sequence > before + 1
"""
INSERT_COUNTER = (
    "INSERT INTO chat_counters (chat_id, sequence_counter, created_at, updated_at, recovered_at,"
    " recovered_from_sequence, change) VALUES (?1, ?2, ?3, ?3, ?3, ?2, ?4) ON CONFLICT DO NOTHING"
)
INSERT_VOID = "INSERT INTO entries (chat_no, sequence, kind) VALUES (?, ?, ?)"
NEXT_CHANGE = "UPDATE changes SET last = last + 1 RETURNING last"
TOUCH = "UPDATE chat_counters SET change = ?, updated_at = ? WHERE chat_id = ?"
WITHOUT_COUNTER = (
    "SELECT chat_id FROM chats WHERE NOT EXISTS"
    " (SELECT 1 FROM chat_counters WHERE chat_counters.chat_id = chats.chat_id) ORDER BY chat_no"
)


class NoSuchChat(StoreError):
    """There is no chat of this id."""


class Unbelievable(StoreError):
    """A position so far beyond the log that it must be a mistake; nothing was written."""


class Found(Struct):
    """The highest number that each of a chat's tables knows of; 0 where there is none.

    `voids` counts only those that lie beyond the last entry: the others say nothing more.
    """

    chat_id: str
    chat_no: int
    counter: int | None
    entries: int
    voids: int
    open_allocations: int
    keys: int
    device_cursors: int
    delivery_state: int

    @property
    def log_end(self) -> int:
        """The highest number that the log itself knows of."""
        return max(self.entries, self.voids, self.open_allocations, self.keys)

    @property
    def maximum(self) -> int:
        """The highest number that anything knows of: where the chat goes on."""
        return max(self.log_end, self.device_cursors, self.delivery_state)


class Recovery(Struct):
    """What was found and what was, or would be, written."""

    found: Found
    is_missing: bool
    counter: int
    voids: list[tuple[int, int]]
    """First and last number of each stretch that becomes void."""
    applied: bool
    breaches: list[Breach] = []

    @property
    def void_count(self) -> int:
        return sum(last - first + 1 for first, last in self.voids)


def recover(folder: Path, chat_id: str, clock: Clock, *, apply: bool, seal_holes: bool = False) -> Recovery:
    """Look, decide and, if asked to, write and verify. InconsistentCounterError when it needs a person."""
    with connect_beside(folder, read_only=not apply) as connection:
        if not apply:
            with snapshot(connection):
                return _decide(connection, chat_id, seal_holes)
        with writing(connection):
            recovery = _decide(connection, chat_id, seal_holes)
            _write(connection, recovery, iso(clock()))
        recovery.applied = True
        _verify(connection, recovery)
        return recovery


def chats_without_counter(folder: Path) -> list[str]:
    with connect_beside(folder, read_only=True) as connection:
        rows: list[tuple[Any, ...]] = connection.execute(WITHOUT_COUNTER).fetchall()
    return [chat_id for (chat_id,) in rows]


def look(connection: apsw.Connection, chat_id: str) -> Found:
    row: Any = connection.execute(FOUND, (chat_id,)).fetchone()
    if row is None:
        raise NoSuchChat(f"there is no chat {chat_id}")
    chat_no, counter, *numbers = row
    entries, last, *others = (number or 0 for number in numbers)
    return Found(chat_id, chat_no, counter, entries, last if last > entries else 0, *others)


def _decide(connection: apsw.Connection, chat_id: str, seal_holes: bool) -> Recovery:
    found = look(connection, chat_id)
    if found.counter is not None and found.counter < found.log_end:
        raise InconsistentCounterError(found.counter, found.log_end)
    is_missing = found.counter is None
    counter = found.maximum if found.counter is None else found.counter
    if is_missing and counter - found.log_end > STRAY_POSITIONS_MAX:
        raise Unbelievable(
            f"a cursor says {counter}, but the log of {chat_id} ends at {found.log_end}: too far to be true."
            " Look at user_device_cursors and delivery_state, correct the row, and run this again"
        )
    first = 1 if seal_holes else found.log_end + 1
    wants_voids = is_missing or seal_holes
    voids = _holes(connection, found.chat_no, first, counter) if wants_voids else []
    return Recovery(found, is_missing, counter, voids, applied=False)


def _holes(connection: apsw.Connection, chat_no: int, first: int, last: int) -> list[tuple[int, int]]:
    """Stretches from `first` to `last` that are neither an entry nor a void nor open."""
    rows: list[Any] = connection.execute(HOLES, (chat_no, first, last)).fetchall()
    holes: list[tuple[int, int]] = [(start, end) for start, end in rows]
    if sum(end - start + 1 for start, end in holes) > STRAY_POSITIONS_MAX:
        raise Unbelievable(f"more than {STRAY_POSITIONS_MAX:,} numbers are missing: restore a backup instead")
    return holes


def _write(connection: apsw.Connection, recovery: Recovery, now: str) -> None:
    found = recovery.found
    if not recovery.is_missing and not recovery.voids:
        return
    change: Any = connection.execute(NEXT_CHANGE).fetchone()
    if recovery.is_missing:
        connection.execute(INSERT_COUNTER, (found.chat_id, recovery.counter, now, change[0]))
        if connection.changes() != 1:
            raise CounterMissingError("the counter came back meanwhile; run this again")
    connection.execute(TOUCH, (change[0], now, found.chat_id))
    connection.executemany(
        INSERT_VOID,
        [
            (found.chat_no, number, schema.VOID)
            for first, last in recovery.voids
            for number in range(first, last + 1)
        ],
    )


def _verify(connection: apsw.Connection, recovery: Recovery) -> None:
    """Read back what was written, then check the chat's whole log."""
    found, findings = look(connection, recovery.found.chat_id), Findings()
    epoch: Any = connection.execute("SELECT epoch FROM chats WHERE chat_no = ?", (found.chat_no,)).get
    LogCheck(connection, findings).check(found.chat_no, found.chat_id, int(epoch), lambda: None)
    recovery.breaches = findings.breaches
    if found.counter is None or found.counter < recovery.counter:
        raise CounterMissingError("the counter is gone again after it was written; find out who deletes it")
    if recovery.is_missing:
        log.warning(
            "Counter recovered",
            chat_id=found.chat_id,
            recovered_sequence=recovery.counter,
            voids=recovery.void_count,
        )
    elif recovery.voids:
        log.warning("Holes sealed", chat_id=found.chat_id, voids=recovery.void_count)
