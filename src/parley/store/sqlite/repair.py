"""The repair room: a chat whose counter is gone gets it back, in one transaction with the voids it needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import structlog

from parley.clock import Clock, iso
from parley.errors import CounterMissingError
from parley.store.checks import Findings
from parley.store.recovery import Found, NoSuchChat, Recovery, check_holes, decide_counter
from parley.store.sqlite import schema
from parley.store.sqlite.beside import connect_beside, snapshot, writing
from parley.store.sqlite.check_log import LogCheck

log = structlog.get_logger("parley.store")

FOUND = """
SELECT
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
    entries, last, open_allocations, keys, device_cursors, delivery_state = (
        number or 0 for number in row[1:]
    )
    return Found(
        chat_id=chat_id,
        counter=row[0],
        entries=entries,
        voids=last if last > entries else 0,
        open_allocations=open_allocations,
        keys=keys,
        device_cursors=device_cursors,
        delivery_state=delivery_state,
    )


def _decide(connection: apsw.Connection, chat_id: str, seal_holes: bool) -> Recovery:
    found = look(connection, chat_id)
    counter, is_lost = decide_counter(found)
    first = 1 if seal_holes else found.log_end + 1
    voids = _holes(connection, chat_id, first, counter) if is_lost or seal_holes else []
    return Recovery(found, is_lost, counter, check_holes(voids), applied=False)


def _holes(connection: apsw.Connection, chat_id: str, first: int, last: int) -> list[tuple[int, int]]:
    """Stretches from `first` to `last` that are neither an entry nor a void nor open."""
    rows: list[Any] = connection.execute(HOLES, (_chat_no(connection, chat_id), first, last)).fetchall()
    return [(start, end) for start, end in rows]


def _chat_no(connection: apsw.Connection, chat_id: str) -> int:
    number: Any = connection.execute("SELECT chat_no FROM chats WHERE chat_id = ?", (chat_id,)).get
    return int(number)


def _write(connection: apsw.Connection, recovery: Recovery, now: str) -> None:
    found = recovery.found
    if not recovery.is_lost and not recovery.voids:
        return
    chat_no = _chat_no(connection, found.chat_id)
    change: Any = connection.execute(NEXT_CHANGE).fetchone()
    if recovery.is_lost:
        connection.execute(INSERT_COUNTER, (found.chat_id, recovery.counter, now, change[0]))
        if connection.changes() != 1:
            raise CounterMissingError("the counter came back meanwhile; run this again")
    connection.execute(TOUCH, (change[0], now, found.chat_id))
    connection.executemany(
        INSERT_VOID,
        [
            (chat_no, number, schema.VOID)
            for first, last in recovery.voids
            for number in range(first, last + 1)
        ],
    )


def _verify(connection: apsw.Connection, recovery: Recovery) -> None:
    """Read back what was written, then check the chat's whole log."""
    found, findings = look(connection, recovery.found.chat_id), Findings()
    epoch: Any = connection.execute("SELECT epoch FROM chats WHERE chat_id = ?", (found.chat_id,)).get
    chat_no = _chat_no(connection, found.chat_id)
    LogCheck(connection, findings).check(chat_no, found.chat_id, int(epoch), lambda: None)
    recovery.breaches = findings.breaches
    if found.counter is None or found.counter < recovery.counter:
        raise CounterMissingError("the counter is gone again after it was written; find out who deletes it")
    if recovery.is_lost:
        log.warning(
            "Counter recovered",
            chat_id=found.chat_id,
            recovered_sequence=recovery.counter,
            voids=recovery.void_count,
        )
    elif recovery.voids:
        log.warning("Holes sealed", chat_id=found.chat_id, voids=recovery.void_count)
