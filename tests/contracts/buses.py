"""The buses under contract: each seen from two places, which are one where a bus has but one process."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple

from parley.app.kafka import TOPICS
from parley.bus.embedded import EmbeddedBus
from parley.bus.events import PERSISTED
from parley.bus.kafka.admin import ensure_topics
from parley.bus.kafka.bus import KafkaBus, KafkaSink
from parley.bus.kafka.feed import Confirmed, KafkaFeed
from parley.bus.ports import Bus
from parley.bus.publisher import Publisher
from parley.clock import wall_clock
from parley.config import KafkaConfig
from parley.model import Head, Persisted
from parley.telemetry import Metrics
from tests.fakes import KEYS
from tests.harness.scripted_log import ScriptedLog, ScriptedOutbox
from tests.services import fresh_prefix, kafka_brokers

PARTITIONS = 3


class Places(NamedTuple):
    """Where a test publishes and where it listens, and the log that everything is in."""

    here: Bus
    there: Bus
    log: ScriptedLog


@asynccontextmanager
async def embedded() -> AsyncIterator[Places]:
    bus = EmbeddedBus()
    yield Places(bus, bus, ScriptedLog())


async def fresh_topics(partitions: int = PARTITIONS) -> KafkaConfig:
    """Topics of a test's own."""
    brokers = await asyncio.to_thread(kafka_brokers)
    kafka = KafkaConfig(brokers=brokers, prefix=fresh_prefix(), partitions=partitions)
    await ensure_topics(kafka, TOPICS)
    return kafka


class NoticeSender:
    """Passes on what is in no log, as the cluster's own does."""

    def __init__(self, elsewhere: Bus) -> None:
        self._elsewhere = elsewhere

    def persisted(self, news: list[Persisted]) -> None:
        """The bus itself brings this to everybody."""

    def joined(self, chat_id: str, head: Head, user_ids: list[str]) -> None:
        self._elsewhere.publish_joined(chat_id, head, user_ids)

    def sessions_ended(self, session_ids: list[str]) -> None:
        self._elsewhere.publish_sessions_ended(session_ids)


class Node:
    """A process with a bus on Kafka."""

    def __init__(self, kafka: KafkaConfig, name: str, log: ScriptedLog) -> None:
        self.name = name
        topic = PERSISTED.name_in(kafka)
        self.metrics = Metrics(wall_clock)
        self.outbox = ScriptedOutbox(log)
        self.sink = KafkaSink(kafka, topic, KEYS)
        self.publisher = Publisher(
            log=log,
            outbox=self.outbox,
            sink=self.sink,
            metrics=self.metrics,
            node=name,
            clock=wall_clock,
            chance=random.Random(7).random,
        )
        self.feed = KafkaFeed(kafka, topic, KEYS, self.metrics, random.Random(7).random)
        self.bus = KafkaBus(self.sink, self.publisher)

    async def hear_all(self) -> None:
        """In a group of its own, as a router that brings everything of other nodes to this one."""
        await self.feed.route(f"routing to {self.name}", self._route, wall_clock)

    async def _route(self, news: list[Persisted]) -> Confirmed:
        """What other nodes have published goes to this node's listeners, and not to Kafka again."""
        EmbeddedBus.publish(self.bus, [item for item in news if item.told_by != self.name])
        confirmed: Confirmed = asyncio.get_running_loop().create_future()
        confirmed.set_result(None)
        return confirmed

    def told(self, name: str) -> float:
        """A metric as an operator sees it."""
        return self.metrics.registry.get_sample_value(name) or 0.0

    def unproven_events(self) -> float:
        return self.metrics.registry.get_sample_value("parley_unproven_total", {"what": "event"}) or 0.0


@asynccontextmanager
async def node(kafka: KafkaConfig, name: str, log: ScriptedLog, hears: bool = True) -> AsyncIterator[Node]:
    """`hears`: its listeners hear what other nodes publish."""
    made = Node(kafka, name, log)
    await made.bus.start()
    hearing = [asyncio.create_task(made.hear_all())] if hears else []
    try:
        yield made
    finally:
        await made.bus.stop()
        for task in hearing:
            task.cancel()
        await asyncio.gather(*hearing, return_exceptions=True)


@asynccontextmanager
async def on_kafka() -> AsyncIterator[Places]:
    kafka, log = await fresh_topics(), ScriptedLog()
    async with node(kafka, "one", log) as one, node(kafka, "two", log) as two:
        one.bus.subscribe(NoticeSender(two.bus))
        yield Places(one.bus, two.bus, log)


BUSES: dict[str, Callable[[], AbstractAsyncContextManager[Places]]] = {
    "embedded": embedded,
    "kafka": on_kafka,
}


def sequences(heard: list[object], chat_id: str) -> list[int]:
    """The positions of one chat in what was heard."""
    news = [item for item in heard if isinstance(item, Persisted) and item.chat_id == chat_id]
    return [stored.sequence for item in news for stored in item.positions]
