"""Reads from the log what is durable, not in memory and not on the bus yet.

Another node stored it, or memory was full. The reading starts at the chat's mark.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from parley.core.backoff import JITTER_SHARE, backoff
from parley.core.changes import positions_of
from parley.core.log_limits import LineLimit
from parley.errors import StoreError
from parley.store.ports import Log, Outbox

if TYPE_CHECKING:
    from parley.bus.publisher import PublishQueue

FILLS_MAX = 8
FILL_ENTRIES_MAX = 500
GAP_SECONDS = 0.2
"""How long a missing position may still come as news before the log is read."""
UNRESOLVED_SECONDS = 1.0
UNLISTED_PAUSES_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8)
"""A store's list may be a moment behind what this process has just stored."""
STORE_RETRY_SECONDS = 1.0
STORE_RETRY_SECONDS_MAX = 8.0

log = structlog.get_logger("parley.bus")


class PublishedMarks:
    """How far each chat is on the bus, by the store. One read serves all callers that asked before it."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._reading: asyncio.Task[dict[str, int]] | None = None
        self._next: asyncio.Task[dict[str, int]] | None = None

    async def listed(self) -> dict[str, int]:
        """The chats with unpublished entries and their marks, as of some moment after this call."""
        if self._next is None:
            self._next = asyncio.create_task(self._look(self._reading))
            self._next.add_done_callback(_retrieve)
        return await asyncio.shield(self._next)

    async def _look(self, before: asyncio.Task[dict[str, int]] | None) -> dict[str, int]:
        if before is not None:
            await asyncio.wait([before])
        self._reading, self._next = self._next, None
        return await self._outbox.unpublished()


def _retrieve(task: asyncio.Task[dict[str, int]]) -> None:
    """Retrieve the error, also when every caller has gone."""
    if not task.cancelled():
        task.exception()


class BacklogReader:
    """Fills queues from the log. It reads few chats at a time, and a page of each: memory stays bounded.

    `advance` is called when a queue has something to publish.
    """

    def __init__(
        self,
        log: Log,
        marks: PublishedMarks,
        advance: Callable[[PublishQueue], None],
        chance: Callable[[], float],
    ) -> None:
        self._log = log
        self._marks = marks
        self._advance = advance
        self._chance = chance
        self._fills = asyncio.Semaphore(FILLS_MAX)
        self._log_lines = LineLimit()

    async def fill(self, queue: PublishQueue) -> None:
        """Returns when the chat's next position is in memory, or nothing is left."""
        try:
            await self._find_mark(queue)
            while queue.is_stuck:
                if not await self._read_on(queue):
                    await asyncio.sleep(UNRESOLVED_SECONDS)
        finally:
            queue.filler = None
        self._advance(queue)

    async def _find_mark(self, queue: PublishQueue) -> None:
        """Where to go on from. If other nodes publish in this chat too, their mark may be beyond ours."""
        if queue.mark is not None and not queue.is_behind:
            await asyncio.sleep(GAP_SECONDS)
        if queue.mark is not None and (queue.is_behind or not queue.is_stuck):
            return
        attempt = 0
        while True:
            try:
                mark = await self._look_up(queue)
                queue.raise_mark(mark, asyncio.get_running_loop().time())
                return
            except StoreError as error:
                self._complain("marks cannot be read", queue, error)
            jitter = JITTER_SHARE * self._chance()
            await asyncio.sleep(backoff(attempt, STORE_RETRY_SECONDS, STORE_RETRY_SECONDS_MAX, jitter))
            attempt += 1

    async def _look_up(self, queue: PublishQueue) -> int:
        """A chat's mark. One that is not listed is on the bus up to its head, except what is queued."""
        through = 0
        for pause in (*UNLISTED_PAUSES_SECONDS, 0.0):
            head = (await self._log.heads([queue.chat_id])).get(queue.chat_id)
            through = head.sequence if head is not None else 0
            mark = (await self._marks.listed()).get(queue.chat_id)
            if mark is not None:
                return mark
            if not queue.pending:
                break
            await asyncio.sleep(pause)
        return min(through, *(sequence - 1 for sequence in queue.pending)) if queue.pending else through

    async def _read_on(self, queue: PublishQueue) -> bool:
        """Publish the next page; False when the log has none yet, or cannot be read."""
        async with self._fills:
            if not queue.is_stuck or queue.mark is None:
                return True
            try:
                page = await self._log.read(queue.chat_id, queue.mark, FILL_ENTRIES_MAX)
            except StoreError as error:
                self._complain("the log cannot be read", queue, error)
                return False
            if page.to_sequence <= queue.mark:
                return False
            queue.epoch = max(queue.epoch, page.epoch)
            queue.keep(positions_of(page), page.epoch, is_news=False)
            self._advance(queue)
            await queue.until(page.to_sequence)
            return True

    def _complain(self, event: str, queue: PublishQueue, error: StoreError) -> None:
        """A store that is away fails every chat: the line names one of them and counts the others."""
        if (more := self._log_lines.admit(event, asyncio.get_running_loop().time())) is not None:
            log.warning(event, chat_id=queue.chat_id, error=str(error), **more)
