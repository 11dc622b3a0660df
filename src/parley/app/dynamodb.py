"""The DynamoDB engine that a configuration asks for. Imported only where it is configured."""

from __future__ import annotations

import random
from collections.abc import Mapping

from parley.app.allocators import IN_STORE, make_allocator
from parley.clock import Clock
from parley.config import Config
from parley.ids import Ids
from parley.store.dynamodb.allocator import DynamoAllocator
from parley.store.dynamodb.append import MESSAGES_PER_TRANSACTION_MAX
from parley.store.dynamodb.driver import DEADLINE_SECONDS, Dynamo
from parley.store.dynamodb.schema import check_tables
from parley.store.dynamodb.store import DynamoStore
from parley.store.ports import APPEND_SECONDS_MAX
from parley.telemetry import Metrics
from parley.testing import dynamodb_faults, faults


def make_client(
    config: Config,
    metrics: Metrics | None,
    environment: Mapping[str, str],
    deadline_seconds: float = DEADLINE_SECONDS,
) -> Dynamo:
    settings = config.dynamodb
    return Dynamo(
        settings.endpoint,
        settings.region,
        prefix=settings.prefix,
        metrics=metrics,
        faults=dynamodb_faults.faults_from(environment),
        deadline_seconds=deadline_seconds,
    )


def own_allocator(dynamo: Dynamo, clock: Clock) -> DynamoAllocator:
    return DynamoAllocator(dynamo, clock=clock, random=random.random)


class DynamoCounters:
    """The tables of a node that only gives numbers."""

    def __init__(
        self, config: Config, metrics: Metrics, clock: Clock, environment: Mapping[str, str]
    ) -> None:
        self._dynamo = make_client(config, metrics, environment)
        self._clock = clock

    def make_allocator(self) -> DynamoAllocator:
        return own_allocator(self._dynamo, self._clock)

    async def open(self) -> None:
        await self._dynamo.open()
        await self._dynamo.check()
        await check_tables(self._dynamo)

    async def close(self) -> None:
        await self._dynamo.close()


def make_dynamo_store(
    config: Config,
    clock: Clock,
    ids: Ids,
    metrics: Metrics,
    environment: Mapping[str, str],
    *,
    beside: bool,
) -> DynamoStore:
    # A client waits: what was throttled for so long is refused as not done, before its outcome is unknown.
    deadline_seconds = DEADLINE_SECONDS if beside else APPEND_SECONDS_MAX
    dynamo = make_client(config, metrics, environment, deadline_seconds)
    is_atomic = config.store.sequencing == "atomic"
    return DynamoStore(
        dynamo,
        clock=clock,
        ids=ids,
        metrics=metrics,
        allocator=None if is_atomic else make_allocator(config, clock, lambda: own_allocator(dynamo, clock)),
        counters_elsewhere=not is_atomic and config.store.allocator not in IN_STORE,
        publishes=bool(config.kafka.brokers),
        drafts_max=faults.batch_max_from(environment, MESSAGES_PER_TRANSACTION_MAX),
        fault_point=faults.fault_point_in_store({} if beside else environment),
    )
