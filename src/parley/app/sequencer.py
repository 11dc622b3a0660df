"""A node that only gives numbers: the Sequence Service."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping

from parley.app.dynamodb import make_allocator, make_client
from parley.clock import Clock, wall_clock
from parley.cluster.trust import cluster_keys, server_tls
from parley.config import Config
from parley.errors import ConfigError
from parley.sequencing.service import Sequencer
from parley.store.dynamodb.schema import check_tables
from parley.telemetry import Metrics

NAME_BYTES = 16


class SequencerApp:
    """Listens where `server.host` and `server.port` say; stateless, so any number of them may run."""

    def __init__(
        self, config: Config, *, clock: Clock = wall_clock, environment: Mapping[str, str] = os.environ
    ) -> None:
        if config.store.allocator == "sequencer":
            raise ConfigError(
                'a sequencer needs store.allocator = "dynamodb" or "redis": it cannot ask another sequencer'
            )
        cluster = config.cluster
        metrics = Metrics(clock)
        self._dynamo = make_client(config, metrics, environment)
        self._needs_tables = config.store.allocator == "dynamodb"
        self._allocator = make_allocator(config, self._dynamo, clock)
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
            await self._dynamo.open()
            await self._dynamo.check()
            await check_tables(self._dynamo)
        return await self._sequencer.start()

    def reload(self) -> None:
        """It has no certificate."""

    async def stop(self) -> None:
        await self._sequencer.stop()
        await self._allocator.close()
        await self._dynamo.close()
