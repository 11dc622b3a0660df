"""Waiting for what must happen, with a deadline."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable

DEADLINE_SECONDS = 15.0
LOOK_SECONDS = 0.005


async def eventually(holds: Callable[[], bool | Awaitable[bool]], seconds: float = DEADLINE_SECONDS) -> None:
    """Look again and again until it holds; TimeoutError at the deadline."""
    async with asyncio.timeout(seconds):
        while not await _looked(holds):  # noqa: ASYNC110 - what is waited for may be in another process
            await asyncio.sleep(LOOK_SECONDS)


async def _looked(holds: Callable[[], bool | Awaitable[bool]]) -> bool:
    found = holds()
    return await found if inspect.isawaitable(found) else found
