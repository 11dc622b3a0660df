"""The `Cursors` port on SQLite: positions are noted in memory and written with the next commit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from parley.clock import iso
from parley.errors import StoreDamaged, StoreError
from parley.model import CursorMove, ReceiptKind
from parley.store.notes import NOTHING, Mark, Notes, notify_all
from parley.store.sqlite.reads import Reads
from parley.store.sqlite.writer import Transaction, Writer

FLUSH_AFTER_SECONDS = 0.05

RAISE_DEVICE = (
    "INSERT INTO user_device_cursors (user_id, device_id, chat_id, last_acked_sequence) VALUES (?, ?, ?, ?)"
    " ON CONFLICT DO UPDATE SET last_acked_sequence = excluded.last_acked_sequence"
    " WHERE excluded.last_acked_sequence > last_acked_sequence RETURNING user_id, chat_id"
)
TOUCH = "UPDATE delivery_state SET change = ? WHERE user_id = ? AND chat_id = ? AND NOT has_left"
# A late position of a person who has left is no change for their overview, which already lists the leave.
CHANGE = "change = CASE WHEN has_left THEN change ELSE ?1 END"
RAISE_DELIVERED = (
    f"UPDATE delivery_state SET {CHANGE}, last_acked_sequence = ?2, delivered_at = ?3"
    " WHERE user_id = ?4 AND chat_id = ?5 AND last_acked_sequence < ?2"
    " RETURNING user_id, chat_id, last_acked_sequence, delivered_at"
)
RAISE_READ = (
    f"UPDATE delivery_state SET {CHANGE}, read_up_to = ?2, read_at = ?3"
    " WHERE user_id = ?4 AND chat_id = ?5 AND read_up_to < ?2"
    " RETURNING user_id, chat_id, read_up_to, read_at"
)
Person = tuple[str, str]
"""A member of a chat: the ids of the person and of the chat."""


class SqliteCursors:
    rides_with_appends = True

    def __init__(self, reads: Reads, writer: Writer) -> None:
        self._listeners: list[Callable[[list[CursorMove]], None]] = []
        self._reads = reads
        self._writer = writer
        self._notes = Notes()
        self._in_commit: Notes | None = None
        self._rising: list[CursorMove] = []
        self._unnotified: list[CursorMove] = []
        """Moves of a commit whose outcome is unknown: if it is durable, they do not rise again."""
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._closed = False
        self._damage: StoreDamaged | None = None
        """What the last transaction met, so that these notes are not in it."""
        writer.add_piggyback(self)

    def subscribe(self, notify: Callable[[list[CursorMove]], None]) -> None:
        self._listeners.append(notify)

    def note_acked(self, user_id: str, device_id: str, chat_id: str, sequence: int, now_ms: int) -> None:
        self._notes.note_acked(user_id, device_id, chat_id, (sequence, now_ms))
        self._flush_soon()

    def note_read(self, user_id: str, chat_id: str, sequence: int, now_ms: int) -> None:
        self._notes.note_read(user_id, chat_id, (sequence, now_ms))
        self._flush_soon()

    async def flush(self, user_id: str | None = None) -> None:
        """One commit writes the notes of all people."""
        if self._notes or self._in_commit:
            await self._writer.run(lambda _: None)
            if self._damage is not None:
                raise StoreDamaged(self._damage.place, self._damage.problem)

    async def forget_device(self, user_id: str, device_id: str) -> None:
        """Flush the device's notes, which also count for its person; then delete its positions.

        Notes that arrive from the device meanwhile are dropped.
        """
        await self.flush()

        def forget_notes(_: object) -> None:
            self._notes.forget_device(user_id, device_id)

        def work(tx: Transaction) -> None:
            forget_notes(tx)
            tx.execute(
                "DELETE FROM user_device_cursors WHERE user_id = ? AND device_id = ?", (user_id, device_id)
            )

        await self._writer.run(work, forget_notes)

    async def close(self) -> None:
        self._closed = True
        await self._flush_quietly()
        if self._timer is not None:
            self._timer.cancel()

    def _flush_soon(self) -> None:
        if self._timer is None and self._in_commit is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_AFTER_SECONDS, self._flush_now)

    def _flush_now(self) -> None:
        """No other commit came in time: make one, as soon as the store can be written."""
        self._timer = None
        if self._writer.available:
            self._flushing = asyncio.ensure_future(self._flush_quietly())
        elif not self._closed:
            self._flush_soon()

    async def _flush_quietly(self) -> None:
        try:
            await self.flush()
        except StoreError:
            self._flush_soon()  # still in memory, and not yet said to be durable

    def write_pending(self, transaction: Transaction) -> None:
        self._damage = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._notes:
            return
        self._in_commit, self._notes = self._notes, Notes()
        rising = write_notes(transaction, self._in_commit)
        self._rising = _with_unnotified(rising, self._unnotified) if self._unnotified else rising
        self._unnotified = []

    def committed(self) -> None:
        rising, self._rising = self._rising, []
        self._in_commit = None
        if self._notes:
            self._flush_soon()
        if rising:
            notify_all(self._listeners, rising)

    def failed(self, damage: StoreDamaged | None = None) -> None:
        """Positions only rise, so what was noted since and what comes back merge by their maximum."""
        self._damage = damage
        if self._in_commit is None:
            return
        self._unnotified, self._rising = self._rising, []
        self._notes.merge(self._in_commit)
        self._in_commit = None
        self._flush_soon()

    async def position(self, user_id: str, device_id: str, chat_id: str) -> int:
        """Includes notes that are not durable yet."""
        row = self._reads.row(
            "SELECT last_acked_sequence FROM user_device_cursors"
            " WHERE user_id = ? AND device_id = ? AND chat_id = ?",
            (user_id, device_id, chat_id),
        )
        device, in_commit = (user_id, device_id, chat_id), self._in_commit or Notes()
        noted = max(notes.acked.get(device, NOTHING)[0] for notes in (self._notes, in_commit))
        return max(noted, int(row[0]) if row else 0)


def _with_unnotified(rising: list[CursorMove], unnotified: list[CursorMove]) -> list[CursorMove]:
    """The moves of this commit, after those of an unknown commit that turned out to be durable."""
    again = {(moved.user_id, moved.chat_id, moved.kind) for moved in rising}
    return [m for m in unnotified if (m.user_id, m.chat_id, m.kind) not in again] + rising


def write_notes(transaction: Transaction, notes: Notes) -> list[CursorMove]:
    """Write the notes in the open transaction. Returns the moves of people, delivered before read."""
    moved: list[CursorMove] = []
    devices = _raise_devices(transaction, notes) if notes.acked else set()
    if notes.acked or notes.read:
        moved = _raise_people(transaction, notes.delivered(), RAISE_DELIVERED, ReceiptKind.DELIVERED)
    if notes.read:
        moved += _raise_people(transaction, notes.read, RAISE_READ, ReceiptKind.READ)
    behind = devices.difference((one.user_id, one.chat_id) for one in moved)
    if behind:
        transaction.executemany(TOUCH, [(transaction.change, *person) for person in behind])
    return moved


def _raise_devices(transaction: Transaction, notes: Notes) -> set[Person]:
    """The people and chats whose devices moved."""
    rows = [(*device, sequence) for device, (sequence, _) in notes.acked.items() if sequence > 0]
    moved: list[Any] = transaction.executemany(RAISE_DEVICE, rows).fetchall()
    return set(moved)


def _raise_people(
    transaction: Transaction, marks: dict[Person, Mark], statement: str, kind: ReceiptKind
) -> list[CursorMove]:
    change = transaction.change
    rows = [(change, sequence, iso(ms), *person) for person, (sequence, ms) in marks.items()]
    raised: list[Any] = transaction.executemany(statement, rows).fetchall()
    return [CursorMove(user_id, chat_id, kind, up_to, at) for user_id, chat_id, up_to, at in raised]
