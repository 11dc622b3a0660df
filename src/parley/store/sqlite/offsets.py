"""How far each group of consumers is: noted in memory, durable with the next commit or a moment later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from parley.errors import StoreError
from parley.store.sqlite.reads import Reads
from parley.store.sqlite.writer import Transaction, Writer

RIDE_AFTER_SECONDS = 0.05

NOTE = (
    "INSERT INTO consumer_offsets (group_name, position) VALUES (?, ?)"
    " ON CONFLICT DO UPDATE SET position = excluded.position WHERE excluded.position > position"
)


class Offsets:
    """`committed` is called after every commit, whoever made it."""

    def __init__(self, reads: Reads, writer: Writer, committed: Callable[[], None]) -> None:
        self._reads = reads
        self._writer = writer
        self._committed = committed
        self._noted: dict[str, int] = {}
        self._riding: dict[str, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._ride: asyncio.Task[None] | None = None
        writer.add_rider(self)

    def of(self, group: str) -> int:
        """What is durable; 0 for a group that nobody has heard of."""
        row = self._reads.row("SELECT position FROM consumer_offsets WHERE group_name = ?", (group,))
        return int(row[0]) if row else 0

    def note(self, group: str, position: int) -> None:
        """Everything up to here is done."""
        self._noted[group] = position
        self._ride_soon()

    async def flush(self) -> None:
        """Everything noted before the call is durable when it returns."""
        if self._noted or self._riding:
            await self._writer.run(lambda _: None)

    def _ride_soon(self) -> None:
        if self._timer is None and not self._riding:
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
            self._ride_soon()  # until it is durable, a crash hands the same entries out again

    def board(self, transaction: Transaction) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._noted:
            self._riding, self._noted = self._noted, {}
            transaction.executemany(NOTE, list(self._riding.items()))

    def arrived(self) -> None:
        self._riding = {}
        if self._noted:
            self._ride_soon()
        self._committed()

    def turned_back(self) -> None:
        self._noted = self._riding | self._noted
        self._riding = {}
        if self._noted:
            self._ride_soon()
