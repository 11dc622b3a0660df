"""Waiting for what must happen, with a deadline that is longer where the machine is slow or busy."""

import asyncio
import inspect
import os
import time
from collections.abc import Awaitable, Callable
from functools import cache

DEADLINE_SECONDS = 15.0
FACTOR_MAX = 4.0
"""So much longer is a deadline at most: a test that hangs says where before pytest ends it."""
LOOP_SECONDS = 0.005
"""What the loop takes where the deadlines were chosen."""
LOOPS, LOOP_STEPS = 3, 200_000
LOOK_SECONDS = 0.005


async def eventually(holds: Callable[[], bool | Awaitable[bool]], seconds: float = DEADLINE_SECONDS) -> None:
    """Look again and again until it holds; TimeoutError at the deadline."""
    async with deadline(seconds):
        while not await _looked(holds):  # noqa: ASYNC110 - what is waited for may be in another process
            await asyncio.sleep(LOOK_SECONDS)


def deadline(seconds: float = DEADLINE_SECONDS) -> asyncio.Timeout:
    """A context that ends with TimeoutError when that time is over, as long as it is on this machine."""
    return asyncio.timeout(stretched(seconds))


def stretched(seconds: float) -> float:
    """The time that a machine needs for what takes a quiet and quick one so long."""
    return seconds * min(FACTOR_MAX, busy_factor() * slow_factor())


def busy_factor() -> float:
    """How many programs want each core, at least 1."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


@cache
def slow_factor() -> float:
    """How much longer this machine computes, whoever else wants its cores; at least 1."""
    return max(1.0, min(_loop_seconds() for _ in range(LOOPS)) / LOOP_SECONDS)


def _loop_seconds() -> float:
    started, found = time.process_time(), 0
    for number in range(LOOP_STEPS):
        found += number & 7
    return time.process_time() - started


async def _looked(holds: Callable[[], bool | Awaitable[bool]]) -> bool:
    found = holds()
    return await found if inspect.isawaitable(found) else found
