"""The engine on Redis, as one thing to start and to close."""

from __future__ import annotations

from parley.clock import Clock
from parley.ephemeral.local import LocalRates, LocalRegistry
from parley.ephemeral.ports import DEVICE_LEASE_SECONDS, NODE_LEASE_SECONDS, Nodes, Rates, Registry, Signals
from parley.ephemeral.redis.channels import Channels
from parley.ephemeral.redis.link import Link
from parley.ephemeral.redis.nodes import RedisNodes
from parley.ephemeral.redis.rates import RedisRates
from parley.ephemeral.redis.registry import RedisRegistry
from parley.ephemeral.redis.signals import RedisSignals


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
        self._channels = Channels(self._link)
        here = LocalRegistry(clock, device_lease_seconds)
        self._signals = RedisSignals(self._link, self._channels, prefix)
        self.is_shared = True
        self.nodes: Nodes = RedisNodes(self._link, prefix, node_lease_seconds)
        self.registry: Registry = RedisRegistry(
            self._link, self._channels, here, prefix, device_lease_seconds
        )
        self.rates: Rates = RedisRates(self._link, LocalRates(clock), prefix)
        self.signals: Signals = self._signals

    @property
    def available(self) -> bool:
        return self._link.available

    @property
    def is_listening(self) -> bool:
        """Whether others are heard; not for a while after the start, or while Redis is away."""
        return self._channels.is_listening

    async def start(self) -> None:
        self._channels.start()

    async def close(self) -> None:
        await self._signals.close()
        await self._channels.close()
        await self._link.close()
