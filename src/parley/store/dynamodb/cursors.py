"""The `Cursors` port on DynamoDB: positions are noted in memory and written together some moments later."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import structlog

from parley.errors import StoreError
from parley.model import Changed, Moved
from parley.store.dynamodb.client import Dynamo
from parley.store.dynamodb.cursor_writing import (
    DEVICES,
    WRITES_AT_ONCE_MAX,
    CursorWriter,
    device_key,
    device_prefix,
)
from parley.store.dynamodb.overview import Heads, Overviews
from parley.store.dynamodb.together import is_key, repeated, together
from parley.store.notes import NOTHING, Notes

RIDE_AFTER_SECONDS = 2.0
"""Acknowledgements come by the second; of those in between only the last is written."""

NOBODY = ""
"""Under whom the uses of sessions are noted: their tokens do not say whose they are."""
NO_NOTES = Notes()

log = structlog.get_logger("parley.store")


def nobody_hears(_: list[Moved]) -> None:
    """Until somebody wants to."""


class DynamoCursors:
    rides_with_appends = False

    def __init__(self, dynamo: Dynamo, heads: Heads) -> None:
        self.moved: Callable[[list[Moved]], None] = nobody_hears
        self._dynamo = dynamo
        self._writer = CursorWriter(dynamo, self._tell)
        self._overviews = Overviews(dynamo, heads, self)
        self._notes: dict[str, Notes] = {}
        """By person, so that whoever waits for one waits for nobody else's."""
        self._riding: dict[str, Notes] = {}
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._ride: asyncio.Task[None] | None = None

    def note_acked(self, user_id: str, device_id: str, chat_id: str, sequence: int, now_ms: int) -> None:
        self._notes_of(user_id).note_acked(user_id, device_id, chat_id, (sequence, now_ms))

    def note_read(self, user_id: str, chat_id: str, sequence: int, now_ms: int) -> None:
        self._notes_of(user_id).note_read(user_id, chat_id, (sequence, now_ms))

    def note_used(self, token_hash: bytes, now_ms: int) -> None:
        self._notes_of(NOBODY).note_used(token_hash, now_ms)

    def note_seen(self, user_id: str, now_ms: int) -> None:
        self._notes_of(user_id).note_seen(user_id, now_ms)

    def _tell(self, moved: list[Moved]) -> None:
        """It is durable, whatever whoever hears of it makes of it."""
        try:
            self.moved(moved)
        except Exception:
            log.exception("positions rose, and telling it failed")

    def _notes_of(self, user_id: str) -> Notes:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(RIDE_AFTER_SECONDS, self._ride_now)
        return self._notes.setdefault(user_id, Notes())

    async def flush(self, user_id: str | None = None) -> None:
        people = [user_id] if user_id is not None else dict.fromkeys([*self._notes, *self._riding])
        errors = await together(self._flush_person, people, WRITES_AT_ONCE_MAX)
        for error in errors:
            if error is not None:
                raise error

    async def _flush_person(self, user_id: str) -> StoreError | None:
        async with self._turn(user_id):
            return await self._write(user_id) if user_id in self._notes else None

    @contextlib.asynccontextmanager
    async def _turn(self, user_id: str) -> AsyncIterator[None]:
        """Writes for one person take turns: who has had theirs knows that the one before is done."""
        lock, waiting = self._turns.get(user_id, (asyncio.Lock(), 0))
        self._turns[user_id] = lock, waiting + 1
        try:
            async with lock:
                yield
        finally:
            lock, waiting = self._turns.pop(user_id)
            if waiting > 1:
                self._turns[user_id] = lock, waiting - 1

    async def _write(self, user_id: str) -> StoreError | None:
        """What fails, or is cut short, is noted again: nobody was told that it is durable."""
        self._riding[user_id] = left = self._notes.pop(user_id)
        try:
            left, error = await self._writer.write(left)
        finally:
            del self._riding[user_id]
            if left:
                self._notes_of(user_id).merge(left)
        return error

    async def forget_device(self, user_id: str, device_id: str) -> None:
        """What it had received raises the person first. Another node may still write what it had noted."""
        if not is_key(user_id):
            return
        async with self._turn(user_id):
            error = await self._write(user_id) if user_id in self._notes else None
            if error is not None:
                raise error
            rows = await self._dynamo.query_all(
                DEVICES,
                "user_id = :user AND begins_with(device_chat, :device)",
                {":user": user_id, ":device": device_prefix(device_id)},
                projection="user_id, device_chat",
            )
            await repeated(lambda: self._dynamo.batch_delete(DEVICES, rows))
            self._notes.get(user_id, NO_NOTES).forget_device(user_id, device_id)

    async def close(self) -> None:
        """Write what is noted, if that can be done now."""
        if self._ride is not None:
            await asyncio.wait([self._ride])
        await self._flush_quietly()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ride_now(self) -> None:
        self._timer = None
        self._ride = asyncio.ensure_future(self._flush_quietly())

    async def _flush_quietly(self) -> None:
        try:
            await self.flush()
        except StoreError as error:
            log.warning("positions not written yet", reason=str(error), people=len(self._notes))

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
        return max(0, *(notes.acked.get(device, NOTHING)[0] for notes in self._noted(user_id)))

    def read_of(self, user_id: str, chat_id: str) -> int:
        """How far a person has read, by what is noted alone."""
        person = user_id, chat_id
        return max(0, *(notes.read.get(person, NOTHING)[0] for notes in self._noted(user_id)))

    def _noted(self, user_id: str) -> tuple[Notes, Notes]:
        return self._notes.get(user_id, NO_NOTES), self._riding.get(user_id, NO_NOTES)

    async def changed(
        self, user_id: str, device_id: str, after: str | None, limit: int, brief: bool = False
    ) -> Changed:
        return await self._overviews.changed(user_id, device_id, after, limit, brief)
