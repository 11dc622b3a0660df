"""News through Kafka, and the outbox behind it. Imported only where configured."""

from __future__ import annotations

import random
from typing import cast

import structlog

from parley.app.engines import Job, Store
from parley.bus.kafka.admin import check_topics
from parley.bus.kafka.bus import KafkaBus
from parley.bus.kafka.live import LiveReader
from parley.bus.kafka.producer import KafkaSink
from parley.bus.listeners import Listeners
from parley.bus.ports import Confirm
from parley.bus.publisher import CONFIRM_SECONDS_MAX, Publisher
from parley.bus.sweeper import Sweeper
from parley.bus.topics import PERSISTED, topic_name
from parley.chats.sending import SEND_SECONDS_MAX
from parley.clock import Clock
from parley.config import Config
from parley.errors import ConfigError
from parley.gateway.hub import Hub
from parley.store.ports import Outbox
from parley.telemetry import Metrics

assert CONFIRM_SECONDS_MAX < SEND_SECONDS_MAX, "a bus that is late is told, not guessed"

log = structlog.get_logger("parley.app")


class KafkaBusEngine:
    def __init__(
        self, config: Config, node_id: str, store: Store, hub: Hub, metrics: Metrics, clock: Clock
    ) -> None:
        if not hasattr(store, "outbox"):
            raise ConfigError('kafka.brokers needs a store that nodes share: set store.engine = "dynamodb"')
        outbox = cast(Outbox, store.outbox)
        self._config = config
        topic = topic_name(config.kafka, PERSISTED)
        sink = KafkaSink(config.kafka, topic)
        publisher = Publisher(store.log, outbox, sink, metrics, node_id, clock, random.random)
        own = Listeners()
        live = None
        if "gateway" in config.cluster.roles:
            live = LiveReader(config.kafka, topic, node_id, hub.hears, own.persisted, metrics)
        self.bus = KafkaBus(sink, publisher, own, live)
        self.confirm: Confirm | None = publisher.confirm if config.bus.ack == "published" else None
        self._sweeper = Sweeper(outbox, store.log, publisher, metrics, clock)

    async def start(self) -> None:
        for warning in await check_topics(self._config.kafka):
            log.warning("Kafka could lose events", reason=warning)
        await self.bus.start()

    def jobs(self) -> list[Job]:
        return [self._sweeper.run()] if "delivery" in self._config.cluster.roles else []

    async def stop(self) -> None:
        await self.bus.stop()
