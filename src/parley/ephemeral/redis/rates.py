"""Token buckets that all nodes share; what this node counts by itself is asked first, or alone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from msgspec import Struct

from parley.core.rates import ROUNDING
from parley.ephemeral.local import LocalRates
from parley.ephemeral.redis import scripts
from parley.ephemeral.redis.link import Link, chunks

TAKES_PER_CALL_MAX = 250
REPORTS_PER_CALL_MAX = 500


class Take(Struct):
    """Somebody waits to be told whether to go on."""

    name: str
    key: str
    cost: float
    per_second: float
    burst: float
    answer: asyncio.Future[int]


class RedisRates:
    """Takes that come while Redis is asked for others go together in the next call."""

    def __init__(self, link: Link, here: LocalRates, prefix: str = "") -> None:
        self._link = link
        self._here = here
        self._prefix = prefix
        self._take = link.script(scripts.TAKE)
        self._report = link.script(scripts.REPORT)
        self._waiting: list[Take] = []
        self._asking: asyncio.Task[None] | None = None

    async def take(self, name: str, key: str, cost: float, per_second: float, burst: float) -> int:
        wait_ms = self._here.take_at_once(name, key, cost, per_second, burst)
        if wait_ms:
            return wait_ms
        loop = asyncio.get_running_loop()
        take = Take(name, key, cost, per_second, burst, loop.create_future())
        self._waiting.append(take)
        if self._asking is None:
            self._asking = loop.create_task(self._ask_for_all())
        return await take.answer

    async def _ask_for_all(self) -> None:
        """Until nobody waits: an empty bucket elsewhere gives back what was taken here."""
        while self._waiting:
            takes = self._waiting[:TAKES_PER_CALL_MAX]
            del self._waiting[:TAKES_PER_CALL_MAX]
            waits_ms = await self._link.call(partial(self._ask, takes)) or [0] * len(takes)
            for take, wait_ms in zip(takes, waits_ms, strict=True):
                if wait_ms:
                    self._here.take_at_once(take.name, take.key, -take.cost, take.per_second, take.burst)
                if not take.answer.done():  # who asked may have gone meanwhile
                    take.answer.set_result(wait_ms)
        self._asking = None

    async def _ask(self, takes: list[Take]) -> list[int]:
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
            levels = await self._link.call(
                partial(self._report, [self._key(name, key) for key in keys], values)
            )
            left |= zip(keys, map(float, levels or ()), strict=levels is not None)
        return left

    def _key(self, name: str, key: str) -> str:
        return f"{self._prefix}rate:{name}:{key}"
