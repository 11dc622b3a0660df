"""The engine on Redis: its parts, started and closed together."""

from __future__ import annotations

from parley.clock import Clock
from parley.core.cluster_keys import ClusterKeys
from parley.ephemeral.local import LocalRates, LocalRegistry
from parley.ephemeral.ports import (
    DEVICE_LEASE_SECONDS,
    NODE_LEASE_SECONDS,
    TENURE_LEASE_SECONDS,
    Interests,
    JobRecords,
    Leases,
    Nodes,
    Rates,
    Registry,
    Signals,
)
from parley.ephemeral.redis.client import PassedOver, RedisChannels, RedisClient
from parley.ephemeral.redis.interests import RedisInterests
from parley.ephemeral.redis.jobs import RedisJobRecords, RedisLeases
from parley.ephemeral.redis.nodes import RedisNodes
from parley.ephemeral.redis.rates import RedisRates
from parley.ephemeral.redis.registry import RedisRegistry
from parley.ephemeral.redis.signals import RedisSignals


class RedisEphemeral:
    """`keys` verify what others wrote. `prefix` begins every key and channel.

    `clock` is for the local fallback and for the age of messages. `passed_over` is called with the kind of a
    message that was not valid.
    """

    def __init__(
        self,
        url: str,
        keys: ClusterKeys,
        clock: Clock,
        *,
        prefix: str = "",
        node_lease_seconds: float = NODE_LEASE_SECONDS,
        device_lease_seconds: float = DEVICE_LEASE_SECONDS,
        tenure_lease_seconds: float = TENURE_LEASE_SECONDS,
        passed_over: PassedOver = lambda _: None,
    ) -> None:
        self._client = RedisClient(url)
        self._channels = RedisChannels(self._client)
        local = LocalRegistry(clock, device_lease_seconds)
        self._signals = RedisSignals(self._client, self._channels, keys, clock, prefix, passed_over)
        self.is_shared = True
        self.nodes: Nodes = RedisNodes(self._client, keys, clock, prefix, node_lease_seconds, passed_over)
        self.registry: Registry = RedisRegistry(
            self._client, self._channels, local, prefix, device_lease_seconds
        )
        self.interests: Interests = RedisInterests(self._client, prefix, tenure_lease_seconds)
        self.rates: Rates = RedisRates(self._client, LocalRates(clock), prefix)
        self.signals: Signals = self._signals
        self.leases: Leases = RedisLeases(self._client, prefix)
        self.job_records: JobRecords = RedisJobRecords(self._client, keys, prefix, passed_over)

    @property
    def available(self) -> bool:
        return self._client.available

    @property
    def is_listening(self) -> bool:
        """Whether it is subscribed to the channels: not at once after the start, nor during an outage."""
        return self._channels.is_listening

    async def start(self) -> None:
        self._channels.start()

    async def close(self) -> None:
        await self._signals.close()
        await self._channels.close()
        await self._client.close()
