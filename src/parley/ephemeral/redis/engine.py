"""The engine on Redis, as one thing to start and to close."""

from __future__ import annotations

from parley.clock import Clock
from parley.ephemeral.local import LocalRates, LocalRegistry
from parley.ephemeral.ports import DEVICE_LEASE_SECONDS, NODE_LEASE_SECONDS, Nodes, Rates, Registry
from parley.ephemeral.redis.link import Link
from parley.ephemeral.redis.nodes import RedisNodes
from parley.ephemeral.redis.rates import RedisRates
from parley.ephemeral.redis.registry import RedisRegistry


class RedisEphemeral:
    """`prefix` stands before every key and channel; `clock` is for what this node knows by itself."""

    def __init__(
        self,
        url: str,
        clock: Clock,
        *,
        prefix: str = "",
        node_lease_seconds: float = NODE_LEASE_SECONDS,
        device_lease_seconds: float = DEVICE_LEASE_SECONDS,
    ) -> None:
        self._link = Link(url)
        registry = RedisRegistry(
            self._link, LocalRegistry(clock, device_lease_seconds), prefix, device_lease_seconds
        )
        self._channel = registry.channel
        self.is_shared = True
        self.nodes: Nodes = RedisNodes(self._link, prefix, node_lease_seconds)
        self.registry: Registry = registry
        self.rates: Rates = RedisRates(self._link, LocalRates(clock), prefix)

    @property
    def available(self) -> bool:
        return self._link.available

    @property
    def is_listening(self) -> bool:
        """Whether changes of presence are heard; not for a while after the start, or while Redis is away."""
        return self._channel.is_listening

    async def start(self) -> None:
        self._channel.start()

    async def close(self) -> None:
        await self._channel.close()
        await self._link.close()
