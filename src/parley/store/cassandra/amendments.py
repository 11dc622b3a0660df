"""The `Amendments` port on Cassandra.

Notes and marks are plain writes that may be repeated, and come in any order. The time of a mark is the
position of its entry. Each try has a row of its own among the notes, which is written once and deleted once.
A body is replaced under the condition that it is still what was read, also in a closed bucket.
"""

from __future__ import annotations

from collections.abc import Sequence

from parley.store.amendments import AmendmentNote, MessageMark
from parley.store.cassandra.chat_state import NO_KEY, CassandraChatStates
from parley.store.cassandra.client import is_key
from parley.store.cassandra.cold_tier import READ_WIRE
from parley.store.cassandra.connection import Row, Statement
from parley.store.cassandra.schema import AMENDMENTS, LOG, MESSAGE_MARKS
from parley.wire.codec import decode_entry

ONE_TIME = 1
"""Of two writes with the same time the one that deletes counts, whatever the clocks of their nodes say."""
BEGIN = (
    f"INSERT INTO {AMENDMENTS} (chat_id, client_key, since_ms, target) VALUES (?, ?, ?, ?)"
    f" USING TIMESTAMP {ONE_TIME}"
)
UNDER_WAY = f"SELECT chat_id, client_key, target, since_ms FROM {AMENDMENTS}"
FINISH = (
    f"DELETE FROM {AMENDMENTS} USING TIMESTAMP {ONE_TIME}"
    " WHERE chat_id = ? AND client_key = ? AND since_ms <= ?"
)
"""Earlier tries of the same, too."""
MARK = (
    f"INSERT INTO {MESSAGE_MARKS} (chat_id, target, name, sequence, is_on) VALUES (?, ?, ?, ?, ?)"
    " USING TIMESTAMP ?"
)
MARKS = f"SELECT name, sequence, is_on FROM {MESSAGE_MARKS} WHERE chat_id = ? AND target = ?"
REPLACE = (
    f"UPDATE {LOG} SET wire = ?, is_deleted = ?"
    " WHERE chat_id = ? AND bucket = ? AND sequence = ? AND client_key = ? IF wire = ?"
)


class CassandraAmendments:
    def __init__(self, states: CassandraChatStates) -> None:
        self._states = states
        self._cassandra = states.cassandra

    async def begin(self, note: AmendmentNote) -> None:
        await self._cassandra.write(BEGIN, note.chat_id, note.client_key, note.since_ms, note.target)

    async def under_way(self, chat_id: str | None = None) -> list[AmendmentNote]:
        if chat_id is None:
            rows = [row async for page in self._cassandra.pages(UNDER_WAY) for row in page]
        elif is_key(chat_id):
            rows = await self._cassandra.rows(f"{UNDER_WAY} WHERE chat_id = ?", chat_id)
        else:
            rows = []
        return [note_in(row) for row in rows]

    async def mark(self, chat_id: str, marks: Sequence[MessageMark]) -> None:
        """Of two with the same name that of the later entry stays, in whatever order they come."""
        rows = ((chat_id, one.target, one.name, one.sequence, one.is_on, one.sequence) for one in marks)
        await self._cassandra.write_all((MARK, row) for row in rows)

    async def finish(self, note: AmendmentNote) -> None:
        await self._cassandra.write(FINISH, note.chat_id, note.client_key, note.since_ms)

    async def marks(self, chat_id: str, target: int) -> list[MessageMark]:
        rows = await self._cassandra.rows(MARKS, chat_id, target) if is_key(chat_id) else []
        return [MessageMark(target, row["name"], row["sequence"], row["is_on"]) for row in rows]

    async def replace(self, chat_id: str, sequence: int, before: bytes, after: bytes) -> bool:
        place = (chat_id, self._states.bucket_of(sequence), sequence, NO_KEY)
        is_deleted = decode_entry(after).deleted is True
        update: Statement = (REPLACE, (after, is_deleted, *place, before))

        async def is_done() -> bool:
            row = await self._cassandra.row(READ_WIRE, *place, is_serial=True) or {}
            return bool(row.get("wire") == after)

        return (await self._cassandra.resolve(lambda: self._cassandra.cas(update), is_done)).is_applied

    async def scrub(self, traces: Sequence[bytes]) -> None:
        """No read finds it any more. The disks of the cluster have it until they compact it away."""


def note_in(row: Row) -> AmendmentNote:
    return AmendmentNote(row["chat_id"], row["client_key"], row["target"], row["since_ms"])
