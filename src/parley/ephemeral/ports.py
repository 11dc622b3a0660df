"""Ports of state that may be lost. Sending, storing and syncing messages need none of it.

An engine that cannot be reached raises nothing: it answers with what this node knows by itself, and a metric
shows it. The engine's own clock counts, so the clocks of nodes may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from parley.core.jobs import JobRecord
from parley.ephemeral.signals import Signal, SomeSignal

NODE_LEASE_SECONDS = 6.0
NODE_RENEW_SECONDS = 2.0
DEVICE_LEASE_SECONDS = 60.0
DEVICE_RENEW_SECONDS = 30.0
JOB_LEASE_SECONDS = 8.0
JOB_RENEW_SECONDS = 2.0
NODE_RECORD_SECONDS = 30.0
"""How long what a node says of its own jobs is kept after the node fell silent."""
CLUSTER_RECORD_SECONDS = 7 * 86_400.0
"""The same for a job of the cluster: its next runner, and an operator, see when it last ran."""
TENURE_LEASE_SECONDS = 6.0
TENURE_RENEW_SECONDS = 2.0
INTEREST_SECONDS = 4 * 3_600.0
"""How long an interest is kept that its node does not register again."""
INTEREST_AGAIN_SECONDS = 3_600.0
"""A node registers each of its interests again within so long."""
assert INTEREST_SECONDS > 2 * INTEREST_AGAIN_SECONDS
assert TENURE_LEASE_SECONDS > 2 * TENURE_RENEW_SECONDS, "one renewal may fail"
assert JOB_LEASE_SECONDS > 2 * JOB_RENEW_SECONDS, "one renewal may fail"
assert NODE_LEASE_SECONDS > 2 * NODE_RENEW_SECONDS, "one renewal may fail"
assert DEVICE_LEASE_SECONDS >= 2 * DEVICE_RENEW_SECONDS

Device = tuple[str, str]
"""(user_id, device_id)."""


class Node(Struct, frozen=True):
    """A process of the cluster: where its peers reach it, and what it does.

    `target`: what the proof of a call to it names. It is another one after each start. `since_ms`: when it
    started, by its own clock; 0 if it does not say.
    """

    node_id: str
    url: str
    roles: tuple[str, ...]
    target: str = ""
    version: str = ""
    since_ms: int = 0


class Presence(Struct, frozen=True):
    """`last_active_ms`: when the person was last known to be online; 0 if that is not known."""

    user_id: str
    is_online: bool
    last_active_ms: int


class Nodes(Protocol):
    """Which nodes are alive. Each holds a lease and renews it every `NODE_RENEW_SECONDS`."""

    async def announce(self, node: Node) -> bool:
        """Renew this node's lease; False when the engine cannot be reached."""
        ...

    async def withdraw(self, node_id: str) -> None:
        """End this node's lease: it is shutting down."""
        ...

    async def alive(self) -> list[Node]:
        """Every node with a valid lease, by id; the last known list if the engine cannot be reached."""
        ...


class Registry(Protocol):
    """Which devices of which person are connected to which node.

    A lease is on (device, node), and lasts for `DEVICE_LEASE_SECONDS`. Traffic from the device renews it, at
    most every `DEVICE_RENEW_SECONDS`. A person is online while any lease on any of their devices is valid.
    """

    async def connected(self, devices: Sequence[Device], node_id: str) -> None:
        """These devices connected to this node. For each, this node is now the last one."""
        ...

    async def disconnected(self, devices: Iterable[Device], node_id: str) -> list[Presence]:
        """These devices disconnected. Removes only this node's leases: a device may be on another node now.

        Returns the people whom this call took offline: the caller stores their last seen.
        """
        ...

    async def renew(self, devices: Sequence[Device], node_id: str) -> list[Presence]:
        """These devices are still connected to this node. Restores leases that were lost.

        Ends expired leases of any node and notifies watchers, so callers call it even without devices.
        Returns the people whom this call took offline, as `disconnected` does.
        """
        ...

    async def whereabouts(self, user_ids: Sequence[str]) -> dict[str, dict[str, str]]:
        """For each person who is online: device_id → the node it connected to last."""
        ...

    async def presences(self, user_ids: Sequence[str]) -> list[Presence]:
        """One for each, in order."""
        ...

    def watch(self, changed: Callable[[Presence], None]) -> Callable[[], None]:
        """Call `changed` once for every change of presence on any node. Lossy. Returns how to stop it."""
        ...

    def on_return(self, returned: Callable[[], None]) -> Callable[[], None]:
        """Call `returned` when leases may have been lost and must be renewed. Returns how to stop it."""
        ...


class Interests(Protocol):
    """Which nodes hear which subjects: chats, and people who are connected. Live entries are routed by it.

    A node registers under a *tenure*: a name that nobody had before, with a lease of `TENURE_LEASE_SECONDS`.
    While a tenure lasts, everything that was registered under it and not released is found. When it has
    ended, for whatever reason, its node finds out with its next renewal, and begins another one.
    """

    async def begin(self, tenure: str) -> bool:
        """Begin a tenure under which nothing is registered; False when the engine cannot be reached."""
        ...

    async def renew(self, tenure: str) -> bool | None:
        """True: it lasts, and nothing of it was lost since it began. None: the engine cannot be reached.

        False: it has ended, or ran out, or the engine may have forgotten something. It never lasts again.
        """
        ...

    async def register(self, tenure: str, subjects: Sequence[str]) -> list[str] | None:
        """Lookups that begin after it returns find these. Returns those that were not registered before.

        None: the tenure has ended, or the engine cannot be reached; some may be registered all the same.
        """
        ...

    async def release(self, tenure: str, subjects: Sequence[str]) -> None:
        """These need not be found any more."""
        ...

    async def tenures(self, subjects: Sequence[str]) -> dict[str, list[str]] | None:
        """Under which tenures that last each subject is registered now; None if that cannot be said."""
        ...

    async def end(self, tenure: str = "") -> bool:
        """End a tenure, or all of them; False when the engine cannot be reached."""
        ...

    async def suspect(self, seconds: float) -> None:
        """Let every node know for so long that entries may come late: nodes then read the heads."""
        ...

    async def is_suspected(self) -> bool:
        """Whether a node has said so, and not too long ago."""
        ...


class Rates(Protocol):
    """Rate limits over all nodes, as token buckets."""

    async def take(self, name: str, key: str, cost: float, per_second: float, burst: float) -> int:
        """0 when the cost was taken; otherwise the milliseconds to wait, and nothing is taken.

        A negative cost gives back.
        """
        ...

    async def report(
        self, name: str, used: Mapping[str, float], per_second: float, burst: float
    ) -> dict[str, float]:
        """Count what this node has already allowed. Returns what is left of each, negative if overdrawn.

        A key that could not be counted is left out.
        """
        ...


class Signals(Protocol):
    """Typing, receipts and changed settings: published to every node, not stored. Lossy."""

    @property
    def dropped(self) -> int:
        """How many signals did not reach the other nodes."""
        ...

    def publish(self, signal: Signal) -> None:
        """Call every subscriber of its kind once: on this node before it returns, on others soon.

        Signals of one node arrive in the order of its calls. Never waits: signals that cannot be sent in time
        are dropped for the other nodes.
        """
        ...

    def subscribe(self, kind: type[SomeSignal], receive: Callable[[SomeSignal], None]) -> Callable[[], None]:
        """Receive every signal of a kind from now on. Returns a function that unsubscribes."""
        ...


class Leases(Protocol):
    """Who may do a thing that one node at a time does. A lease ends by itself unless its holder renews it."""

    async def hold(self, name: str, holder: str, seconds: float) -> bool | None:
        """Take or renew: True if the holder has the lease for so long, counted from before the call.

        False: another holder has it. None: the engine cannot be reached, and nobody can say. As long as the
        engine keeps its data, no two holders have the same lease at once.
        """
        ...

    async def release(self, name: str, holder: str) -> None:
        """Give a lease back before its end. Nothing happens if another holder has it."""
        ...


class JobRecords(Protocol):
    """What the nodes say of their jobs: one record for each `JobRecord.key`. Lossy."""

    async def put(self, records: Sequence[JobRecord]) -> None:
        """Replace the records of these keys, for `NODE_RECORD_SECONDS` or `CLUSTER_RECORD_SECONDS`."""
        ...

    async def all(self) -> list[JobRecord] | None:
        """Every record that is kept, by key; None if the engine cannot be reached."""
        ...

    async def remove(self, keys: Sequence[str]) -> None:
        """Forget these records: their node is shutting down."""
        ...


class Ephemeral(Protocol):
    """One engine. `is_shared`: whether several processes share its state."""

    is_shared: bool
    nodes: Nodes
    registry: Registry
    interests: Interests
    rates: Rates
    signals: Signals
    leases: Leases
    job_records: JobRecords

    @property
    def available(self) -> bool:
        """Whether it can be reached. If not, it answers with what this node knows by itself."""
        ...

    async def start(self) -> None:
        """Subscribe to changes. Returns at once, even when the engine cannot be reached."""
        ...

    async def close(self) -> None:
        """Close connections. Leases stay until they expire."""
        ...
