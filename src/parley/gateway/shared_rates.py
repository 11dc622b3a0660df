"""How fast people may go, counted over all nodes that share an engine.

What is rare (an account, a connection, a login) is asked of the engine. Messages are decided here at once by
a limiter of this node's own, which tells the engine twice a second what it has allowed and hears what is
left: who spreads over many nodes gets little more than who stays on one. While the engine is out of reach,
this node decides alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from hashlib import blake2b

from parley.clock import Clock
from parley.core.rates import (
    CONNECTIONS_PER_ADDRESS,
    FAILED_LOGINS,
    MESSAGES_PER_USER,
    REGISTRATIONS_PER_ADDRESS,
    Rate,
    RateLimiter,
)
from parley.ephemeral.ports import Ephemeral

REPORT_SECONDS = 0.5
KEY_BYTES = 16


class ReportedLimiter(RateLimiter):
    """Decides like any other, and remembers what it allowed until that is reported."""

    def __init__(self, rate: Rate) -> None:
        super().__init__(rate)
        self._used: dict[object, float] = {}

    def take(self, key: object, now_ms: int, cost: float = 1.0) -> int:
        wait_ms = super().take(key, now_ms, cost)
        if not wait_ms:
            self._used[key] = self._used.get(key, 0.0) + cost
        return wait_ms

    def take_used(self) -> dict[str, float]:
        """What was allowed since this was asked last."""
        used, self._used = self._used, {}
        return {str(key): cost for key, cost in used.items()}

    def lower_to(self, left: Mapping[str, float], now_ms: int) -> None:
        """So much was left when it was asked; what was allowed since then is not in it."""
        for key, level in left.items():
            self.lower(key, now_ms, level - self._used.get(key, 0.0))


class SharedRates:
    """The rates of one node. Who asks is told the milliseconds to wait: 0 is a yes, and counted."""

    def __init__(self, ephemeral: Ephemeral, clock: Clock) -> None:
        self._engine = ephemeral.rates
        self._clock = clock
        self._reported = ReportedLimiter(MESSAGES_PER_USER) if ephemeral.is_shared else None
        self._reporter: asyncio.Task[None] | None = None
        self.messages: RateLimiter = self._reported or RateLimiter(MESSAGES_PER_USER)

    async def registration(self, address: str) -> int:
        return await self._take("registrations", REGISTRATIONS_PER_ADDRESS, address)

    async def connection(self, address: str) -> int:
        return await self._take("connections", CONNECTIONS_PER_ADDRESS, address)

    async def login(self, username: str, address: str) -> int:
        """Counted as if it had failed before anybody knows, so that guesses made at once count too."""
        return await self._take("failed_logins", FAILED_LOGINS, _key(username, address))

    async def login_not_failed(self, username: str, address: str) -> None:
        """Give back what `login` has counted."""
        await self._take("failed_logins", FAILED_LOGINS, _key(username, address), -1.0)

    async def _take(self, name: str, rate: Rate, key: str, cost: float = 1.0) -> int:
        return await self._engine.take(name, key, cost, rate.per_second, rate.burst)

    def start(self) -> None:
        if self._reported is not None:
            self._reporter = asyncio.get_running_loop().create_task(self._report_always(self._reported))

    def close(self) -> None:
        if self._reporter is not None:
            self._reporter.cancel()

    async def _report_always(self, limiter: ReportedLimiter) -> None:
        rate = limiter.rate
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            used = limiter.take_used()
            if used:
                left = await self._engine.report("messages", used, rate.per_second, rate.burst)
                limiter.lower_to(left, self._clock())


def _key(username: str, address: str) -> str:
    """Of one size, whatever is asked for: a name that nobody checked yet may be long."""
    asked = f"{username}\x1f{address}".encode(errors="replace")
    return blake2b(asked, digest_size=KEY_BYTES).hexdigest()
