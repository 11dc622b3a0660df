"""Waiting for what must happen, with a deadline."""

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable

DEADLINE_SECONDS = 15.0
BUSY_FACTOR_MAX = 3.0
"""A machine that others keep busy gets more time, up to this factor: it is not what is tested."""
LOOK_SECONDS = 0.005


async def eventually(holds: Callable[[], bool | Awaitable[bool]], seconds: float = DEADLINE_SECONDS) -> None:
    """Look again and again until it holds; TimeoutError at the deadline."""
    async with asyncio.timeout(seconds * busy_factor()):
        while not await _looked(holds):  # noqa: ASYNC110 - what is waited for may be in another process
            await asyncio.sleep(LOOK_SECONDS)


def busy_factor() -> float:
    """How many programs want each core, at least 1."""
    return min(BUSY_FACTOR_MAX, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


async def _looked(holds: Callable[[], bool | Awaitable[bool]]) -> bool:
    found = holds()
    return await found if inspect.isawaitable(found) else found
