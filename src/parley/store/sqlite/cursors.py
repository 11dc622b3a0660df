"""The `Cursors` port on SQLite: positions are noted in memory and ride in the next commit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from parley.errors import StoreError
from parley.model import Changed, Moved
from parley.store.notes import NOTHING, Notes
from parley.store.sqlite import positions
from parley.store.sqlite.overview import Overviews
from parley.store.sqlite.reads import Reads
from parley.store.sqlite.writer import Transaction, Writer

RIDE_AFTER_SECONDS = 0.05

log = structlog.get_logger("parley.store")


def nobody_listens(_: list[Moved]) -> None:
    """Rises are told to nobody."""


class SqliteCursors:
    rides_with_appends = True

    def __init__(self, reads: Reads, writer: Writer) -> None:
        self.moved: Callable[[list[Moved]], None] = nobody_listens
        self._reads = reads
        self._writer = writer
        self._overviews = Overviews(reads)
        self._notes = Notes()
        self._riding: Notes | None = None
        self._rising: list[Moved] = []
        self._untold: list[Moved] = []
        """Of a commit that was perhaps lost: if it was not, they do not rise again."""
        self._timer: asyncio.TimerHandle | None = None
        self._ride: asyncio.Task[None] | None = None
        self._closed = False
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

    def note_seen(self, user_id: str, now_ms: int) -> None:
        self._notes.note_seen(user_id, now_ms)
        self._ride_soon()

    async def flush(self, user_id: str | None = None) -> None:
        """One commit takes everybody's."""
        if self._notes or self._riding:
            await self._writer.run(lambda _: None)

    async def forget_device(self, user_id: str, device_id: str) -> None:
        """First what the device has said for its person; then what is left of it, here and in the file.

        What it goes on to say meanwhile is not heard.
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

    def _ride_soon(self) -> None:
        if self._timer is None and self._riding is None:
            self._timer = asyncio.get_running_loop().call_later(RIDE_AFTER_SECONDS, self._ride_alone)

    def _ride_alone(self) -> None:
        """No commit came by in time: make one, as soon as the store can be written."""
        self._timer = None
        if self._writer.available:
            self._ride = asyncio.ensure_future(self._flush_quietly())
        elif not self._closed:
            self._ride_soon()

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
        rising = positions.write(transaction, self._riding)
        self._rising = _with_untold(rising, self._untold) if self._untold else rising
        self._untold = []

    def arrived(self) -> None:
        rising, self._rising = self._rising, []
        self._riding = None
        if self._notes:
            self._ride_soon()
        if rising:
            self._tell(rising)

    def _tell(self, rising: list[Moved]) -> None:
        """Whoever listens cannot harm what is durable, nor those who wait for it."""
        try:
            self.moved(rising)
        except Exception:
            log.exception("nobody was told of positions that rose", positions=len(rising))

    def turned_back(self) -> None:
        """Positions only rise, so what was noted since and what comes back merge by their maximum."""
        if self._riding is None:
            return
        self._untold, self._rising = self._rising, []
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

    async def changed(
        self, user_id: str, device_id: str, after: str | None, limit: int, brief: bool = False
    ) -> Changed:
        return self._overviews.changed(user_id, device_id, after, limit, brief)


def _with_untold(rising: list[Moved], untold: list[Moved]) -> list[Moved]:
    """What rises now, and before it what rose in vain and is known to be there now."""
    again = {(moved.user_id, moved.chat_id, moved.kind) for moved in rising}
    return [m for m in untold if (m.user_id, m.chat_id, m.kind) not in again] + rising
