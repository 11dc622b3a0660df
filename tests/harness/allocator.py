"""The `Allocator` port in memory, for tests of its callers."""

import asyncio

from parley.errors import CounterMissingError, InconsistentCounterError


class MemoryAllocator:
    """Every allocation waits until `gate` is set, and fails with `trouble` if that is set."""

    def __init__(self, **counters: int) -> None:
        self.counters = dict(counters)
        self.asked: list[tuple[str, int, int]] = []
        self.trouble: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def create(self, chat_id: str) -> None:
        self.counters.setdefault(chat_id, 0)

    async def allocate(self, chat_id: str, count: int, floor: int) -> int:
        self.asked.append((chat_id, count, floor))
        await self.gate.wait()
        if self.trouble is not None:
            raise self.trouble
        if chat_id not in self.counters:
            raise CounterMissingError(chat_id)
        if self.counters[chat_id] < floor:
            raise InconsistentCounterError(self.counters[chat_id], floor)
        self.counters[chat_id] += count
        return self.counters[chat_id]

    async def last(self, chat_id: str) -> int | None:
        if self.trouble is not None:
            raise self.trouble
        return self.counters.get(chat_id)

    async def restore(self, chat_id: str, at_least: int) -> int:
        self.counters[chat_id] = max(at_least, self.counters.get(chat_id, 0))
        return self.counters[chat_id]

    async def close(self) -> None:
        """Nothing to close."""
