"""Many calls at once, but not too many; and calls that swallow a cancellation."""

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


async def cancellable(work: Awaitable[R]) -> R:
    """As `work`; CancelledError if this task was cancelled meanwhile, also if `work` did not heed it.

    Before Python 3.12 `asyncio.wait_for` swallows a cancellation that comes when it is just done.
    Libraries use it. A loop that calls one would go on for ever, and whoever waits for its end, too.
    """
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    try:
        return await work
    finally:
        if task.cancelling() > before:
            raise asyncio.CancelledError
