"""Many callers, few requests: what is asked for in one turn of the loop travels together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import Struct

from parley.errors import StoreError
from parley.sequencing.bodies import Allocation

Outcome = int | StoreError
Send = Callable[[list[Allocation]], Awaitable[list[Outcome]]]
"""Asks for all of these at once: the last number of each, or why there is none, in their order."""


class Asked(Struct, frozen=True, eq=False):
    allocation: Allocation
    answer: asyncio.Future[int]


class Batching:
    """Collects allocations and sends them in batches, a few at once; later ones wait for the next batch."""

    def __init__(self, send: Send, *, size_max: int, at_once_max: int) -> None:
        self._send = send
        self._size_max = size_max
        self._at_once_max = at_once_max
        self._asked: list[Asked] = []
        self._under_way: set[asyncio.Task[None]] = set()
        self._is_flush_due = False

    async def allocate(self, allocation: Allocation) -> int:
        """The last number of the block."""
        asked = Asked(allocation, asyncio.get_running_loop().create_future())
        self._asked.append(asked)
        self._flush_soon()
        return await asked.answer

    def _flush_soon(self) -> None:
        if not self._is_flush_due and len(self._under_way) < self._at_once_max:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        waiting = [asked for asked in self._asked if not asked.answer.done()]
        batch, self._asked = waiting[: self._size_max], waiting[self._size_max :]
        if batch:
            task = asyncio.create_task(self._settle(batch))
            self._under_way.add(task)
            task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if self._asked:
            self._flush_soon()

    async def _settle(self, batch: list[Asked]) -> None:
        outcomes: list[int | StoreError] | list[Exception]
        try:
            outcomes = await self._send([asked.allocation for asked in batch])
        except Exception as error:
            outcomes = [error] * len(batch)
        for asked, outcome in zip(batch, outcomes, strict=True):
            if asked.answer.done():
                continue
            if isinstance(outcome, Exception):
                asked.answer.set_exception(outcome)
            else:
                asked.answer.set_result(outcome)
