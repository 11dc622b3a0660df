"""The `Cursors` port on DynamoDB: positions are noted in memory and written together some moments later."""

from __future__ import annotations

import asyncio

import structlog

from parley.errors import StoreError
from parley.model import Changed
from parley.store.dynamodb.client import Dynamo
from parley.store.dynamodb.cursor_writing import DEVICES, CursorWriter, device_key
from parley.store.dynamodb.overview import Heads, Overviews
from parley.store.dynamodb.together import is_key
from parley.store.notes import NOTHING, Notes

RIDE_AFTER_SECONDS = 2.0
"""Acknowledgements come by the second; of those in between only the last is written."""

log = structlog.get_logger("parley.store")


class DynamoCursors:
    def __init__(self, dynamo: Dynamo, heads: Heads) -> None:
        self._dynamo = dynamo
        self._writer = CursorWriter(dynamo)
        self._overviews = Overviews(dynamo, heads, self)
        self._notes = Notes()
        self._riding = Notes()
        self._writing = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._ride: asyncio.Task[None] | None = None

    def note_acked(self, user_id: str, device_id: str, chat_id: str, sequence: int, now_ms: int) -> None:
        self._notes.note_acked(user_id, device_id, chat_id, (sequence, now_ms))
        self._ride_soon()

    def note_read(self, user_id: str, chat_id: str, sequence: int, now_ms: int) -> None:
        self._notes.note_read(user_id, chat_id, (sequence, now_ms))
        self._ride_soon()

    def note_used(self, token_hash: bytes, now_ms: int) -> None:
        self._notes.note_used(token_hash, now_ms)
        self._ride_soon()

    async def flush(self) -> None:
        async with self._writing:
            if self._notes:
                await self._write()

    async def _write(self) -> None:
        """What fails, or is cut short, is noted again: nobody was told that it is durable."""
        self._riding, self._notes = self._notes, Notes()
        left = self._riding
        try:
            left, error = await self._writer.write(self._riding)
        finally:
            self._riding = Notes()
            self._notes.merge(left)
            if left:
                self._ride_soon()
        if error is not None:
            raise error

    async def close(self) -> None:
        """Write what is noted, if that can be done now."""
        if self._ride is not None:
            await asyncio.wait([self._ride])
        await self._flush_quietly()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ride_soon(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(RIDE_AFTER_SECONDS, self._ride_now)

    def _ride_now(self) -> None:
        self._timer = None
        self._ride = asyncio.ensure_future(self._flush_quietly())

    async def _flush_quietly(self) -> None:
        try:
            await self.flush()
        except StoreError as error:
            log.warning("positions not written yet", reason=str(error), waiting=len(self._notes.acked))

    async def position(self, user_id: str, device_id: str, chat_id: str) -> int:
        """What is noted or on its way counts already."""
        noted = self.acked_of(user_id, device_id, chat_id)
        if not is_key(user_id, chat_id):
            return noted
        row = await self._dynamo.get(DEVICES, device_key(user_id, device_id, chat_id))
        there = row.get("last_acked_sequence") if row is not None else 0
        return max(noted, there if isinstance(there, int) else 0)

    def acked_of(self, user_id: str, device_id: str, chat_id: str) -> int:
        """The position of a device by what is noted alone."""
        device = user_id, device_id, chat_id
        return max(0, *(notes.acked.get(device, NOTHING)[0] for notes in (self._notes, self._riding)))

    def read_of(self, user_id: str, chat_id: str) -> int:
        """How far a person has read, by what is noted alone."""
        person = user_id, chat_id
        return max(0, *(notes.read.get(person, NOTHING)[0] for notes in (self._notes, self._riding)))

    async def changed(self, user_id: str, device_id: str, after: str | None, limit: int) -> Changed:
        return await self._overviews.changed(user_id, device_id, after, limit)
