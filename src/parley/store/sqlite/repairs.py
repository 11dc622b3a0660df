"""The `Repairs` port on SQLite: one transaction writes a counter and its voids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw

from parley.clock import Clock, iso
from parley.errors import CounterMissingError
from parley.store.folder import DATABASE_NAME
from parley.store.invariants import NoSuchChat
from parley.store.rows import Remains, Repair
from parley.store.sqlite import schema
from parley.store.sqlite.command_connection import command_connection, writing

TRACES = """
SELECT
    (SELECT sequence_counter FROM chat_counters WHERE chat_counters.chat_id = chats.chat_id),
    (SELECT max(sequence) FROM entries WHERE entries.chat_no = chats.chat_no AND kind <> 0),
    (SELECT max(sequence) FROM entries WHERE entries.chat_no = chats.chat_no),
    (SELECT max(sequence) FROM open_allocations WHERE open_allocations.chat_no = chats.chat_no),
    (SELECT max(sequence) FROM entries WHERE entries.chat_no = chats.chat_no AND client_id IS NOT NULL),
    (SELECT max(last_acked_sequence) FROM user_device_cursors AS u WHERE u.chat_id = chats.chat_id),
    (SELECT max(max(last_acked_sequence, read_up_to)) FROM delivery_state AS d
        WHERE d.chat_id = chats.chat_id),
    (SELECT max(trimmed_through, archived_through) FROM chat_archives AS a WHERE a.chat_id = chats.chat_id)
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
INSERT_VOID = "INSERT INTO entries (chat_no, sequence, kind) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
NEXT_CHANGE = "UPDATE changes SET last = last + 1 RETURNING last"
TOUCH = "UPDATE chat_counters SET change = ?, updated_at = ? WHERE chat_id = ? RETURNING sequence_counter"
WITHOUT_COUNTER = (
    "SELECT chat_id FROM chats WHERE NOT EXISTS"
    " (SELECT 1 FROM chat_counters WHERE chat_counters.chat_id = chats.chat_id) ORDER BY chat_no"
)


class SqliteRepairs:
    may_raise = False

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock

    async def chats_without_counter(self) -> list[str]:
        with command_connection(self._folder, read_only=True) as connection:
            rows: list[Any] = connection.execute(WITHOUT_COUNTER).fetchall()
        return [chat_id for (chat_id,) in rows]

    async def remains(self, chat_id: str) -> Remains:
        with command_connection(self._folder, read_only=True) as connection:
            return _remains(connection, chat_id)

    async def holes(self, chat_id: str, first: int, last: int) -> list[tuple[int, int]]:
        with command_connection(self._folder, read_only=True) as connection:
            rows: list[Any] = connection.execute(
                HOLES, (_chat_no(connection, chat_id), first, last)
            ).fetchall()
        return [(start, end) for start, end in rows]

    async def write(self, repair: Repair) -> int:
        with command_connection(self._folder, read_only=False) as connection, writing(connection):
            return self._write(connection, repair)

    def _write(self, connection: apsw.Connection, repair: Repair) -> int:
        chat_id, now = repair.chat_id, iso(self._clock())
        chat_no = _chat_no(connection, chat_id)
        change: Any = connection.execute(NEXT_CHANGE).fetchone()
        if repair.counter_is_lost:
            # Without a counter nothing is appended: the facts still hold, or the counter was restored.
            if _remains(connection, chat_id) != repair.remains:
                raise CounterMissingError("the chat changed meanwhile; run this again")
            connection.execute(INSERT_COUNTER, (chat_id, repair.counter, now, change[0]))
        counter: Any = connection.execute(TOUCH, (change[0], now, chat_id)).get
        if counter is None:
            raise CounterMissingError("the counter was lost meanwhile; run this again")
        numbers = (number for first, last in repair.voids for number in range(first, last + 1))
        connection.executemany(INSERT_VOID, [(chat_no, number, schema.VOID) for number in numbers])
        return int(counter)

    def how_to_delete_counter(self, chat_id: str) -> str:
        file = self._folder / DATABASE_NAME
        return (
            f"sqlite3 {file} \"DELETE FROM chat_counters WHERE chat_id = '{chat_id}'\""
            f"\nparley recover {chat_id} --data {self._folder} --apply"
        )


def _remains(connection: apsw.Connection, chat_id: str) -> Remains:
    row: Any = connection.execute(TRACES, (chat_id,)).fetchone()
    if row is None:
        raise NoSuchChat(f"there is no chat {chat_id}")
    entries, last, unresolved, keys, devices, people, trimmed = (number or 0 for number in row[1:])
    return Remains(
        chat_id=chat_id,
        counter=row[0],
        entries=entries,
        voids=last if last > entries else 0,
        open_allocations=unresolved,
        keys=keys,
        trimmed=trimmed,
        device_cursors=devices,
        delivery_state=people,
    )


def _chat_no(connection: apsw.Connection, chat_id: str) -> int:
    number: Any = connection.execute("SELECT chat_no FROM chats WHERE chat_id = ?", (chat_id,)).get
    if number is None:
        raise NoSuchChat(f"there is no chat {chat_id}")
    return int(number)
