"""The DynamoDB engine that a configuration asks for. Imported only where it is configured."""

from __future__ import annotations

import random
import secrets
from collections.abc import Mapping

from parley.clock import Clock
from parley.cluster.calls import SignedCalls
from parley.cluster.trust import client_tls, cluster_keys
from parley.config import Config
from parley.dynamodb import DEADLINE_SECONDS, Dynamo
from parley.errors import ConfigError
from parley.ids import Ids
from parley.sequencing.batches import CoalescingAllocator
from parley.sequencing.dynamodb import DynamoAllocator
from parley.sequencing.redis import RedisAllocator
from parley.sequencing.remote import RemoteAllocator
from parley.store.dynamodb.append import MESSAGES_PER_TRANSACTION_MAX
from parley.store.dynamodb.store import DynamoStore
from parley.store.ports import APPEND_SECONDS_MAX, Allocator
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


def make_allocator(config: Config, dynamo: Dynamo, clock: Clock) -> Allocator:
    """Who gives the numbers in two_phase."""
    match config.store.allocator:
        case "redis":
            if not config.redis.url:
                raise ConfigError('store.allocator = "redis" needs redis.url')
            return CoalescingAllocator(RedisAllocator(config.redis.url))
        case "sequencer":
            urls = config.cluster.sequencers
            if not urls:
                raise ConfigError('store.allocator = "sequencer" needs cluster.sequencers')
            calls = SignedCalls(
                cluster_keys(config.cluster, config.cluster.host),
                clock=clock,
                random_bytes=secrets.token_bytes,
                tls=client_tls(config.cluster),
            )
            return RemoteAllocator(urls, calls, first=secrets.randbelow(len(urls)))
        case "dynamodb":
            return CoalescingAllocator(DynamoAllocator(dynamo, clock=clock, random=random.random))


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
        allocator=None if is_atomic else make_allocator(config, dynamo, clock),
        counters_elsewhere=not is_atomic and config.store.allocator != "dynamodb",
        publishes=bool(config.kafka.brokers),
        drafts_max=faults.batch_max_from(environment, MESSAGES_PER_TRANSACTION_MAX),
        reach=faults.reach_from({} if beside else environment),
        hold=faults.hold_from(environment),
    )
