"""The `Feed` port on Kafka: a consumer group over `messages.persisted`.

The consumer is polled all the time, whatever its handlers do: one that does not poll is put out of its group.
What was fetched waits in a share per partition, where one worker hands it on; a share that is full pauses its
partition. Offsets are committed after the handler has returned, a few times a second, and never for a
partition that has gone to another member.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError

from parley.bus.kafka.connecting import options
from parley.bus.kafka.member import Member
from parley.bus.ports import Handle
from parley.clock import MS_PER_SECOND
from parley.config import Kafka
from parley.core.backoff import backoff_ms
from parley.telemetry import Metrics

SESSION_MS = 10_000
REBALANCE_MS_MAX = 30_000
FETCH_BYTES_MAX = 256 * 1024
RETRY_MS_MAX = 8_000

log = structlog.get_logger("parley.kafka")


class KafkaFeed:
    """`settings` go to the consumer as they are, over what it has by itself."""

    def __init__(
        self, kafka: Kafka, topic: str, metrics: Metrics, chance: Callable[[], float], **settings: Any
    ) -> None:
        self._kafka = kafka
        self._topic = topic
        self._metrics = metrics
        self._chance = chance
        self._settings = settings

    async def consume(self, group: str, handle: Handle) -> None:
        attempt = 0
        while True:
            member = Member(self._consumer(group), self._topic, group, handle, self._chance)
            self._metrics.consumer_lags[group] = member.lag
            try:
                await member.run()
            except KafkaError as error:
                log.warning("a member has left its group", group=group, error=str(error))
            attempt = 0 if member.has_worked else attempt + 1
            await asyncio.sleep(backoff_ms(attempt, self._chance(), RETRY_MS_MAX) / MS_PER_SECOND)

    def _consumer(self, group: str) -> AIOKafkaConsumer:
        settings: dict[str, Any] = {
            "group_id": self._kafka.prefix + group,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS_MAX,
            "max_partition_fetch_bytes": FETCH_BYTES_MAX,
        }
        return AIOKafkaConsumer(**options(self._kafka) | settings | self._settings)
