"""Who gives the numbers of `two_phase` on a store that nodes share."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from parley.clock import Clock
from parley.cluster.calls import SignedCalls
from parley.cluster.trust import client_tls, cluster_keys
from parley.config import Config
from parley.errors import ConfigError
from parley.sequencing.batches import CoalescingAllocator
from parley.sequencing.redis import RedisAllocator
from parley.sequencing.remote import RemoteAllocator
from parley.store.ports import Allocator

IN_STORE = ("store", "dynamodb")
"""Names of the allocator on the store's own counters."""


def make_allocator(config: Config, clock: Clock, make_own: Callable[[], Allocator]) -> Allocator:
    """`make_own`: the allocator on the counters of the store itself."""
    match config.store.allocator:
        case "redis":
            if not config.redis.url:
                raise ConfigError('store.allocator = "redis" needs redis.url')
            return CoalescingAllocator(RedisAllocator(config.redis.url, prefix=config.redis.prefix))
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
        case _:
            return CoalescingAllocator(make_own())
