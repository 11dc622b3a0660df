"""Batches of allocations: few requests for many callers.

`CoalescingAllocator` makes one allocation for all callers that wait for the same chat. `AllocationBatcher`
puts the allocations of many chats into one request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import Struct

from parley.errors import StoreError
from parley.sequencing.bodies import Allocation
from parley.store.ports import Allocator

NUMBERS_AT_ONCE_MAX = 100_000
"""Numbers in one allocation; further callers wait for the next one."""


class WaitingCall(Struct, frozen=True, eq=False):
    """A caller, and how many numbers it waits for."""

    count: int
    floor: int
    answer: asyncio.Future[int]


class CoalescingAllocator:
    """Wraps an `Allocator`: at most one allocation per chat is under way, for all its callers."""

    def __init__(self, allocator: Allocator) -> None:
        self._allocator = allocator
        self._waiting: dict[str, list[WaitingCall]] = {}
        self._under_way: set[asyncio.Task[None]] = set()

    async def create(self, chat_id: str) -> None:
        await self._allocator.create(chat_id)

    async def allocate(self, chat_id: str, count: int, floor: int) -> int:
        call = WaitingCall(count, floor, asyncio.get_running_loop().create_future())
        if chat_id in self._waiting:
            self._waiting[chat_id].append(call)
        else:
            self._waiting[chat_id] = [call]
            task = asyncio.create_task(self._serve(chat_id))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
        return await call.answer

    async def last(self, chat_id: str) -> int | None:
        return await self._allocator.last(chat_id)

    async def restore(self, chat_id: str, at_least: int) -> int:
        return await self._allocator.restore(chat_id, at_least)

    async def close(self) -> None:
        await self._allocator.close()

    async def idle(self) -> None:
        """Returns when nothing is under way."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def _serve(self, chat_id: str) -> None:
        """Allocate until no caller waits. New callers join the list meanwhile."""
        try:
            while batch := _take(self._waiting[chat_id]):
                await self._allocate(chat_id, batch)
        finally:
            for call in self._waiting.pop(chat_id):
                call.answer.cancel()

    async def _allocate(self, chat_id: str, batch: list[WaitingCall]) -> None:
        count = sum(call.count for call in batch)
        try:
            # A counter that is behind what one caller knows has lost data for all of them.
            last = await self._allocator.allocate(chat_id, count, max(call.floor for call in batch))
        except Exception as error:
            for call in batch:
                if not call.answer.done():
                    call.answer.set_exception(error)
            return
        given = last - count
        for call in batch:
            given += call.count
            if not call.answer.done():
                call.answer.set_result(given)


def _take(waiting: list[WaitingCall]) -> list[WaitingCall]:
    """Remove from the list the first callers that still wait, as many as fit into one allocation."""
    waiting[:] = [call for call in waiting if not call.answer.done()]
    size = count = 0
    for call in waiting:
        count += call.count
        if count > NUMBERS_AT_ONCE_MAX and size:
            break
        size += 1
    batch = waiting[:size]
    del waiting[:size]
    return batch


Outcome = int | StoreError
Send = Callable[[list[Allocation]], Awaitable[list[Outcome]]]
"""Sends these allocations as one request. Returns the last number of each, or its error, in their order."""


class BatchedCall(Struct, frozen=True, eq=False):
    allocation: Allocation
    answer: asyncio.Future[int]


class AllocationBatcher:
    """Collects allocations and sends them in batches, a few at once; later ones wait for the next batch."""

    def __init__(self, send: Send, *, size_max: int, at_once_max: int) -> None:
        self._send = send
        self._size_max = size_max
        self._at_once_max = at_once_max
        self._queue: list[BatchedCall] = []
        self._under_way: set[asyncio.Task[None]] = set()
        self._is_flush_due = False

    async def allocate(self, allocation: Allocation) -> int:
        """The last number of the block."""
        call = BatchedCall(allocation, asyncio.get_running_loop().create_future())
        self._queue.append(call)
        self._flush_soon()
        return await call.answer

    def _flush_soon(self) -> None:
        if not self._is_flush_due and len(self._under_way) < self._at_once_max:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        waiting = [call for call in self._queue if not call.answer.done()]
        batch, self._queue = waiting[: self._size_max], waiting[self._size_max :]
        if batch:
            task = asyncio.create_task(self._send_batch(batch))
            self._under_way.add(task)
            task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if self._queue:
            self._flush_soon()

    async def _send_batch(self, batch: list[BatchedCall]) -> None:
        outcomes: list[int | StoreError] | list[Exception]
        try:
            outcomes = await self._send([call.allocation for call in batch])
        except Exception as error:
            outcomes = [error] * len(batch)
        for call, outcome in zip(batch, outcomes, strict=True):
            if call.answer.done():
                continue
            if isinstance(outcome, Exception):
                call.answer.set_exception(outcome)
            else:
                call.answer.set_result(outcome)
