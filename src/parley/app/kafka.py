"""News through Kafka, and the outbox behind it. Imported only where configured."""

from __future__ import annotations

import random

import structlog

from parley.bus.drafts import STORE
from parley.bus.events import PERSISTED
from parley.bus.kafka.admin import check_topics, topic_states
from parley.bus.kafka.bus import KafkaBus, KafkaSink
from parley.bus.kafka.delivery_topics import DLQ, RETRIES, KafkaDeliveryTopics
from parley.bus.kafka.feed import KafkaFeed
from parley.bus.ports import Confirm, TopicState
from parley.bus.publisher import CONFIRM_SECONDS_MAX, Publisher
from parley.bus.sweeper import Sweeper
from parley.bus.topics import Topic
from parley.clock import Clock
from parley.config import Config
from parley.core.cluster_keys import ClusterKeys
from parley.core.jobs import Job
from parley.errors import ConfigError, StoreUnavailable
from parley.sending.answers import SEND_SECONDS_MAX
from parley.store.ports import Engine
from parley.telemetry import Metrics
from parley.traces.flight_recorder import FlightRecorder, RecordedOutbox

assert CONFIRM_SECONDS_MAX < SEND_SECONDS_MAX, "a bus that is late is told, not guessed"

TOPICS: tuple[Topic, ...] = (PERSISTED, *RETRIES.values(), DLQ)
"""Every topic that some part of this version always uses. A new worker declares its own next to its code and
adds it here: `parley store init` then makes it, and a node does not start without it."""


def topics_in(config: Config) -> tuple[Topic, ...]:
    """The topics that a server with this configuration uses."""
    return (*TOPICS, STORE) if config.bus.ingest == "bus" else TOPICS


log = structlog.get_logger("parley.app")


class KafkaBusEngine:
    def __init__(
        self,
        *,
        config: Config,
        node_id: str,
        keys: ClusterKeys,
        engine: Engine,
        metrics: Metrics,
        clock: Clock,
        recorder: FlightRecorder,
    ) -> None:
        if engine.outbox is None:
            raise ConfigError(
                'kafka.brokers needs a store that nodes share: set store.engine = "dynamodb" or "cassandra"'
            )
        outbox = RecordedOutbox(engine.outbox, recorder)
        self._config = config
        topic = PERSISTED.name_in(config.kafka)
        sink = KafkaSink(config.kafka, topic, keys)
        self.publisher = publisher = Publisher(
            log=engine.log,
            outbox=outbox,
            sink=sink,
            metrics=metrics,
            node=node_id,
            clock=clock,
            chance=random.random,
        )
        self.feed = KafkaFeed(config.kafka, topic, keys, metrics, random.random)
        self.bus = KafkaBus(sink, publisher)
        self.confirm: Confirm | None = publisher.confirm if config.bus.ack == "published" else None
        self.delivery_topics = KafkaDeliveryTopics(config.kafka, clock)
        self._sweeper = Sweeper(outbox, engine.log, publisher, metrics, clock)

    async def start(self) -> None:
        for warning in await check_topics(self._config.kafka, topics_in(self._config)):
            log.warning("Kafka could lose events", reason=warning)
        await self.bus.start()

    def jobs(self) -> list[Job]:
        return [self._sweeper.job] if "delivery" in self._config.cluster.roles else []

    async def topics(self) -> list[TopicState]:
        names = [topic.name_in(self._config.kafka) for topic in topics_in(self._config)]
        try:
            return await topic_states(self._config.kafka, names)
        except ConfigError as error:
            raise StoreUnavailable(str(error)) from error

    async def stop(self) -> None:
        await self.delivery_topics.stop()
        await self.bus.stop()
