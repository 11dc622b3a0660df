"""A node that only gives numbers: the Sequence Service."""

from __future__ import annotations

import os
from collections.abc import Mapping

from parley.app.shared import Numbers, dynamo_from
from parley.clock import Clock, wall_clock
from parley.config import Config
from parley.errors import ConfigError
from parley.sequencing.service import Sequencer
from parley.store.dynamodb.schema import check_tables
from parley.telemetry import Metrics


class SequencerApp:
    """Listens where `server.host` and `server.port` say; stateless, so any number of them may run."""

    def __init__(
        self, config: Config, *, clock: Clock = wall_clock, environment: Mapping[str, str] = os.environ
    ) -> None:
        if config.store.allocator == "sequencer":
            raise ConfigError(
                'a sequencer needs store.allocator = "dynamodb" or "redis": it cannot ask another sequencer'
            )
        metrics = Metrics(clock)
        self._dynamo = dynamo_from(config, metrics, environment)
        self._needs_tables = config.store.allocator == "dynamodb"
        self._numbers = Numbers(config, self._dynamo, clock)
        self._sequencer = Sequencer(
            self._numbers.allocator,
            host=config.server.host,
            port=config.server.port,
            secret=config.cluster.secret,
            clock=clock,
            metrics=metrics,
        )

    async def start(self) -> int:
        if self._needs_tables:
            await self._dynamo.open()
            await self._dynamo.check()
            await check_tables(self._dynamo)
        return await self._sequencer.start()

    async def stop(self) -> None:
        await self._sequencer.stop()
        await self._numbers.close()
        await self._dynamo.close()
