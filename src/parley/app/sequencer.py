"""A node that only gives numbers: the Sequence Service."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from typing import Protocol

from parley.app.allocators import IN_STORE, make_allocator
from parley.clock import Clock, wall_clock
from parley.cluster.trust import cluster_keys, server_tls
from parley.config import Config
from parley.errors import ConfigError
from parley.sequencing.service import Sequencer
from parley.store.ports import Allocator
from parley.telemetry import Metrics

NAME_BYTES = 16


class CounterTables(Protocol):
    """The tables with the counters of a store."""

    def make_allocator(self) -> Allocator: ...

    async def open(self) -> None:
        """ConfigError unless they can be used."""
        ...

    async def close(self) -> None: ...


def make_counters(
    config: Config, metrics: Metrics, clock: Clock, environment: Mapping[str, str]
) -> CounterTables:
    if config.store.engine == "cassandra":
        from parley.app.cassandra import CassandraCounters

        return CassandraCounters(config, clock)
    from parley.app.dynamodb import DynamoCounters

    return DynamoCounters(config, metrics, clock, environment)


class SequencerApp:
    """Listens where `server.host` and `server.port` say; stateless, so any number of them may run."""

    def __init__(
        self, config: Config, *, clock: Clock = wall_clock, environment: Mapping[str, str] = os.environ
    ) -> None:
        if config.store.allocator == "sequencer":
            raise ConfigError(
                'a sequencer needs store.allocator = "store" or "redis": it cannot ask another sequencer'
            )
        cluster = config.cluster
        metrics = Metrics(clock)
        self._counters = make_counters(config, metrics, clock, environment)
        self._needs_tables = config.store.allocator in IN_STORE
        self._allocator = make_allocator(config, clock, self._counters.make_allocator)
        self._sequencer = Sequencer(
            self._allocator,
            host=config.server.host,
            port=config.server.port,
            keys=cluster_keys(cluster, config.server.host),
            name=cluster.node or secrets.token_hex(NAME_BYTES),
            clock=clock,
            metrics=metrics,
            tls=server_tls(cluster),
        )

    async def start(self) -> int:
        if self._needs_tables:
            await self._counters.open()
        return await self._sequencer.start()

    def reload(self) -> None:
        """It has no certificate."""

    async def stop(self) -> None:
        await self._sequencer.stop()
        await self._allocator.close()
        await self._counters.close()
