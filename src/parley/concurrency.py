"""Many calls at once, but not too many."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def map_concurrently(
    work: Callable[[T], Awaitable[R]], things: Iterable[T], at_once_max: int
) -> list[R]:
    """Call `work` on each item, with limited concurrency, and keep the order. A failure cancels the rest."""
    things = list(things)
    if len(things) == 1:  # by far the most common: a message is rarely sent to two chats
        return [await work(things[0])]
    gate = asyncio.Semaphore(at_once_max)

    async def work_on(thing: T) -> R:
        async with gate:
            return await work(thing)

    tasks = [asyncio.ensure_future(work_on(thing)) for thing in things]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
