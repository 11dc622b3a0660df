"""The `Cursors` port on SQLite: positions are noted in memory and ride in the next commit."""

from __future__ import annotations

import asyncio
import re

from parley.clock import MS_PER_DAY, iso
from parley.errors import Refused, StoreError
from parley.model import Changed, Position
from parley.store.notes import NOTHING, Mark, Notes
from parley.store.rules import NO_TOKEN
from parley.store.sqlite.reads import Reads, Row
from parley.store.sqlite.writer import Transaction, Writer
from parley.wire.limits import SESSION_DAYS, UNREAD_MAX

RIDE_AFTER_SECONDS = 0.05
CHAT_NO_MAX = 2**62
TOKEN_PART = re.compile(r"[0-9]{1,18}|4611686018427387904", re.ASCII)

ACK_DEVICE = (
    "INSERT INTO user_device_cursors (user_id, device_id, chat_id, last_acked_sequence) VALUES (?, ?, ?, ?)"
    " ON CONFLICT DO UPDATE SET last_acked_sequence = excluded.last_acked_sequence"
    " WHERE excluded.last_acked_sequence > last_acked_sequence"
)
ACK_PERSON = (
    "UPDATE delivery_state SET change = ?1, last_acked_sequence = max(last_acked_sequence, ?2),"
    " delivered_at = CASE WHEN last_acked_sequence < ?2 THEN ?3 ELSE delivered_at END"
    " WHERE user_id = ?4 AND chat_id = ?5"
)
READ_PERSON = (
    "UPDATE delivery_state SET change = ?1, read_up_to = ?2, read_at = ?3,"
    " delivered_at = CASE WHEN last_acked_sequence < ?2 THEN ?3 ELSE delivered_at END,"
    " last_acked_sequence = max(last_acked_sequence, ?2)"
    " WHERE user_id = ?4 AND chat_id = ?5 AND read_up_to < ?2"
)
USED = (
    "UPDATE sessions SET last_used_at_ms = ?, expires_at_ms = ? WHERE token_hash = ? AND last_used_at_ms < ?"
)

# Without its counter nobody knows when a chat last changed: it counts as changed, for nothing may be missed.
CHANGED = """
SELECT chat_id, chat_no, epoch, has_left, read_up_to, acked, latest, head FROM (
    SELECT chats.chat_id, chats.chat_no, chats.epoch, d.has_left, d.read_up_to,
        coalesce(u.last_acked_sequence, 0) AS acked,
        CASE
            WHEN d.has_left THEN d.change
            ELSE max(d.change, coalesce(c.change, (SELECT last FROM changes)))
        END AS latest,
        CASE
            WHEN d.has_left THEN d.left_sequence
            ELSE coalesce(
                (SELECT min(sequence) - 1 FROM open_allocations AS o WHERE o.chat_no = chats.chat_no),
                (SELECT max(sequence) FROM entries AS e WHERE e.chat_no = chats.chat_no),
                0
            )
        END AS head
    FROM delivery_state AS d JOIN chats USING (chat_id)
    LEFT JOIN chat_counters AS c USING (chat_id)
    LEFT JOIN user_device_cursors AS u ON u.user_id = ?1 AND u.device_id = ?2 AND u.chat_id = d.chat_id
    WHERE d.user_id = ?1
)
WHERE (latest, chat_no) > (?3, ?4) AND (NOT has_left OR ?3 >= 0)
ORDER BY latest, chat_no LIMIT ?5
"""
UNREAD = (
    "SELECT count(*) FROM (SELECT 1 FROM entries WHERE chat_no = ? AND sequence > ? AND sequence <= ?"
    " AND kind = 1 AND sender_no <> ? LIMIT ?)"
)


class SqliteCursors:
    def __init__(self, reads: Reads, writer: Writer) -> None:
        self._reads = reads
        self._writer = writer
        self._notes = Notes()
        self._riding: Notes | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ride: asyncio.Task[None] | None = None
        writer.add_rider(self)

    def note_acked(self, user_id: str, device_id: str, chat_id: str, sequence: int, now_ms: int) -> None:
        self._notes.note_acked(user_id, device_id, chat_id, (sequence, now_ms))
        self._ride_soon()

    def note_read(self, user_id: str, chat_id: str, sequence: int, now_ms: int) -> None:
        self._notes.note_read(user_id, chat_id, (sequence, now_ms))
        self._ride_soon()

    def note_used(self, token_hash: bytes, now_ms: int) -> None:
        self._notes.note_used(token_hash, now_ms)
        self._ride_soon()

    async def flush(self, user_id: str | None = None) -> None:
        """One commit takes everybody's."""
        if self._notes or self._riding:
            await self._writer.run(lambda _: None)

    async def close(self) -> None:
        await self._flush_quietly()
        if self._timer is not None:
            self._timer.cancel()

    def _ride_soon(self) -> None:
        if self._timer is None and self._riding is None:
            self._timer = asyncio.get_running_loop().call_later(RIDE_AFTER_SECONDS, self._ride_alone)

    def _ride_alone(self) -> None:
        """No commit came by in time: make one."""
        self._timer = None
        if self._writer.available:
            self._ride = asyncio.ensure_future(self._flush_quietly())

    async def _flush_quietly(self) -> None:
        try:
            await self.flush()
        except StoreError:
            self._ride_soon()  # kept in memory: nobody was told that it is durable

    def board(self, transaction: Transaction) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._notes:
            return
        self._riding, self._notes = self._notes, Notes()
        acked, read, used = self._riding.acked, self._riding.read, self._riding.used
        if acked:
            self._write_acked(transaction, acked)
        if read:
            rows = [
                (transaction.change, seq, iso(ms), user, chat) for (user, chat), (seq, ms) in read.items()
            ]
            transaction.executemany(READ_PERSON, rows)
        if used:
            days_ms = SESSION_DAYS * MS_PER_DAY
            transaction.executemany(USED, [(ms, ms + days_ms, token, ms) for token, ms in used.items()])

    def _write_acked(self, transaction: Transaction, acked: dict[tuple[str, str, str], Mark]) -> None:
        devices: list[tuple[str, str, str, int]] = []
        people: dict[tuple[str, str], Mark] = {}
        for (user, device, chat), (sequence, ms) in acked.items():
            devices.append((user, device, chat, sequence))
            if people.get((user, chat), (0, 0))[0] <= sequence:
                people[user, chat] = sequence, ms
        transaction.executemany(ACK_DEVICE, devices)
        rows = [(transaction.change, seq, iso(ms), user, chat) for (user, chat), (seq, ms) in people.items()]
        transaction.executemany(ACK_PERSON, rows)

    def arrived(self) -> None:
        self._riding = None
        if self._notes:
            self._ride_soon()

    def turned_back(self) -> None:
        """Positions only rise, so what was noted since and what comes back merge by their maximum."""
        if self._riding is None:
            return
        self._notes.merge(self._riding)
        self._riding = None
        self._ride_soon()

    async def position(self, user_id: str, device_id: str, chat_id: str) -> int:
        """What is noted or on its way to the disk counts already."""
        row = self._reads.row(
            "SELECT last_acked_sequence FROM user_device_cursors"
            " WHERE user_id = ? AND device_id = ? AND chat_id = ?",
            (user_id, device_id, chat_id),
        )
        device, riding = (user_id, device_id, chat_id), self._riding or Notes()
        noted = max(notes.acked.get(device, NOTHING)[0] for notes in (self._notes, riding))
        return max(noted, int(row[0]) if row else 0)

    async def changed(self, user_id: str, device_id: str, after: str | None, limit: int) -> Changed:
        """The store's last change is read first: what commits in between is answered again, never missed."""
        change, chat_no = (-1, 0) if after is None else _parse(after)
        last = self._reads.row(
            "SELECT last, (SELECT user_no FROM users WHERE user_id = ?) FROM changes", (user_id,)
        )
        assert last is not None
        rows = self._reads.rows(CHANGED, (user_id, device_id, change, chat_no, limit + 1))
        page = rows[:limit]
        positions = [self._position(row, last[1]) for row in page]
        if len(rows) > limit:
            return Changed(positions, f"{page[-1][6]}.{page[-1][1]}", False)
        return Changed(positions, f"{max(last[0], change)}.{CHAT_NO_MAX}", True)

    def _position(self, row: Row, user_no: int) -> Position:
        chat_id, chat_no, epoch, has_left, read_up_to, acked, _, head = row
        unread = 0 if has_left else self._unread(chat_no, read_up_to, head, user_no)
        return Position(
            chat_id,
            epoch,
            head,
            acked,
            read_up_to,
            min(unread, UNREAD_MAX),
            unread > UNREAD_MAX,
            bool(has_left),
        )

    def _unread(self, chat_no: int, read_up_to: int, head: int, user_no: int) -> int:
        if read_up_to >= head:
            return 0
        row = self._reads.row(UNREAD, (chat_no, read_up_to, head, user_no, UNREAD_MAX + 1))
        return int(row[0]) if row else 0


def _parse(token: str) -> tuple[int, int]:
    """A token names the last change that was answered, and within it the last chat."""
    change, dot, chat_no = token.partition(".")
    if not (dot and TOKEN_PART.fullmatch(change) and TOKEN_PART.fullmatch(chat_no)):
        raise Refused(NO_TOKEN)
    return int(change), int(chat_no)
