"""The Cassandra engine that a configuration asks for. Imported only where it is configured."""

from __future__ import annotations

import random
import ssl
from collections.abc import Mapping

from parley.app.allocators import IN_STORE, make_allocator
from parley.clock import Clock
from parley.config import CassandraConfig, Config
from parley.errors import ConfigError
from parley.ids import Ids
from parley.store.cassandra.allocator import CassandraAllocator
from parley.store.cassandra.append import MESSAGES_PER_BATCH_MAX
from parley.store.cassandra.client import DEADLINE_SECONDS, Cassandra
from parley.store.cassandra.connection import Address, CassandraConnection
from parley.store.cassandra.schema import check_tables
from parley.store.cassandra.store import CassandraStore
from parley.store.ports import APPEND_SECONDS_MAX
from parley.telemetry import Metrics
from parley.testing import faults


def make_client(config: Config, deadline_seconds: float = DEADLINE_SECONDS) -> Cassandra:
    settings = config.cassandra
    if not settings.contact_points:
        raise ConfigError("cassandra.contact_points is empty: name a host of the cluster")
    address = Address(
        contact_points=tuple(settings.contact_points),
        port=settings.port,
        keyspace=settings.keyspace,
        local_dc=settings.local_dc,
        username=settings.username,
        password=settings.password,
        tls=make_tls(settings),
    )
    return Cassandra(CassandraConnection(address), deadline_seconds=deadline_seconds)


def make_tls(settings: CassandraConfig) -> ssl.SSLContext | None:
    """A node's certificate must come from `ca`, or whom this machine trusts, and name the node's address.

    Names may only be left unchecked where the authorities are the cluster's own.
    """
    if settings.tls == "off" and not settings.ca:
        return None
    if settings.tls == "any_name" and not settings.ca:
        raise ConfigError(
            'cassandra.tls = "any_name" needs cassandra.ca: else anybody\'s certificate would do'
        )
    try:
        context = ssl.create_default_context(cafile=settings.ca or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cassandra.ca: {settings.ca} cannot be used: {error}") from error
    context.check_hostname = settings.tls != "any_name"
    return context


def own_allocator(cassandra: Cassandra, clock: Clock) -> CassandraAllocator:
    return CassandraAllocator(cassandra, clock=clock, random=random.random)


class CassandraCounters:
    """The tables of a node that only gives numbers."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._cassandra = make_client(config)
        self._clock = clock

    def make_allocator(self) -> CassandraAllocator:
        return own_allocator(self._cassandra, self._clock)

    async def open(self) -> None:
        await self._cassandra.connect()
        await check_tables(self._cassandra)

    async def close(self) -> None:
        await self._cassandra.close()


def make_cassandra_store(
    config: Config,
    clock: Clock,
    ids: Ids,
    metrics: Metrics,
    environment: Mapping[str, str],
    *,
    beside: bool,
) -> CassandraStore:
    # A client waits: what could not be written for so long is refused, before its outcome is unknown.
    cassandra = make_client(config, DEADLINE_SECONDS if beside else APPEND_SECONDS_MAX)
    is_atomic = config.store.sequencing == "atomic"
    local_dc, replicas = config.cassandra.local_dc, config.cassandra.replicas
    return CassandraStore(
        cassandra,
        clock=clock,
        ids=ids,
        metrics=metrics,
        allocator=None
        if is_atomic
        else make_allocator(config, clock, lambda: own_allocator(cassandra, clock)),
        counters_elsewhere=not is_atomic and config.store.allocator not in IN_STORE,
        publishes=bool(config.kafka.brokers),
        replication=f"{{'class': 'NetworkTopologyStrategy', '{local_dc}': {replicas}}}",
        drafts_max=faults.batch_max_from(environment, MESSAGES_PER_BATCH_MAX),
        fault_point=faults.fault_point_in_store({} if beside else environment),
    )
