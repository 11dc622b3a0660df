"""What is durable and not at hand: where a chat's publishing stands, and what the log has from there on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import structlog

from parley.bus.lines import Line, Waiting
from parley.bus.marks import Marks
from parley.clock import MS_PER_SECOND
from parley.core.backoff import backoff_ms
from parley.core.changes import positions_of
from parley.core.log_limits import LineLimit
from parley.errors import StoreError
from parley.model import Page
from parley.store.ports import Log

FILLS_MAX = 8
FILL_ENTRIES_MAX = 500
GAP_SECONDS = 0.2
"""How long what is missing may still come as news before the store is asked for it."""
UNRESOLVED_SECONDS = 1.0
UNLISTED_PAUSES_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8)
"""A store's list may be a moment behind what this process has just stored."""
STORE_RETRY_MS_MAX = 8_000

log = structlog.get_logger("parley.bus")


class Keeper(Protocol):
    """Whoever owns the lines."""

    def keep(self, line: Line, sequence: int, waiting: Waiting) -> None:
        """Remember a position until it is on the bus."""
        ...

    def raise_mark(self, line: Line, mark: int) -> None:
        """Everything up to here is on the bus."""
        ...

    def advance(self, line: Line) -> None:
        """Take the chat's next step."""
        ...


class Filler:
    """Reads for few chats at a time, and for each a page at a time: memory stays bounded."""

    def __init__(self, log: Log, marks: Marks, keeper: Keeper, chance: Callable[[], float]) -> None:
        self._log = log
        self._marks = marks
        self._keeper = keeper
        self._chance = chance
        self._fills = asyncio.Semaphore(FILLS_MAX)
        self._lines = LineLimit()

    async def fill(self, line: Line) -> None:
        """Returns when the chat's next position is at hand, or nothing is left."""
        try:
            await self._find_mark(line)
            while line.is_stuck:
                if not await self._read_on(line):
                    await asyncio.sleep(UNRESOLVED_SECONDS)
        finally:
            line.filler = None
        self._keeper.advance(line)

    async def _find_mark(self, line: Line) -> None:
        """Where to go on from. If others publish in this chat as well, their mark may be beyond ours."""
        if line.mark is not None and not line.is_behind:
            await asyncio.sleep(GAP_SECONDS)
        if line.mark is None or (line.is_stuck and not line.is_behind):
            await self._learn(line)

    async def _learn(self, line: Line) -> None:
        attempt = 0
        while True:
            try:
                self._keeper.raise_mark(line, await self._look_up(line))
                return
            except StoreError as error:
                self._complain("nobody knows what is not published", line, error)
            await asyncio.sleep(backoff_ms(attempt, self._chance(), STORE_RETRY_MS_MAX) / MS_PER_SECOND)
            attempt += 1

    async def _look_up(self, line: Line) -> int:
        """A chat's mark. One that is not listed is on the bus up to its head, save what we have brought."""
        through = 0
        for pause in (*UNLISTED_PAUSES_SECONDS, 0.0):
            head = (await self._log.heads([line.chat_id])).get(line.chat_id)
            through = head.sequence if head is not None else 0
            mark = (await self._marks.listed()).get(line.chat_id)
            if mark is not None:
                return mark
            if not line.pending:
                break
            await asyncio.sleep(pause)
        return min(through, *(sequence - 1 for sequence in line.pending)) if line.pending else through

    async def _read_on(self, line: Line) -> bool:
        """Bring the next page to the bus; False when the log has none yet, or cannot be read."""
        async with self._fills:
            if not line.is_stuck or line.mark is None:
                return True
            try:
                page = await self._log.read(line.chat_id, line.mark, FILL_ENTRIES_MAX)
            except StoreError as error:
                self._complain("what is not published cannot be read", line, error)
                return False
            if page.to_sequence <= line.mark:
                return False
            self._keep_page(line, page)
            self._keeper.advance(line)
            await line.until(page.to_sequence)
            return True

    def _complain(self, event: str, line: Line, error: StoreError) -> None:
        """A store that is away fails every chat: one of them is named, and the others are counted."""
        if (more := self._lines.admit(event, asyncio.get_running_loop().time())) is not None:
            log.warning(event, chat_id=line.chat_id, error=str(error), **more)

    def _keep_page(self, line: Line, page: Page) -> None:
        line.epoch = max(line.epoch, page.epoch)
        for stored in positions_of(page):
            if line.lacks(stored.sequence):
                self._keeper.keep(line, stored.sequence, Waiting(stored, page.epoch, False))
