"""The buses under contract: each seen from two places, which are one where a bus has but one process."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple

from parley.bus.embedded import EmbeddedBus
from parley.bus.kafka.admin import ensure_topics
from parley.bus.kafka.bus import KafkaBus
from parley.bus.kafka.live import LiveReader
from parley.bus.kafka.producer import KafkaSink
from parley.bus.listeners import Listeners
from parley.bus.ports import Bus
from parley.bus.publisher import Publisher
from parley.bus.topics import PERSISTED, topic_name
from parley.clock import wall_clock
from parley.config import Kafka
from parley.model import Head, Persisted
from parley.telemetry import Metrics
from tests.services import fresh_prefix, kafka_brokers
from tests.unit.bus.world import FakeLog, FakeOutbox

PARTITIONS = 3


class Places(NamedTuple):
    """Where a test publishes and where it listens, and the log that everything is in."""

    here: Bus
    there: Bus
    log: FakeLog


@asynccontextmanager
async def embedded() -> AsyncIterator[Places]:
    bus = EmbeddedBus()
    yield Places(bus, bus, FakeLog())


async def fresh_topics(partitions: int = PARTITIONS) -> Kafka:
    """Topics of a test's own."""
    brokers = await asyncio.to_thread(kafka_brokers)
    kafka = Kafka(brokers=brokers, prefix=fresh_prefix(), partitions=partitions)
    await ensure_topics(kafka)
    return kafka


class Herald:
    """Passes on what is in no log, as the cluster's own does."""

    def __init__(self, elsewhere: Listeners) -> None:
        self._elsewhere = elsewhere

    def persisted(self, news: list[Persisted]) -> None:
        """The bus itself brings this to everybody."""

    def joined(self, chat_id: str, head: Head, user_ids: list[str]) -> None:
        self._elsewhere.joined(chat_id, head, user_ids)

    def sessions_ended(self, session_ids: list[str]) -> None:
        self._elsewhere.sessions_ended(session_ids)


class Node:
    """A process with a bus on Kafka."""

    def __init__(self, kafka: Kafka, name: str, log: FakeLog, wants: Callable[[str], bool]) -> None:
        topic = topic_name(kafka, PERSISTED)
        self.metrics = Metrics(wall_clock)
        self.outbox = FakeOutbox(log)
        self.sink = KafkaSink(kafka, topic)
        self.publisher = Publisher(
            log, self.outbox, self.sink, self.metrics, name, wall_clock, random.Random(7).random
        )
        own = Listeners()
        live = LiveReader(kafka, topic, name, wants, own.persisted, self.metrics)
        self.bus = KafkaBus(self.sink, self.publisher, own, live)

    def told(self, name: str) -> float:
        """A metric as an operator sees it."""
        return self.metrics.registry.get_sample_value(name) or 0.0


@asynccontextmanager
async def node(
    kafka: Kafka, name: str, log: FakeLog, wants: Callable[[str], bool] = lambda _: True
) -> AsyncIterator[Node]:
    made = Node(kafka, name, log, wants)
    await made.bus.start()
    try:
        yield made
    finally:
        await made.bus.stop()


@asynccontextmanager
async def on_kafka() -> AsyncIterator[Places]:
    kafka, log = await fresh_topics(), FakeLog()
    async with node(kafka, "one", log) as one, node(kafka, "two", log) as two:
        one.bus.subscribe(Herald(two.bus.own))
        yield Places(one.bus, two.bus, log)


BUSES: dict[str, Callable[[], AbstractAsyncContextManager[Places]]] = {
    "embedded": embedded,
    "kafka": on_kafka,
}


def sequences(heard: list[object], chat_id: str) -> list[int]:
    """The positions of one chat in what was heard."""
    news = [item for item in heard if isinstance(item, Persisted) and item.chat_id == chat_id]
    return [stored.sequence for item in news for stored in item.positions]
