"""The engine in this process: complete for a single node, the fallback for a node of a cluster.

Several nodes in one process may share an engine: so tests run a cluster in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from parley.clock import MS_PER_SECOND, Clock
from parley.core.jobs import JobRecord
from parley.core.rates import Rate, RateLimiter
from parley.ephemeral.callbacks import Callbacks
from parley.ephemeral.local_interests import LocalInterests
from parley.ephemeral.ports import (
    CLUSTER_RECORD_SECONDS,
    DEVICE_LEASE_SECONDS,
    NODE_LEASE_SECONDS,
    NODE_RECORD_SECONDS,
    TENURE_LEASE_SECONDS,
    Device,
    Interests,
    JobRecords,
    Leases,
    Node,
    Nodes,
    Presence,
    Rates,
    Registry,
    Signals,
)
from parley.ephemeral.signals import Signal, SomeSignal
from parley.model import JobScope


class LocalNodes:
    def __init__(self, clock: Clock, lease_seconds: float = NODE_LEASE_SECONDS) -> None:
        self._clock = clock
        self._lease_ms = round(lease_seconds * MS_PER_SECOND)
        self._leases: dict[str, tuple[Node, int]] = {}

    async def announce(self, node: Node) -> bool:
        self._leases[node.node_id] = node, self._clock() + self._lease_ms
        return True

    async def withdraw(self, node_id: str) -> None:
        self._leases.pop(node_id, None)

    async def alive(self) -> list[Node]:
        now_ms = self._clock()
        self._leases = {key: lease for key, lease in self._leases.items() if lease[1] > now_ms}
        return [node for _, (node, _) in sorted(self._leases.items())]


class DeviceLease(NamedTuple):
    device_id: str
    node_id: str
    expires_ms: int

    def is_of(self, device_id: str, node_id: str) -> bool:
        return self.device_id == device_id and self.node_id == node_id


class LocalRegistry:
    """Bounded by the number of connections: each renewal removes the leases that have expired."""

    def __init__(self, clock: Clock, lease_seconds: float = DEVICE_LEASE_SECONDS) -> None:
        self._clock = clock
        self._lease_ms = round(lease_seconds * MS_PER_SECOND)
        self._people: dict[str, tuple[DeviceLease, ...]] = {}
        """The leases of each user who is online, the newest last."""
        self._leases: dict[tuple[str, str, str], int] = {}
        """(user_id, device_id, node_id) of every lease → when it expires, in that order."""
        self._watchers = Callbacks[Presence]()

    async def connected(self, devices: Sequence[Device], node_id: str) -> None:
        now_ms = self._clock()
        for user_id, device_id in devices:
            known = self._people.get(user_id, ())
            others = [at for at in known if not at.is_of(device_id, node_id)]
            self._hold(user_id, (*others, self._lease(user_id, device_id, node_id, now_ms)), now_ms)

    async def renew(self, devices: Sequence[Device], node_id: str) -> list[Presence]:
        now_ms = self._clock()
        for user_id, device_id in devices:
            known = self._people.get(user_id, ())
            lease = self._lease(user_id, device_id, node_id, now_ms)
            leases = tuple(lease if at.is_of(device_id, node_id) else at for at in known)
            self._hold(user_id, leases if lease in leases else (*leases, lease), now_ms)
        return self._end_expired(now_ms)

    def _lease(self, user_id: str, device_id: str, node_id: str, now_ms: int) -> DeviceLease:
        expires_ms = now_ms + self._lease_ms
        self._leases.pop((user_id, device_id, node_id), None)
        self._leases[user_id, device_id, node_id] = expires_ms
        return DeviceLease(device_id, node_id, expires_ms)

    def _hold(self, user_id: str, leases: tuple[DeviceLease, ...], now_ms: int) -> None:
        is_news = user_id not in self._people
        self._people[user_id] = leases
        if is_news:
            self._watchers.notify(Presence(user_id, True, now_ms))

    async def disconnected(self, devices: Iterable[Device], node_id: str) -> list[Presence]:
        now_ms = self._clock()
        gone: list[Presence] = []
        for user_id, device_id in devices:
            if self._leases.pop((user_id, device_id, node_id), None) is None:
                continue
            left = tuple(at for at in self._people[user_id] if not at.is_of(device_id, node_id))
            self._people[user_id] = left
            if _expires_ms(left) <= now_ms:
                gone.append(self._end(user_id, now_ms))
        return gone

    def _end_expired(self, now_ms: int) -> list[Presence]:
        gone: list[Presence] = []
        while self._leases:
            key, expires_ms = next(iter(self._leases.items()))
            if expires_ms > now_ms:
                break
            user_id, device_id, node_id = key
            leases = self._people[user_id]
            last_ms = _expires_ms(leases)
            if last_ms <= now_ms:
                gone.append(self._end(user_id, last_ms - self._lease_ms))
            else:
                del self._leases[key]
                self._people[user_id] = tuple(at for at in leases if not at.is_of(device_id, node_id))
        return gone

    def _end(self, user_id: str, last_active_ms: int) -> Presence:
        for at in self._people.pop(user_id):
            del self._leases[user_id, at.device_id, at.node_id]
        presence = Presence(user_id, False, last_active_ms)
        self._watchers.notify(presence)
        return presence

    async def whereabouts(self, user_ids: Sequence[str]) -> dict[str, dict[str, str]]:
        now_ms = self._clock()
        found = {}
        for user_id in user_ids:
            leases = self._people.get(user_id, ())
            if _expires_ms(leases) > now_ms:
                found[user_id] = {at.device_id: at.node_id for at in leases if at.expires_ms > now_ms}
        return found

    async def presences(self, user_ids: Sequence[str]) -> list[Presence]:
        now_ms = self._clock()
        return [self._presence(user_id, now_ms) for user_id in user_ids]

    def _presence(self, user_id: str, now_ms: int) -> Presence:
        expires_ms = _expires_ms(self._people.get(user_id, ()))
        if expires_ms <= now_ms:
            return Presence(user_id, False, 0)
        return Presence(user_id, True, expires_ms - self._lease_ms)

    def watch(self, changed: Callable[[Presence], None]) -> Callable[[], None]:
        return self._watchers.add(changed)

    def on_return(self, returned: Callable[[], None]) -> Callable[[], None]:
        """Never called: a process does not lose its own memory."""
        return lambda: None


def _expires_ms(leases: tuple[DeviceLease, ...]) -> int:
    return max([at.expires_ms for at in leases], default=0)


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


class LocalSignals:
    """Subscribers get the very value that was published: nothing is encoded within a process."""

    dropped = 0

    def __init__(self) -> None:
        self._subscribers: dict[type[Signal], Callbacks[Any]] = {}

    def publish(self, signal: Signal) -> None:
        subscribers = self._subscribers.get(type(signal))
        if subscribers is not None:
            subscribers.notify(signal)

    def subscribe(self, kind: type[SomeSignal], receive: Callable[[SomeSignal], None]) -> Callable[[], None]:
        return self._subscribers.setdefault(kind, Callbacks()).add(receive)


class LocalLeases:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: dict[str, tuple[str, int]] = {}

    async def hold(self, name: str, holder: str, seconds: float) -> bool | None:
        now_ms = self._clock()
        by, ends_ms = self._held.get(name, ("", 0))
        if by != holder and ends_ms > now_ms:
            return False
        self._held[name] = holder, now_ms + round(seconds * MS_PER_SECOND)
        return True

    async def release(self, name: str, holder: str) -> None:
        if self._held.get(name, ("", 0))[0] == holder:
            del self._held[name]


class LocalJobRecords:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[str, tuple[JobRecord, int]] = {}

    async def put(self, records: Sequence[JobRecord]) -> None:
        now_ms = self._clock()
        for record in records:
            self._kept[record.key] = record, now_ms + round(record_seconds(record) * MS_PER_SECOND)

    async def all(self) -> list[JobRecord] | None:
        now_ms = self._clock()
        self._kept = {key: kept for key, kept in self._kept.items() if kept[1] > now_ms}
        return [record for _, (record, _) in sorted(self._kept.items())]

    async def remove(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._kept.pop(key, None)


def record_seconds(record: JobRecord) -> float:
    """How long a record is kept."""
    return CLUSTER_RECORD_SECONDS if record.scope is JobScope.CLUSTER else NODE_RECORD_SECONDS


class LocalEphemeral:
    """Everything in this process. It ends with the process."""

    available = True

    def __init__(
        self,
        clock: Clock,
        *,
        node_lease_seconds: float = NODE_LEASE_SECONDS,
        device_lease_seconds: float = DEVICE_LEASE_SECONDS,
        tenure_lease_seconds: float = TENURE_LEASE_SECONDS,
    ) -> None:
        self.is_shared = False
        self.nodes: Nodes = LocalNodes(clock, node_lease_seconds)
        self.registry: Registry = LocalRegistry(clock, device_lease_seconds)
        self.interests: Interests = LocalInterests(clock, tenure_lease_seconds)
        self.rates: Rates = LocalRates(clock)
        self.signals: Signals = LocalSignals()
        self.leases: Leases = LocalLeases(clock)
        self.job_records: JobRecords = LocalJobRecords(clock)

    async def start(self) -> None:
        """Nothing to connect to."""

    async def close(self) -> None:
        """Nothing to close."""
