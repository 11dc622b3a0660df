"""What may be lost, kept in this process: all there is for one node, what it knows by itself for one of many.

Several nodes in one process may share an engine, which is how tests run a cluster in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from parley.clock import MS_PER_SECOND, Clock
from parley.core.rates import Rate, RateLimiter
from parley.ephemeral.listeners import Listeners
from parley.ephemeral.ports import (
    DEVICE_LEASE_SECONDS,
    NODE_LEASE_SECONDS,
    Device,
    Node,
    Nodes,
    Presence,
    Rates,
    Registry,
)


class LocalNodes:
    def __init__(self, clock: Clock, lease_seconds: float = NODE_LEASE_SECONDS) -> None:
        self._clock = clock
        self._lease_ms = round(lease_seconds * MS_PER_SECOND)
        self._leases: dict[str, tuple[Node, int]] = {}

    async def announce(self, node: Node) -> None:
        self._leases[node.node_id] = node, self._clock() + self._lease_ms

    async def withdraw(self, node_id: str) -> None:
        self._leases.pop(node_id, None)

    async def alive(self) -> list[Node]:
        now_ms = self._clock()
        self._leases = {key: lease for key, lease in self._leases.items() if lease[1] > now_ms}
        return [node for _, (node, _) in sorted(self._leases.items())]


class Person:
    """Somebody who was told to be online. Claims are kept in the order in which devices connected."""

    __slots__ = ("claims", "expires_ms", "last_active_ms")

    def __init__(self) -> None:
        self.claims: dict[tuple[str, str], int] = {}
        self.expires_ms = 0
        self.last_active_ms = 0


class LocalRegistry:
    """Bounded by what is connected: a claim that is not renewed goes with the next renewal of any other."""

    def __init__(self, clock: Clock, lease_seconds: float = DEVICE_LEASE_SECONDS) -> None:
        self._clock = clock
        self._lease_ms = round(lease_seconds * MS_PER_SECOND)
        self._people: dict[str, Person] = {}
        """In the order of their last claims, so that whoever runs out first stands in front."""
        self._watching = Listeners[Presence]()

    async def connected(self, devices: Sequence[Device], node_id: str) -> None:
        for user_id, device_id in devices:
            self._claim(user_id, (device_id, node_id), is_new=True)

    async def renew(self, devices: Sequence[Device], node_id: str) -> None:
        for user_id, device_id in devices:
            self._claim(user_id, (device_id, node_id), is_new=False)
        self._end_expired()

    def _claim(self, user_id: str, claim: tuple[str, str], is_new: bool) -> None:
        now_ms = self._clock()
        known = self._people.pop(user_id, None)
        person = self._people[user_id] = known or Person()
        person.expires_ms, person.last_active_ms = now_ms + self._lease_ms, now_ms
        if is_new and person.claims:
            person.claims = {at: ends for at, ends in person.claims.items() if ends > now_ms and at != claim}
        person.claims[claim] = person.expires_ms
        if known is None:
            self._watching.tell(Presence(user_id, True, now_ms))

    async def disconnected(self, devices: Iterable[Device], node_id: str) -> None:
        now_ms = self._clock()
        for user_id, device_id in devices:
            person = self._people.get(user_id)
            if person is not None and person.claims.pop((device_id, node_id), None) is not None:
                person.claims = {claim: at for claim, at in person.claims.items() if at > now_ms}
                if not person.claims:
                    self._end(user_id, now_ms)

    def _end_expired(self) -> None:
        now_ms = self._clock()
        while self._people:
            user_id, person = next(iter(self._people.items()))
            if person.expires_ms > now_ms:
                return
            self._end(user_id, person.last_active_ms)

    def _end(self, user_id: str, last_active_ms: int) -> None:
        del self._people[user_id]
        self._watching.tell(Presence(user_id, False, last_active_ms))

    async def whereabouts(self, user_ids: Sequence[str]) -> dict[str, dict[str, str]]:
        now_ms = self._clock()
        found = {}
        for user_id in user_ids:
            person = self._people.get(user_id)
            if person is not None and person.expires_ms > now_ms:
                claims = person.claims.items()
                found[user_id] = {device_id: node_id for (device_id, node_id), at in claims if at > now_ms}
        return found

    async def presences(self, user_ids: Sequence[str]) -> list[Presence]:
        return [self._presence(user_id, self._people.get(user_id)) for user_id in user_ids]

    def _presence(self, user_id: str, person: Person | None) -> Presence:
        if person is None or person.expires_ms <= self._clock():
            return Presence(user_id, False, 0)
        return Presence(user_id, True, person.last_active_ms)

    def watch(self, changed: Callable[[Presence], None]) -> Callable[[], None]:
        return self._watching.add(changed)

    def on_return(self, returned: Callable[[], None]) -> Callable[[], None]:
        """It never comes: what is in this process does not go away without it."""
        return lambda: None


class LocalRates:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._limiters: dict[str, RateLimiter] = {}

    async def take(self, name: str, key: str, cost: float, per_second: float, burst: float) -> int:
        return self.take_at_once(name, key, cost, per_second, burst)

    def take_at_once(self, name: str, key: str, cost: float, per_second: float, burst: float) -> int:
        limiter = self._limiter(name, per_second, burst)
        if cost >= 0:
            return limiter.take(key, self._clock(), cost)
        limiter.spend(key, self._clock(), cost)
        return 0

    async def report(
        self, name: str, used: Mapping[str, float], per_second: float, burst: float
    ) -> dict[str, float]:
        limiter, now_ms = self._limiter(name, per_second, burst), self._clock()
        return {key: limiter.spend(key, now_ms, cost) for key, cost in used.items()}

    def _limiter(self, name: str, per_second: float, burst: float) -> RateLimiter:
        limiter = self._limiters.get(name)
        if limiter is None:
            limiter = self._limiters[name] = RateLimiter(Rate(per_second, burst))
        return limiter


class LocalEphemeral:
    """Everything in this process; nothing to start, nothing to lose but the process itself."""

    available = True

    def __init__(
        self,
        clock: Clock,
        *,
        node_lease_seconds: float = NODE_LEASE_SECONDS,
        device_lease_seconds: float = DEVICE_LEASE_SECONDS,
    ) -> None:
        self.is_shared = False
        self.nodes: Nodes = LocalNodes(clock, node_lease_seconds)
        self.registry: Registry = LocalRegistry(clock, device_lease_seconds)
        self.rates: Rates = LocalRates(clock)

    async def start(self) -> None:
        """There is nobody to hear but this process."""

    async def close(self) -> None:
        """There is nothing to let go of."""
