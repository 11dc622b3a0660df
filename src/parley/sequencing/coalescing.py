"""Group commit for numbers: whoever asks for a chat while an allocation is under way shares the next one."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from parley.store.ports import Allocator

NUMBERS_AT_ONCE_MAX = 100_000
"""Numbers in one allocation; what is asked for beyond them makes another."""


class Asked(Struct, frozen=True, eq=False):
    """One caller, and how many numbers he waits for."""

    count: int
    floor: int
    answer: asyncio.Future[int]


class Coalescing:
    """An `Allocator` over another: at most one allocation per chat is under way, for all who wait."""

    def __init__(self, allocator: Allocator) -> None:
        self._allocator = allocator
        self._waiting: dict[str, list[Asked]] = {}
        self._under_way: set[asyncio.Task[None]] = set()

    async def create(self, chat_id: str) -> None:
        await self._allocator.create(chat_id)

    async def allocate(self, chat_id: str, count: int, floor: int) -> int:
        asked = Asked(count, floor, asyncio.get_running_loop().create_future())
        if chat_id in self._waiting:
            self._waiting[chat_id].append(asked)
        else:
            self._waiting[chat_id] = [asked]
            task = asyncio.create_task(self._serve(chat_id))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
        return await asked.answer

    async def last(self, chat_id: str) -> int | None:
        return await self._allocator.last(chat_id)

    async def restore(self, chat_id: str, at_least: int) -> int:
        return await self._allocator.restore(chat_id, at_least)

    async def idle(self) -> None:
        """Returns when nothing is under way."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def _serve(self, chat_id: str) -> None:
        """Until nobody waits any more; meanwhile new callers find the chat taken and join the list."""
        try:
            while batch := _take(self._waiting[chat_id]):
                await self._allocate(chat_id, batch)
        finally:
            for asked in self._waiting.pop(chat_id):
                asked.answer.cancel()

    async def _allocate(self, chat_id: str, batch: list[Asked]) -> None:
        count = sum(asked.count for asked in batch)
        try:
            # A counter that is behind what one of them knows has lost data for all of them.
            last = await self._allocator.allocate(chat_id, count, max(asked.floor for asked in batch))
        except Exception as error:
            for asked in batch:
                if not asked.answer.done():
                    asked.answer.set_exception(error)
            return
        given = last - count
        for asked in batch:
            given += asked.count
            if not asked.answer.done():
                asked.answer.set_result(given)


def _take(waiting: list[Asked]) -> list[Asked]:
    """The first who still wait, as many as fit into one allocation."""
    waiting[:] = [asked for asked in waiting if not asked.answer.done()]
    size = count = 0
    for asked in waiting:
        count += asked.count
        if count > NUMBERS_AT_ONCE_MAX and size:
            break
        size += 1
    batch = waiting[:size]
    del waiting[:size]
    return batch
