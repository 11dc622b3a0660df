"""Members, cursors and direct chats against the logs that they speak of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import apsw

from parley.store.checks import Breach, Findings

ROWS_PER_CHUNK = 2_000

FROM_BACKUP = "restore a backup"
LOST_TAIL = (
    "entries were lost, or an older file was put back: restore a newer backup; if there is none,"
    " delete the row from {table}, and the device starts over"
)

MEMBERS = """
SELECT count(*), total(role = 'owner'), max(joined_sequence),
    total(role NOT IN ('owner', 'admin', 'member')),
    total(NOT EXISTS (SELECT 1 FROM users AS u WHERE u.user_id = m.user_id)),
    total(NOT EXISTS (
        SELECT 1 FROM delivery_state AS d
        WHERE d.user_id = m.user_id AND d.chat_id = m.chat_id AND NOT d.has_left
    )),
    (SELECT max(sequence) FROM entries WHERE chat_no = (SELECT chat_no FROM chats WHERE chat_id = ?1))
FROM chat_memberships AS m WHERE chat_id = ?1
"""

LAST = "(SELECT max(sequence) FROM entries AS e WHERE e.chat_no = chats.chat_no)"
IS_THERE = "EXISTS (SELECT 1 FROM entries AS e WHERE e.chat_no = chats.chat_no AND e.sequence = at)"

DEVICE_CURSORS = f"""
SELECT chat_id, user_id || ' on ' || device_id, at, at, chat_no IS NULL, {LAST}, at < 1 OR {IS_THERE}, 0,
    user_id, device_id, chat_id
FROM (SELECT *, last_acked_sequence AS at FROM user_device_cursors
    WHERE (user_id, device_id, chat_id) > (?, ?, ?)
    ORDER BY user_id, device_id, chat_id LIMIT {ROWS_PER_CHUNK})
LEFT JOIN chats USING (chat_id) ORDER BY user_id, device_id, chat_id
"""
DELIVERY_STATE = f"""
SELECT chat_id, user_id, at, max(at, read_up_to), chat_no IS NULL, {LAST}, at < 1 OR {IS_THERE},
    change - (SELECT last FROM changes), user_id, chat_id
FROM (SELECT *, last_acked_sequence AS at FROM delivery_state
    WHERE (user_id, chat_id) > (?, ?)
    ORDER BY user_id, chat_id LIMIT {ROWS_PER_CHUNK})
LEFT JOIN chats USING (chat_id) ORDER BY user_id, chat_id
"""
DIRECT_CHATS = """
SELECT chat_no, chat_id, chat_type, direct_key,
    (SELECT group_concat(user_id, '|') FROM
        (SELECT user_id FROM chat_memberships AS m WHERE m.chat_id = chats.chat_id ORDER BY user_id LIMIT 3)),
    (SELECT count(*) FROM chats AS twin WHERE twin.direct_key = chats.direct_key)
FROM chats WHERE chat_no > ? AND (chat_type = 'direct' OR direct_key IS NOT NULL) ORDER BY chat_no LIMIT ?
"""
STRAYS = [
    ("chat_counters", "chat_id", "chat_id", "chats", "chat_id"),
    ("chat_memberships", "chat_id", "chat_id", "chats", "chat_id"),
    ("open_allocations", "chat_no", "chat_no", "chats", "chat_no"),
    ("sessions", "session_id", "user_id", "users", "user_id"),
    ("relations", "user_id", "user_id", "users", "user_id"),
    ("relations", "other_id", "other_id", "users", "user_id"),
]
"""A table, what names its rows, a column of it, and the table and column that this refers to."""
STRAYS_TOLD_MAX = 10

Row = tuple[Any, ...]


class PeopleCheck:
    def __init__(self, connection: apsw.Connection, findings: Findings) -> None:
        self._connection = connection
        self._findings = findings

    def _breach(
        self, invariant: str, chat_id: str | None, sequence: int | None, says: str, remedy: str
    ) -> None:
        self._findings.add(Breach(invariant, says, remedy, chat_id, sequence))

    def check_chat(self, chat_id: str, chat_type: str) -> None:
        row: Any = self._connection.execute(MEMBERS, (chat_id,)).fetchone()
        members, owners, joined, odd_roles, strangers, unseen, last = row
        problems = {
            "members have a role that does not exist": odd_roles,
            "members have no account": strangers,
            "members do not find the chat in their overview (no row in delivery_state)": unseen,
        }
        for says, count in problems.items():
            if count:
                self._breach("membership", chat_id, None, f"{count:.0f} {says}", FROM_BACKUP)
        if chat_type == "group" and members and not owners:
            remedy = "make a member its owner: UPDATE chat_memberships SET role = 'owner' WHERE …"
            self._breach("membership", chat_id, None, "the group has no owner", remedy)
        if joined is not None and joined > (last or 0):
            says = f"a member joined at {joined}, the log ends at {last or 0}"
            self._breach("membership", chat_id, joined, says, FROM_BACKUP)

    # Cursors

    def check_cursors(self, chat_ids: Sequence[str] | None) -> None:
        chosen = None if chat_ids is None else set(chat_ids)
        for row in self._pages(DEVICE_CURSORS, 3):
            if chosen is None or row[0] in chosen:
                self._check_cursor("user_device_cursors", row)
        for row in self._pages(DELIVERY_STATE, 2):
            if chosen is None or row[0] in chosen:
                self._check_cursor("delivery_state", row)

    def _pages(self, sql: str, key_columns: int) -> Iterator[Row]:
        """Every row, a chunk at a time; the last columns are the key that the next chunk starts after."""
        after: Row = ("",) * key_columns
        while rows := self._connection.execute(sql, after).fetchall():
            yield from rows
            after = rows[-1][-key_columns:]

    def _check_cursor(self, table: str, row: Row) -> None:
        chat_id, whose, acked, furthest, is_stray, last, is_there, change_ahead = row[:8]
        remedy = LOST_TAIL.format(table=table)
        if is_stray:
            says = f"{table}: {whose} has a position in a chat that does not exist"
            self._breach("references", chat_id, None, says, f"delete the row from {table}")
            return
        if furthest > (last or 0):
            says = f"{table}: {whose} is at {furthest}, the log ends at {last or 0}"
            self._breach("delivery_state_consistency", chat_id, furthest, says, remedy)
        if furthest > acked:
            says = f"{table}: {whose} has read up to {furthest}, and only {acked} was delivered"
            mend = "UPDATE delivery_state SET last_acked_sequence = read_up_to WHERE …"
            self._breach("delivery_state_consistency", chat_id, furthest, says, mend)
        if not is_there:
            says = f"{table}: {whose} acknowledged {acked}, which is not in the log"
            self._breach("ack_implies_persistence", chat_id, acked, says, remedy)
        if change_ahead > 0:
            says = f"{table}: {whose} has a change beyond the last one"
            self._breach("change_order", chat_id, None, says, FROM_BACKUP)

    # Chats as a whole

    def check_direct_keys(self) -> None:
        after: Any = -1
        while rows := self._connection.execute(DIRECT_CHATS, (after, ROWS_PER_CHUNK)).fetchall():
            for row in rows:
                self._check_direct(row)
            after = rows[-1][0]

    def _check_direct(self, row: Row) -> None:
        _, chat_id, chat_type, key, members, twins = row
        if chat_type != "direct":
            says = "this chat is a group and yet is keyed as the direct chat of two people"
        elif key is None or key != members:
            says = f"the key of this direct chat is {key}, its members are {members}"
        elif twins > 1:
            says = f"{twins} direct chats are of the same two people"
        else:
            return
        self._breach("direct_uniqueness", chat_id, None, says, FROM_BACKUP)

    def check_references(self) -> None:
        for table, named_by, column, target, target_column in STRAYS:
            sql = (
                f"SELECT DISTINCT {named_by} FROM {table} WHERE NOT EXISTS"
                f" (SELECT 1 FROM {target} WHERE {target}.{target_column} = {table}.{column})"
                f" LIMIT {STRAYS_TOLD_MAX}"
            )
            for (name,) in self._connection.execute(sql).fetchall():
                says = f"{table}: {name} belongs to nothing that exists"
                self._breach("references", None, None, says, f"delete the row from {table}")
        for chat_no in self._stray_logs():
            says = f"entries: those of chat number {chat_no} belong to no chat"
            self._breach("references", None, None, says, FROM_BACKUP)

    def _stray_logs(self) -> Iterator[int]:
        """Hop from log to log over the index, without reading the entries between."""
        hop = "SELECT min(chat_no) FROM entries WHERE chat_no > ?"
        is_chat = "SELECT 1 FROM chats WHERE chat_no = ?"
        chat_no: Any = self._connection.execute(hop, (-1,)).get
        while chat_no is not None:
            if self._connection.execute(is_chat, (chat_no,)).get is None:
                yield chat_no
            chat_no = self._connection.execute(hop, (chat_no,)).get
