"""The doors to what may be lost. Nothing here is needed to send, to store or to catch up.

An engine that is out of reach raises nothing: it answers with what this node knows by itself, says so in a
metric, and takes up again when it is back. Time is the engine's own, so that the clocks of nodes may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

NODE_LEASE_SECONDS = 6.0
NODE_RENEW_SECONDS = 2.0
DEVICE_LEASE_SECONDS = 60.0
DEVICE_RENEW_SECONDS = 30.0
assert NODE_LEASE_SECONDS > 2 * NODE_RENEW_SECONDS, "one renewal may fail"
assert DEVICE_LEASE_SECONDS >= 2 * DEVICE_RENEW_SECONDS

Device = tuple[str, str]
"""(user_id, device_id)."""


class Node(Struct, frozen=True):
    """A process of the cluster: where its peers reach it, and what it does."""

    node_id: str
    url: str
    roles: tuple[str, ...]


class Presence(Struct, frozen=True):
    """`last_active_ms`: when the person was last known to be there; 0 when that is not known."""

    user_id: str
    is_online: bool
    last_active_ms: int


class Nodes(Protocol):
    """Which nodes are alive. Each holds a lease and renews it every `NODE_RENEW_SECONDS`."""

    async def announce(self, node: Node) -> bool:
        """This node is alive for another lease; False when the engine is out of reach: nobody knows it."""
        ...

    async def withdraw(self, node_id: str) -> None:
        """This node is going away now."""
        ...

    async def alive(self) -> list[Node]:
        """Every node whose lease has not run out, by id; the last known if the engine is out of reach."""
        ...


class Registry(Protocol):
    """Which devices of which person are connected to which node.

    A claim is (device, node). It is a lease of `DEVICE_LEASE_SECONDS`, renewed by what is heard from the
    device, every `DEVICE_RENEW_SECONDS` at most.
    A person is online while any claim on any of their devices holds.
    """

    async def connected(self, devices: Sequence[Device], node_id: str) -> None:
        """These have just connected to this node: each is there now, wherever it was before."""
        ...

    async def disconnected(self, devices: Iterable[Device], node_id: str) -> list[Presence]:
        """They are not any more. Forgets only this node's claims: a device may be elsewhere by now.

        Returns those who went offline by this very call: whoever made it stores when they were last there.
        """
        ...

    async def renew(self, devices: Sequence[Device], node_id: str) -> list[Presence]:
        """These are still connected to this node, also if that had been forgotten.

        Ends whatever has run out, on any node, and tells of it; so it is called even without devices. Returns
        those who went offline by this very call, as `disconnected`.
        """
        ...

    async def whereabouts(self, user_ids: Sequence[str]) -> dict[str, dict[str, str]]:
        """For each person who is connected: device_id → the node it connected to last."""
        ...

    async def presences(self, user_ids: Sequence[str]) -> list[Presence]:
        """One for each, in order."""
        ...

    def watch(self, changed: Callable[[Presence], None]) -> Callable[[], None]:
        """Hear of every change of presence, on any node, once; the answer ends it. Lossy."""
        ...

    def on_return(self, returned: Callable[[], None]) -> Callable[[], None]:
        """Called when claims may have been forgotten: renew all that are held. The answer ends it."""
        ...


class Rates(Protocol):
    """How much of an allowance is used, counted over all nodes in token buckets."""

    async def take(self, name: str, key: str, cost: float, per_second: float, burst: float) -> int:
        """0 when there was enough and it is taken; else the milliseconds to wait, and nothing is taken.

        A cost below 0 gives back.
        """
        ...

    async def report(
        self, name: str, used: Mapping[str, float], per_second: float, burst: float
    ) -> dict[str, float]:
        """Count what this node has already allowed; returns what is left of each (below 0: overdrawn).

        Nothing is returned for a key that could not be counted.
        """
        ...


class Signals(Protocol):
    """What people notice of each other right now, told to every node and kept by none. Lossy."""

    @property
    def dropped(self) -> int:
        """How many were not told to other nodes, because these could not be reached in time."""
        ...

    def tell(self, signal: bytes) -> None:
        """Everybody who listens hears it once, on this node too; those of one node in the order of its calls.

        Never waits: what cannot be sent in time is dropped for the other nodes.
        """
        ...

    def hear(self, heard: Callable[[bytes], None]) -> Callable[[], None]:
        """Hear every signal from now on; the answer ends it."""
        ...


class Ephemeral(Protocol):
    """One engine. `is_shared`: whether other processes see the same."""

    is_shared: bool
    nodes: Nodes
    registry: Registry
    rates: Rates
    signals: Signals

    @property
    def available(self) -> bool:
        """Whether it is in reach; what it answers otherwise is what this node knows by itself."""
        ...

    async def start(self) -> None:
        """Begin to hear of changes; returns at once, also when the engine is out of reach."""
        ...

    async def close(self) -> None:
        """Let go of connections; nothing is withdrawn by it."""
        ...
