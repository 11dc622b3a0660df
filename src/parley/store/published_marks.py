"""How far each chat is on the bus: marks are noted in memory, and written with appends or a moment later."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

import structlog

from parley.errors import StoreError

QUIET_SECONDS = 5.0
"""A mark that no append has written for this long gets a write of its own."""

log = structlog.get_logger("parley.store")


class OutboxMarks(ABC):
    """The part of an `Outbox` that is the same on every shared store."""

    def __init__(self) -> None:
        self._marks: dict[str, int] = {}
        self._noted_at: dict[str, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    def note_published(self, chat_id: str, through: int) -> None:
        """Noting the same mark again changes nothing: the publisher does so for every listed chat."""
        if through > self._marks.get(chat_id, -1):
            self._marks[chat_id] = through
            self._noted_at[chat_id] = asyncio.get_running_loop().time()
        self._write_soon()

    def take_mark(self, chat_id: str) -> int | None:
        """The mark for an append to write. It stays noted: the append may fail."""
        return self._marks.get(chat_id)

    async def flush(self) -> None:
        await self._write(dict(self._marks))

    @abstractmethod
    async def _write(self, marks: dict[str, int]) -> None:
        """Write these marks, and `_forget` each that is written."""

    def _forget(self, chat_id: str, mark: int) -> None:
        """This mark is durable."""
        if self._marks.get(chat_id) == mark:
            del self._marks[chat_id], self._noted_at[chat_id]

    # Quiet chats

    def _write_soon(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(QUIET_SECONDS, self._write_now)

    def _write_now(self) -> None:
        self._timer = None
        self._writing = asyncio.ensure_future(self._write_quiet())

    async def _write_quiet(self) -> None:
        quiet_since = asyncio.get_running_loop().time() - QUIET_SECONDS
        quiet = {c: mark for c, mark in self._marks.items() if self._noted_at[c] <= quiet_since}
        try:
            await self._write(quiet)
        except StoreError as error:
            log.warning("marks not written yet", reason=str(error), waiting=len(self._marks))
        if self._marks:
            self._write_soon()

    async def close(self) -> None:
        """Write the marks, if the store can be reached. Otherwise entries are published twice, harmlessly."""
        if self._timer is not None:
            self._timer.cancel()
        if self._writing is not None:
            await asyncio.wait([self._writing])
        try:
            await self.flush()
        except StoreError as error:
            log.warning("marks not written", reason=str(error), waiting=len(self._marks))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
