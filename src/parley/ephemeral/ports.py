"""The doors to what may be lost. Nothing here is needed to send, to store or to catch up.

An engine that is out of reach raises nothing: it answers with what this node knows by itself, says so in a
metric, and takes up again when it is back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct


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
    """Which nodes are alive. Each holds a lease and renews it."""

    async def announce(self, node: Node) -> None:
        """This node is alive for another lease."""
        ...

    async def withdraw(self, node_id: str) -> None:
        """This node is going away now."""
        ...

    async def alive(self) -> list[Node]:
        """Every node whose lease has not run out, this one included; the last known if unknown."""
        ...


class Registry(Protocol):
    """Which devices of which person are connected to which node. Leases of 60 s, renewed every 30 s."""

    async def connected(self, user_id: str, device_id: str, node_id: str, now_ms: int) -> None:
        """A device is connected here; also renews its lease. Makes the person present."""
        ...

    async def disconnected(self, user_id: str, device_id: str, node_id: str, now_ms: int) -> None:
        """It is not any more. Forgets only this node's claim: the device may be elsewhere by now."""
        ...

    async def renew(self, held: Sequence[tuple[str, str]], node_id: str, now_ms: int) -> None:
        """Renew the leases of all (user_id, device_id) that are connected here, in few round trips."""
        ...

    async def whereabouts(self, user_ids: Sequence[str]) -> dict[str, dict[str, str]]:
        """For each person who is connected: device_id → node_id."""
        ...

    async def presences(self, user_ids: Sequence[str]) -> list[Presence]:
        """Online while any device holds a lease."""
        ...

    def watch(self, changed: Callable[[Presence], None]) -> Callable[[], None]:
        """Hear of every change of presence, on any node; the answer ends it. Lossy."""
        ...


class Rates(Protocol):
    """How much of an allowance is used, counted over all nodes."""

    async def take(self, name: str, key: str, cost: float, per_second: float, burst: float) -> float:
        """0 when there was enough and it is taken; else the seconds to wait, and nothing is taken."""
        ...

    async def report(
        self, name: str, used: dict[str, float], per_second: float, burst: float
    ) -> dict[str, float]:
        """Count what this node has already allowed; returns what is left of each key (below 0: overdrawn)."""
        ...
