"""A stretch of a chat's log around a position, as a screen shows it. It moves no cursor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from parley.core.message_actions import MessageState, MessageStates
from parley.wire.frames import Batch, Entry
from parley.wire.limits import SEQUENCE_MAX

WINDOW_POSITIONS_DEFAULT = 50

LoadPage = Callable[[dict[str, str]], Awaitable[Batch[Entry]]]
"""Requests a page of the log."""


class LogWindow:
    """The entries of a stretch without a gap: every number from `first` to `last` is an entry or a void.

    `older` and `newer` extend it. It does not grow by itself: call `newer` when the chat's head has moved.
    """

    def __init__(self, load: LoadPage) -> None:
        self._load = load
        self._epoch = 0
        self.entries: list[Entry] = []
        """Every entry, ascending; of kinds that this version does not know, too."""
        self.first, self.last = 1, 0
        """Its first and its last position; empty if the first is beyond the last."""
        self.head = 0
        """The end of the log when a page was last loaded."""

    @property
    def is_at_start(self) -> bool:
        return self.first <= 1

    @property
    def is_at_end(self) -> bool:
        return self.last >= self.head

    @property
    def messages(self) -> list[MessageState]:
        """Its messages as they are now: edited, deleted, with the reactions and replies inside the window."""
        states = MessageStates()
        for entry in self.entries:
            states.apply(entry)
        return list(states.messages.values())

    async def start(self, around: int | None, size: int) -> None:
        """Load so many positions around one, or the last ones. A page may bring fewer of them."""
        if around is None:
            self._add(await self._load({"before": str(SEQUENCE_MAX), "limit": str(size)}))
            return
        after = max(0, around - 1 - size // 2)
        self._add(await self._load({"after": str(after), "limit": str(size)}))
        while self.last < around and await self.newer(size):
            pass

    async def older(self, count: int = WINDOW_POSITIONS_DEFAULT) -> bool:
        """Load what is before it. Returns whether there was anything."""
        if self.is_at_start:
            return False
        return self._add(await self._load({"before": str(self.first), "limit": str(count)}))

    async def newer(self, count: int = WINDOW_POSITIONS_DEFAULT) -> bool:
        """Load what is behind it, also what was sent since. Returns whether there was anything."""
        return self._add(await self._load({"after": str(self.last), "limit": str(count)}))

    def _add(self, page: Batch[Entry]) -> bool:
        """Join a page. One of another log, or one that does not touch the window, replaces it."""
        before = (self.first, self.last)
        self.head = page.head
        joins = page.epoch == self._epoch and not page.reset and self.last >= self.first
        if joins and page.to_sequence == self.first - 1:
            self.entries[:0] = page.entries
            self.first = page.from_sequence
        elif joins and page.from_sequence == self.last + 1:
            self.entries += page.entries
            self.last = page.to_sequence
        else:
            self.entries = list(page.entries)
            self.first, self.last = page.from_sequence, page.to_sequence
        self._epoch = page.epoch
        return before != (self.first, self.last)
