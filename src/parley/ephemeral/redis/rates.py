"""Token buckets that all nodes share. This node's own bucket decides first, and alone during an outage."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from msgspec import Struct

from parley.core.rates import ROUNDING
from parley.ephemeral.local import LocalRates
from parley.ephemeral.redis import scripts
from parley.ephemeral.redis.client import RedisClient, chunks

TAKES_PER_CALL_MAX = 250
REPORTS_PER_CALL_MAX = 500


class Take(Struct):
    """A caller that waits for the decision."""

    name: str
    key: str
    cost: float
    per_second: float
    burst: float
    answer: asyncio.Future[int]


class RedisRates:
    """Takes that arrive during a call to Redis are batched into the next one."""

    def __init__(self, client: RedisClient, local: LocalRates, prefix: str = "") -> None:
        self._client = client
        self._local = local
        self._prefix = prefix
        self._take = client.script(scripts.TAKE)
        self._report = client.script(scripts.REPORT)
        self._waiting: list[Take] = []
        self._taking: asyncio.Task[None] | None = None

    async def take(self, name: str, key: str, cost: float, per_second: float, burst: float) -> int:
        wait_ms = self._local.take_at_once(name, key, cost, per_second, burst)
        if wait_ms:
            return wait_ms
        loop = asyncio.get_running_loop()
        take = Take(name, key, cost, per_second, burst, loop.create_future())
        self._waiting.append(take)
        if self._taking is None:
            self._taking = loop.create_task(self._take_all())
        return await take.answer

    async def _take_all(self) -> None:
        """Call Redis until no caller waits. If Redis refuses, give back what this node's bucket took."""
        while self._waiting:
            takes = self._waiting[:TAKES_PER_CALL_MAX]
            del self._waiting[:TAKES_PER_CALL_MAX]
            waits_ms = await self._client.call(partial(self._take_batch, takes)) or [0] * len(takes)
            for take, wait_ms in zip(takes, waits_ms, strict=True):
                if wait_ms:
                    self._local.take_at_once(take.name, take.key, -take.cost, take.per_second, take.burst)
                if not take.answer.done():  # the caller may have been cancelled
                    take.answer.set_result(wait_ms)
        self._taking = None

    async def _take_batch(self, takes: list[Take]) -> list[int]:
        values: list[float] = [ROUNDING]
        for take in takes:
            values += take.cost, take.per_second, take.burst
        waits_ms: list[int] = await self._take([self._key(take.name, take.key) for take in takes], values)
        return waits_ms

    async def report(
        self, name: str, used: Mapping[str, float], per_second: float, burst: float
    ) -> dict[str, float]:
        left: dict[str, float] = {}
        for keys in chunks(list(used), REPORTS_PER_CALL_MAX):
            values = [per_second, burst, *(used[key] for key in keys)]
            levels = await self._client.call(
                partial(self._report, [self._key(name, key) for key in keys], values)
            )
            left |= zip(keys, map(float, levels or ()), strict=levels is not None)
        return left

    def _key(self, name: str, key: str) -> str:
        return f"{self._prefix}rate:{name}:{key}"
