"""Numbers that only rise, noted now and written a moment later: of many notes the highest counts."""

from __future__ import annotations

import asyncio
from typing import Any

import structlog

from parley.concurrency import map_concurrently
from parley.errors import StoreError
from parley.store.ports import Records
from parley.store.tables import Key, RecordTable, askable

SHARED_SECONDS = 2.0
"""On a shared store each write costs: only the last note of this time is written."""
EMBEDDED_SECONDS = 0.05
WRITES_AT_ONCE_MAX = 32

Place = tuple[RecordTable[Any], Key]

log = structlog.get_logger("parley.store")


class RaisedLater:
    """`after_seconds`: how long a note waits for others."""

    def __init__(self, records: Records, after_seconds: float) -> None:
        self._records = records
        self._after_seconds = after_seconds
        self._notes: dict[Place, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    def note(self, table: RecordTable[Any], key: Key, number: int) -> None:
        """The number of a record, if there is one, is at least this; durable a moment later."""
        if not askable(*key):
            return  # there can be none
        place = table, key
        self._notes[place] = max(number, self._notes.get(place, number))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._after_seconds, self._start)

    def _start(self) -> None:
        self._timer = None
        self._flushing = asyncio.ensure_future(self._flush_or_warn())

    async def flush(self) -> None:
        """Everything noted before the call is durable when it returns."""
        async with self._lock:  # what is being written now was noted before, too
            notes, self._notes = self._notes, {}
            errors = await map_concurrently(lambda one: self._raise(*one), notes.items(), WRITES_AT_ONCE_MAX)
        for error in errors:
            if error is not None:
                raise error

    async def _raise(self, place: Place, number: int) -> StoreError | None:
        """What could not be written is noted again."""
        table, key = place
        try:
            await self._records.raise_to(table, key, number)
        except StoreError as error:
            self.note(table, key, number)
            return error
        return None

    async def _flush_or_warn(self) -> None:
        try:
            await self.flush()
        except StoreError as error:
            log.warning("last uses not written yet", reason=str(error), notes=len(self._notes))

    async def close(self) -> None:
        """Write what was noted, if the store can be reached."""
        if self._flushing is not None:
            await asyncio.wait([self._flushing])
        await self._flush_or_warn()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
