"""Nodes on DynamoDB whose news goes through Kafka, as a server has it, with a broker that can go away.

async with world("atomic", 2, publishes=True) as (node, other), on_kafka(node, other) as (here, there):
    here.sink.is_away = True
    await here.send("acknowledged all the same")
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from parley.bus.events import PERSISTED, Record
from parley.bus.kafka.bus import KafkaBus, KafkaSink
from parley.bus.kafka.feed import Confirmed, KafkaFeed
from parley.bus.publisher import NotPublished, Publisher
from parley.clock import wall_clock
from parley.config import KafkaConfig
from parley.model import Appended, Persisted
from parley.sending.pending import PendingSends
from parley.sending.sender import LocalSender
from parley.telemetry import Metrics
from tests.contracts.acting import message
from tests.contracts.buses import fresh_topics
from tests.contracts.dynamodb_world import Node
from tests.fakes import KEYS
from tests.waiting import eventually

HEARD_SECONDS_MAX = 20.0


class CutSink(KafkaSink):
    """Kafka itself; while `is_away`, nothing that is sent arrives."""

    is_away = False
    failures = 0

    async def send(self, partition: int, records: list[Record]) -> None:
        if self.is_away:
            self.failures += 1
            raise NotPublished("no broker answers")
        await super().send(partition, records)


class BusNode:
    """What stands above a node's store: the way in, the bus, and a listener."""

    def __init__(self, node: Node, name: str, kafka: KafkaConfig, *, waits: bool) -> None:
        topic, metrics = PERSISTED.name_in(kafka), Metrics(wall_clock)
        self.node = node
        self.news: list[Persisted] = []
        self.sink = CutSink(kafka, topic, KEYS)
        publisher = Publisher(
            log=node.log,
            outbox=node.store.outbox,
            sink=self.sink,
            metrics=metrics,
            node=name,
            clock=wall_clock,
            chance=random.Random(7).random,
        )
        self._name = name
        self._feed = KafkaFeed(kafka, topic, KEYS, metrics, random.Random(7).random)
        self.bus = KafkaBus(self.sink, publisher)
        self.bus.subscribe(self)
        confirm = publisher.confirm if waits else None
        self.sending = LocalSender(
            node.log, self.bus, PendingSends(), metrics, node.store.batching, confirm=confirm
        )

    async def send(self, content: str) -> Appended:
        return await self.sending.send(message(self.node.chat, self.node.ann, content))

    async def hear_all(self) -> None:
        """In a group of its own, as a router that brings everything of other nodes to this one."""
        await self._feed.route(f"routing to {self._name}", self._route, wall_clock)

    async def _route(self, news: list[Persisted]) -> Confirmed:
        self.persisted([item for item in news if item.told_by != self._name])
        confirmed: Confirmed = asyncio.get_running_loop().create_future()
        confirmed.set_result(None)
        return confirmed

    def persisted(self, news: list[Persisted]) -> None:
        self.news += news

    def joined(self, *_: object) -> None:
        """Not asked for here."""

    def sessions_ended(self, *_: object) -> None:
        """Not asked for here."""

    def sequences(self) -> list[int]:
        """What was heard, in its order."""
        return [stored.sequence for item in self.news for stored in item.positions]

    async def heard_up_to(self, sequence: int) -> list[int]:
        """Wait until a position is heard of; all that was heard."""
        await eventually(lambda: sequence in self.sequences(), HEARD_SECONDS_MAX)
        return self.sequences()


@asynccontextmanager
async def on_kafka(*nodes: Node, waits: bool = False) -> AsyncIterator[list[BusNode]]:
    """These nodes with a bus of their own on Kafka. `waits`: acks wait for it (`bus.ack = "published"`)."""
    kafka = await fresh_topics(partitions=1)
    made = [BusNode(node, f"node {n}", kafka, waits=waits) for n, node in enumerate(nodes)]
    hearing: list[asyncio.Task[None]] = []
    try:
        for each in made:
            await each.bus.start()
            each.sending.start()
            hearing.append(asyncio.create_task(each.hear_all()))
        yield made
    finally:
        for task in hearing:
            task.cancel()
        await asyncio.gather(*hearing, return_exceptions=True)
        for each in made:
            each.sink.is_away = False
            await each.sending.stop()
            await each.bus.stop()
