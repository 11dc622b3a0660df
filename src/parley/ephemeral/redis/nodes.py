"""Which nodes are alive: one hash, in which each node keeps its own field fresh."""

from __future__ import annotations

import asyncio

import msgspec

from parley.clock import MS_PER_SECOND
from parley.ephemeral.ports import NODE_LEASE_SECONDS, Node
from parley.ephemeral.redis import scripts
from parley.ephemeral.redis.link import Link

decode_node = msgspec.json.Decoder(Node).decode


class RedisNodes:
    """Keeps the last list: what Redis may have forgotten is listed for one lease more after it is back."""

    def __init__(self, link: Link, prefix: str = "", lease_seconds: float = NODE_LEASE_SECONDS) -> None:
        self._link = link
        self._key = f"{prefix}nodes"
        self._lease_seconds = lease_seconds
        self._announce = link.script(scripts.ANNOUNCE)
        self._alive = link.script(scripts.ALIVE)
        self._known: dict[str, Node] = {}
        self._before: dict[str, Node] = {}
        self._before_until = 0.0
        link.on_return(self._returned)

    def _returned(self) -> None:
        """Each node is back in the list with its next announcement."""
        self._before = dict(self._known)
        self._before_until = asyncio.get_running_loop().time() + self._lease_seconds

    async def announce(self, node: Node) -> bool:
        lease_ms = round(self._lease_seconds * MS_PER_SECOND)
        values = (node.node_id, lease_ms, msgspec.json.encode(node).decode())

        async def announce() -> bool:
            await self._announce([self._key], values)
            return True

        return await self._link.call(announce) is True

    async def withdraw(self, node_id: str) -> None:
        self._before.pop(node_id, None)
        self._known.pop(node_id, None)
        await self._link.call(lambda: self._link.client.hdel(self._key, node_id))

    async def alive(self) -> list[Node]:
        found = await self._link.call(self._read)
        if found is not None:
            self._known = found
        if asyncio.get_running_loop().time() < self._before_until:
            self._known = {**self._before, **self._known}
        return [node for _, node in sorted(self._known.items())]

    async def _read(self) -> dict[str, Node]:
        nodes = [decode_node(node) for node in await self._alive([self._key], [])]
        return {node.node_id: node for node in nodes}
