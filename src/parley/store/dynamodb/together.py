"""Many requests at once, and writes that may be repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from parley.errors import OutcomeUnknown, StoreUnavailable

ATTEMPTS_MAX = 3
"""Each may take as long as a whole request; whoever waits is told before long that nobody knows."""

KEY_BYTES_MAX = 1_024

T = TypeVar("T")
R = TypeVar("R")


async def together(work: Callable[[T], Awaitable[R]], things: Iterable[T], at_once_max: int) -> list[R]:
    """The work on each thing, in their order, so many at once. The first failure ends the others."""
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


async def repeated(write: Callable[[], Awaitable[T]]) -> T:
    """A write that is harmless when done twice, again while nobody knows whether it was done.

    So are a transaction with its token, and a condition that fails once the write is there. StoreUnavailable
    only if no attempt can have done it.
    """
    unknown: OutcomeUnknown | None = None
    for _ in range(ATTEMPTS_MAX):
        try:
            return await write()
        except OutcomeUnknown as error:
            unknown = error
        except StoreUnavailable as error:
            if unknown is None:
                raise
            raise unknown from error
    assert unknown is not None
    raise unknown


def is_key(*texts: str) -> bool:
    """Whether items of these keys can exist at all: DynamoDB refuses even to look for others."""
    try:
        return all(0 < len(text.encode()) <= KEY_BYTES_MAX for text in texts)
    except UnicodeEncodeError:
        return False
