"""The engines of the `ephemeral` room under contract: several nodes, and time that passes for all of them.

async def test_something(world: World) -> None:
    async with world.opened() as (one, two):
        await one.nodes.announce(...)
        await world.until(lambda: ...)     # leases are short, or time is virtual
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from parley.clock import wall_clock
from parley.ephemeral.local import LocalEphemeral
from parley.ephemeral.ports import Ephemeral
from parley.ephemeral.redis.engine import RedisEphemeral
from tests.fakes import KEYS
from tests.harness.clock import VirtualClock
from tests.services import fresh_prefix, redis_url
from tests.waiting import eventually

Condition = Callable[[], Awaitable[bool]]
Pair = tuple[Ephemeral, Ephemeral]


class World(Protocol):
    """What two nodes share; a lease of whatever kind lasts `lease_seconds`."""

    lease_seconds: float

    def opened(self) -> AbstractAsyncContextManager[Pair]:
        """Two nodes that listen, with nothing known to either; they are closed at the end."""
        ...

    async def until(self, holds: Condition) -> None:
        """Let time pass until it holds."""
        ...

    def tick(self) -> None:
        """A moment passes, as it does by itself where time is real."""
        ...


class LocalWorld:
    lease_seconds = 60.0

    def __init__(self) -> None:
        self._clock = VirtualClock()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Pair]:
        shared = LocalEphemeral(
            self._clock,
            node_lease_seconds=self.lease_seconds,
            device_lease_seconds=self.lease_seconds,
            tenure_lease_seconds=self.lease_seconds,
        )
        yield shared, shared

    async def until(self, holds: Condition) -> None:
        step_ms = round(self.lease_seconds * 10)
        for _ in range(1_000):
            if await holds():
                return
            self._clock.advance(step_ms)
        raise TimeoutError

    def tick(self) -> None:
        self._clock.advance(1)


class RedisWorld:
    lease_seconds = 2.0

    def __init__(self) -> None:
        self._url = redis_url()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Pair]:
        prefix = fresh_prefix()
        one, two = (self._engine(prefix) for _ in range(2))
        for engine in (one, two):
            await engine.start()
            await eventually(lambda engine=engine: engine.is_listening)  # type: ignore[misc]
        try:
            yield one, two
        finally:
            await one.close()
            await two.close()

    def _engine(self, prefix: str) -> RedisEphemeral:
        return RedisEphemeral(
            self._url,
            KEYS,
            wall_clock,
            prefix=prefix,
            node_lease_seconds=self.lease_seconds,
            device_lease_seconds=self.lease_seconds,
            tenure_lease_seconds=self.lease_seconds,
        )

    async def until(self, holds: Condition) -> None:
        await eventually(holds)

    def tick(self) -> None:
        """It takes longer than this to ask Redis twice."""


WORLDS: dict[str, Callable[[], World]] = {"local": LocalWorld, "redis": RedisWorld}
