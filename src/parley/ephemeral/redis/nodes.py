"""Which nodes are alive: one hash, in which each node renews its own field.

A field counts only if a node of this cluster signed it a short time ago: a program that can write to Redis
cannot make nodes send their drafts to another address.
"""

from __future__ import annotations

import asyncio

import msgspec
import structlog
from msgspec import Struct

from parley.clock import MS_PER_SECOND, Clock
from parley.core.cluster_keys import ANNOUNCEMENTS, ClusterKeys
from parley.core.log_limits import LineLimit
from parley.core.node_trust import CALL_AGE_MS_MAX
from parley.ephemeral.ports import NODE_LEASE_SECONDS, Node
from parley.ephemeral.redis import scripts
from parley.ephemeral.redis.client import PassedOver, RedisClient

KEY = "nodes"

log = structlog.get_logger("parley.ephemeral")


class Announcement(Struct, frozen=True):
    """What a node says of itself, and when by its own clock."""

    node: Node
    announced_ms: int


decode_announcement = msgspec.json.Decoder(Announcement).decode


class RedisNodes:
    """Keeps the last list: after an outage, nodes that Redis may have lost stay in it for one lease."""

    def __init__(
        self,
        client: RedisClient,
        keys: ClusterKeys,
        clock: Clock,
        prefix: str = "",
        lease_seconds: float = NODE_LEASE_SECONDS,
        passed_over: PassedOver = lambda _: None,
    ) -> None:
        self._client = client
        self._key = prefix + KEY
        self._ring = keys.ring(ANNOUNCEMENTS, self._key)
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._lease_ms = round(lease_seconds * MS_PER_SECOND)
        self._announce = client.script(scripts.ANNOUNCE)
        self._alive = client.script(scripts.ALIVE)
        self._known: dict[str, Node] = {}
        self._before: dict[str, Node] = {}
        self._before_until = 0.0
        self._lines = LineLimit()
        self._passed_over = passed_over
        client.on_return(self._returned)

    def _returned(self) -> None:
        """Each node returns to the list with its next announcement."""
        self._before = dict(self._known)
        self._before_until = asyncio.get_running_loop().time() + self._lease_seconds

    async def announce(self, node: Node) -> bool:
        data = msgspec.json.encode(Announcement(node, self._clock()))
        values = (node.node_id, self._lease_ms, f"{self._ring.tag(data).hex()} {data.decode()}")

        async def announce() -> bool:
            await self._announce([self._key], values)
            return True

        return await self._client.call(announce) is True

    async def withdraw(self, node_id: str) -> None:
        self._before.pop(node_id, None)
        self._known.pop(node_id, None)
        await self._client.call(lambda: self._client.redis.hdel(self._key, node_id))

    async def alive(self) -> list[Node]:
        found = await self._client.call(self._read)
        if found is not None:
            self._known = found
        if asyncio.get_running_loop().time() < self._before_until:
            self._known = {**self._before, **self._known}
        return [node for _, node in sorted(self._known.items())]

    async def _read(self) -> dict[str, Node]:
        said = [self._proven(value) for value in await self._alive([self._key], [])]
        oldest_first = sorted(filter(None, said), key=lambda one: one.announced_ms)
        return {one.node.node_id: one.node for one in oldest_first}

    def _proven(self, value: bytes) -> Announcement | None:
        """None for what no node of this cluster has said lately."""
        tag, _, data = value.partition(b" ")
        try:
            is_signed = self._ring.accepts(data, bytes.fromhex(tag.decode()))
            said = decode_announcement(data) if is_signed else None
        except (ValueError, msgspec.MsgspecError):
            said = None
        reason = "it is not signed with this cluster's secret"
        if said is not None:
            age_ms = self._clock() - said.announced_ms
            if -CALL_AGE_MS_MAX <= age_ms <= self._lease_ms + CALL_AGE_MS_MAX:
                return said
            reason = "it is old, or the clocks of the two nodes differ"
        self._passed_over("announcement")
        if (more := self._lines.admit(reason, asyncio.get_running_loop().time())) is not None:
            log.warning("announcement passed over", reason=reason, **more)
        return None
