"""Cancellations that a library swallows."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from parley.concurrency import cancellable
from parley.ephemeral.redis.client import RedisClient


async def returns_anyway() -> str:
    """As `asyncio.wait_for` of Python 3.11 does when it is done in the moment of the cancellation."""
    try:
        await asyncio.get_running_loop().create_future()
    except asyncio.CancelledError:
        return "done"
    raise AssertionError("nobody sets it")


async def fails_instead() -> str:
    try:
        await asyncio.get_running_loop().create_future()
    except asyncio.CancelledError:
        raise ConnectionError("on purpose") from None
    raise AssertionError("nobody sets it")


SWALLOWING = pytest.mark.parametrize("work", [returns_anyway, fails_instead])


async def cancelled(work: Awaitable[object]) -> bool:
    """Whether a task that is cancelled in the midst of it ends as cancelled."""
    task = asyncio.ensure_future(work)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    return task.cancelled()


@SWALLOWING
async def test_a_swallowed_cancellation_is_heeded(work: Callable[[], Awaitable[str]]) -> None:
    """Whatever the work makes of it."""
    assert await cancelled(cancellable(work()))


@SWALLOWING
async def test_a_call_to_redis_ends_when_it_is_cancelled(work: Callable[[], Awaitable[str]]) -> None:
    """A job that calls it in a loop would otherwise go on, and the stop of its node would wait for ever."""
    client = RedisClient("redis://127.0.0.1:9/0")
    assert await cancelled(client.call(work))
    assert client.available


async def test_work_that_nobody_cancels_is_as_without() -> None:
    """Its result, its failure, and a deadline of its own."""

    async def fails() -> None:
        raise ConnectionError("on purpose")

    async def too_slow() -> None:
        async with asyncio.timeout(0):
            await asyncio.get_running_loop().create_future()

    assert await cancellable(asyncio.sleep(0, "done")) == "done"
    with pytest.raises(ConnectionError):
        await cancellable(fails())
    with pytest.raises(TimeoutError):
        await cancellable(too_slow())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await cancellable(returns_anyway())
