"""One chat's way to the bus: what is on it, what waits for it, and who waits for that. No IO."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

from parley.model import Stored


class Waiting(NamedTuple):
    """A position on its way. `is_news`: this process has told its own listeners of it."""

    stored: Stored
    epoch: int
    is_news: bool

    @property
    def size(self) -> int:
        return len(self.stored.wire or b"")


class Line:
    """`mark`: everything up to here is on the bus; None while nobody here knows how far that is.

    `target`: the highest position known to be durable. `is_behind`: some of what lies between was not kept
    in memory, so that no news will bring it: the log must be read.
    """

    __slots__ = (
        "chat_id",
        "epoch",
        "filler",
        "is_behind",
        "mark",
        "moved_at",
        "partition",
        "pending",
        "target",
        "waiters",
    )

    def __init__(self, chat_id: str, partition: int, now: float) -> None:
        self.chat_id = chat_id
        self.partition = partition
        self.epoch = 0
        self.mark: int | None = None
        self.target = 0
        self.pending: dict[int, Waiting] = {}
        self.is_behind = False
        self.filler: asyncio.Task[None] | None = None
        self.waiters: list[tuple[int, asyncio.Future[None]]] = []
        self.moved_at = now

    @property
    def is_ready(self) -> bool:
        """The next position is at hand."""
        return self.mark is not None and self.mark + 1 in self.pending

    @property
    def is_outstanding(self) -> bool:
        return self.mark is None or self.mark < self.target or bool(self.waiters)

    @property
    def is_stuck(self) -> bool:
        """Something is durable and not on the bus, and what comes next is not at hand."""
        return not self.is_ready and (self.mark is None or self.mark < self.target)

    @property
    def missing(self) -> int:
        """How many positions are not on the bus, as far as anybody here knows."""
        return len(self.pending) if self.mark is None else max(self.target - self.mark, 0)

    def lacks(self, sequence: int) -> bool:
        return sequence not in self.pending and (self.mark is None or sequence > self.mark)

    def following(self) -> Iterator[tuple[int, Waiting]]:
        """What can be published next, in order."""
        sequence = (self.mark or 0) + 1
        while self.mark is not None and (waiting := self.pending.get(sequence)) is not None:
            yield sequence, waiting
            sequence += 1

    def raise_mark(self, through: int, now: float) -> int:
        """Everything up to here is on the bus; returns how many bytes need not be kept any more."""
        if self.mark is not None and through <= self.mark:
            return 0
        freed = sum(self.pending.pop(sequence).size for sequence in self._kept_up_to(through))
        self.mark, self.target = through, max(self.target, through)
        self.is_behind = self.is_behind and through < self.target
        self.moved_at = now
        self._tell_waiters(through)
        return freed

    def _kept_up_to(self, through: int) -> list[int]:
        """Usually a few, of the many that wait while the bus is away."""
        first = 0 if self.mark is None else self.mark + 1
        if through - first < len(self.pending):
            return [sequence for sequence in range(first, through + 1) if sequence in self.pending]
        return [sequence for sequence in self.pending if sequence <= through]

    def _tell_waiters(self, through: int) -> None:
        for sequence, future in self.waiters:
            if sequence <= through and not future.done():
                future.set_result(None)
        self.waiters = [(sequence, future) for sequence, future in self.waiters if not future.done()]

    async def until(self, sequence: int) -> None:
        """Returns when everything up to here is on the bus."""
        if self.mark is not None and self.mark >= sequence:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiters.append((sequence, future))
        try:
            await future
        finally:
            self.waiters = [waiter for waiter in self.waiters if waiter[1] is not future]
