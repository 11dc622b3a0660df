"""How fast people may go, counted over all nodes that share an engine.

What is rare (an account, a connection, a login, a change of a chat) is asked of the engine. Messages, work
and the cost of requests are decided here at once by limiters of this node's own. Twice a second these report
to the engine what they have allowed, and learn what is left: a user who spreads over many nodes gets little
more than one who stays on one. While the engine is out of reach, this node decides alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from hashlib import blake2b

from msgspec import Struct

from parley.clock import Clock
from parley.core.rates import (
    CHAT_CHANGES_PER_USER,
    CONNECTIONS_PER_ADDRESS,
    COST_PER_ADDRESS,
    COST_PER_USER,
    FAILED_LOGINS,
    FAILED_LOGINS_PER_ACCOUNT,
    FAILED_LOGINS_PER_ADDRESS,
    MEMBER_CHANGES_PER_USER,
    MESSAGES_PER_USER,
    NEW_CHATS_PER_USER,
    REGISTRATIONS_PER_ADDRESS,
    REPORTS_PER_USER,
    WORK_PER_USER,
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

    def spend(self, key: object, now_ms: int, cost: float) -> float:
        self._used[key] = self._used.get(key, 0.0) + cost
        return super().spend(key, now_ms, cost)

    def take_used(self) -> dict[str, float]:
        """What was allowed since this was asked last."""
        used, self._used = self._used, {}
        return {str(key): cost for key, cost in used.items()}

    def lower_to(self, left: Mapping[str, float], now_ms: int) -> None:
        """So much was left when it was asked; what was allowed since then is not in it."""
        for key, level in left.items():
            self.lower(key, now_ms, level - self._used.get(key, 0.0))


class RateBudget(Struct, frozen=True):
    """What a rate leaves to one key."""

    name: str
    rate: Rate
    key: str


class SharedRates:
    """The rates of one node. Who asks is told the milliseconds to wait: 0 is a yes, and counted."""

    def __init__(self, ephemeral: Ephemeral, clock: Clock) -> None:
        self._engine = ephemeral.rates
        self._clock = clock
        self._is_shared = ephemeral.is_shared
        self._reported: dict[str, ReportedLimiter] = {}
        self._reporter: asyncio.Task[None] | None = None
        self.messages = self._limiter("messages", MESSAGES_PER_USER)
        self.work = self._limiter("work", WORK_PER_USER)
        self._costs = self._limiter("costs", COST_PER_USER)
        self._address_costs = self._limiter("address_costs", COST_PER_ADDRESS)

    def _limiter(self, name: str, rate: Rate) -> RateLimiter:
        """Decides here; if there are other nodes, it reports to the engine."""
        if not self._is_shared:
            return RateLimiter(rate)
        limiter = self._reported[name] = ReportedLimiter(rate)
        return limiter

    def charge(self, user_id: str, cost: float) -> int:
        """What a request of this person costs, whichever way it came."""
        return self._costs.take(user_id, self._clock(), cost)

    def charge_address(self, address: str, cost: float) -> int:
        """The same for a request without a session."""
        return self._address_costs.take(address, self._clock(), cost)

    async def new_chat(self, user_id: str, members: int) -> int:
        """A chat, and its first members, who are changes like any later ones."""
        wait_ms = await self._take(RateBudget("new_chats", NEW_CHATS_PER_USER, user_id))
        if wait_ms:
            return wait_ms
        wait_ms = await self.member_changes(user_id, members)
        if wait_ms:
            await self._take(RateBudget("new_chats", NEW_CHATS_PER_USER, user_id), -1.0)
        return wait_ms

    async def member_changes(self, user_id: str, count: int) -> int:
        """So many people join, leave or change. More than a whole minute's worth takes just that."""
        cost = min(float(count), MEMBER_CHANGES_PER_USER.burst)
        return await self._take(RateBudget("member_changes", MEMBER_CHANGES_PER_USER, user_id), cost)

    async def chat_changes(self, user_id: str, count: int) -> int:
        """So many new titles or modes of read receipts."""
        return await self._take(RateBudget("chat_changes", CHAT_CHANGES_PER_USER, user_id), float(count))

    async def report(self, user_id: str) -> int:
        return await self._take(RateBudget("reports", REPORTS_PER_USER, user_id))

    async def registration(self, address: str) -> int:
        return await self._take(RateBudget("registrations", REGISTRATIONS_PER_ADDRESS, address))

    async def connection(self, address: str) -> int:
        return await self._take(RateBudget("connections", CONNECTIONS_PER_ADDRESS, address))

    async def login(
        self, username: str, address: str, is_known: Callable[[], Awaitable[bool]]
    ) -> tuple[int, list[RateBudget]]:
        """The wait, and what was counted: as if it had failed, so that guesses made at once count too.

        An account has a budget at each address, one over all addresses, and an address one over all accounts.
        Guesses from elsewhere use up the shared budgets, and must not lock the owner out: at an address that
        the account knows (`is_known`), only its own budget there counts.
        """
        own = RateBudget("failed_logins", FAILED_LOGINS, _key(username, address))
        counted: list[RateBudget] = []
        for budget in (
            own,
            RateBudget("failed_logins_of_address", FAILED_LOGINS_PER_ADDRESS, _key(address)),
            RateBudget("failed_logins_of_account", FAILED_LOGINS_PER_ACCOUNT, _key(username)),
        ):
            wait_ms = await self._take(budget)
            if not wait_ms:
                counted.append(budget)
            elif budget is own or not await is_known():
                await self.give_back(counted)
                return wait_ms, []
        return 0, counted

    async def password_change(self, session_id: str) -> tuple[int, list[RateBudget]]:
        """As `login`. Each session has a budget of its own: a thief of one cannot use up another's."""
        budget = RateBudget("failed_logins", FAILED_LOGINS, _key(session_id))
        wait_ms = await self._take(budget)
        return wait_ms, [] if wait_ms else [budget]

    async def give_back(self, counted: list[RateBudget]) -> None:
        """It did not fail after all."""
        for budget in counted:
            await self._take(budget, -1.0)

    async def _take(self, budget: RateBudget, cost: float = 1.0) -> int:
        rate = budget.rate
        return await self._engine.take(budget.name, budget.key, cost, rate.per_second, rate.burst)

    def start(self) -> None:
        if self._reported:
            self._reporter = asyncio.get_running_loop().create_task(self._report_always())

    def close(self) -> None:
        if self._reporter is not None:
            self._reporter.cancel()

    async def _report_always(self) -> None:
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            for name, limiter in self._reported.items():
                used, rate = limiter.take_used(), limiter.rate
                if used:
                    left = await self._engine.report(name, used, rate.per_second, rate.burst)
                    limiter.lower_to(left, self._clock())


def _key(*parts: str) -> str:
    """Of one size, whatever is asked for: a name that was not checked yet may be long."""
    asked = "\x1f".join(parts).encode(errors="replace")
    return blake2b(asked, digest_size=KEY_BYTES).hexdigest()
