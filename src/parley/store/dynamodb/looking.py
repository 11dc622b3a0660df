"""Looking again at what looks broken: it may be the first half of something that is being written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from parley.store.dynamodb.values import Item

LOOKS_MAX = 3
LOOK_AGAIN_SECONDS = 0.1


async def stays(is_broken: Callable[[], Awaitable[bool]]) -> bool:
    """Whether it is broken each time that it is looked at, over longer than a transaction takes."""
    for look in range(LOOKS_MAX):
        if look:
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
        if not await is_broken():
            return False
    return True


def told(item: Item, name: str) -> str:
    """An attribute in words, whatever it holds."""
    value = item.get(name)
    return value if isinstance(value, str) else repr(value)
