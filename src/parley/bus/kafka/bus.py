"""The `Bus` port on Kafka: `publish` calls the listeners of this process, and workers read a topic.

What is in no log (a new chat, ended sessions) does not go to Kafka: the cluster's `NoticeSender`, a listener,
brings it to the other nodes.

The producer is idempotent, and a batch counts only when all replicas have it. The library sends a batch again
until a broker answers, and the broker knows a repetition by its number. Only when the library gives a batch
up is the producer replaced; then a batch may be written twice.

Each record is signed: it is delivered without reading the log, and other programs may write to the topic.
"""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.partitioner import DefaultPartitioner

from parley.bus.embedded import EmbeddedBus
from parley.bus.events import PROOF, Record
from parley.bus.kafka.client import close_producer, options, start_client
from parley.bus.publisher import NotPublished, Publisher
from parley.bus.topics import BATCH_BYTES_MAX
from parley.config import KafkaConfig
from parley.core.cluster_keys import EVENTS, ClusterKeys, KeyRing
from parley.errors import ConfigError
from parley.model import Persisted

BATCH_BYTES_MARGIN = 4 * 1024
"""For what the broker counts as part of a batch beside its records."""

_partition = DefaultPartitioner()


def partition_for(key: bytes, partitions: list[int]) -> int:
    """In which of the partitions of a topic the records of a key are."""
    partition: int = _partition(key, partitions, partitions)
    return partition


class KafkaBus(EmbeddedBus):
    """The bus of this process, whose publisher also writes to Kafka."""

    def __init__(self, sink: KafkaSink, publisher: Publisher) -> None:
        super().__init__()
        self._sink = sink
        self._publisher = publisher

    async def start(self) -> None:
        """ConfigError when no broker can be used."""
        try:
            await self._sink.start()
        except (KafkaError, NotPublished) as error:
            await self.stop()
            raise ConfigError(f"Kafka cannot be used: {error}") from error

    async def stop(self) -> None:
        """Publish what can be published soon, and disconnect."""
        await self._publisher.stop()
        await self._sink.stop()

    def publish(self, news: list[Persisted]) -> None:
        self._publisher.publish(news)
        super().publish(news)


class KafkaSink:
    """Writes the publisher's records to one topic."""

    def __init__(self, kafka: KafkaConfig, topic: str, keys: ClusterKeys) -> None:
        self._kafka = kafka
        self._topic = topic
        self._ring = keys.ring(EVENTS, topic)
        self._partitions: list[int] = []
        self._connection: ProducerConnection | None = None
        self._starting = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()

    async def connect(self) -> None:
        """Before anything is sent. NotPublished when no broker answers."""
        await self._connected()

    async def start(self) -> None:
        """NotPublished when no broker answers."""
        connection = await self._connected()
        self._partitions = sorted(await connection.producer.partitions_for(self._topic))

    def partition_of(self, key: bytes) -> int:
        return partition_for(key, self._partitions)

    async def send(self, partition: int, records: list[Record]) -> None:
        connection = await self._connected()
        try:
            await connection.send(self._topic, partition, records)
        except KafkaError as error:
            self._replace(connection)
            raise NotPublished(str(error) or type(error).__name__) from error

    async def stop(self) -> None:
        if self._connection is not None:
            self._replace(self._connection)
        await asyncio.gather(*self._closing)

    async def _connected(self) -> ProducerConnection:
        """The producer, started by the first caller."""
        async with self._starting:
            if self._connection is None:
                producer = AIOKafkaProducer(
                    **options(self._kafka),
                    enable_idempotence=True,
                    acks="all",
                    max_batch_size=BATCH_BYTES_MAX - BATCH_BYTES_MARGIN,
                )
                try:
                    await start_client(producer)
                except BaseException as error:
                    await close_producer(producer)
                    if isinstance(error, KafkaError):
                        raise NotPublished(str(error) or type(error).__name__) from error
                    raise
                self._connection = ProducerConnection(producer, self._ring)
            return self._connection

    def _replace(self, connection: ProducerConnection) -> None:
        if self._connection is connection:
            self._connection = None
            closing = asyncio.create_task(connection.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)


class ProducerConnection:
    """A producer, and whether it was given up: then no caller waits for it any longer."""

    def __init__(self, producer: AIOKafkaProducer, ring: KeyRing) -> None:
        self.producer = producer
        self._ring = ring
        self.given_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def send(self, topic: str, partition: int, records: list[Record]) -> None:
        """Send records in order, in as many batches as they need; a batch takes at least one."""
        left = records[::-1]
        while left:
            batch = self.producer.create_batch()
            while left:
                key, value, headers = left[-1]
                signed = [*headers, (PROOF, self._ring.tag(value))]
                if batch.append(timestamp=None, key=key, value=value, headers=signed) is None:
                    break
                left.pop()
            batch.close()
            written = await self.producer.send_batch(batch, topic, partition=partition)
            await asyncio.wait([written, self.given_up], return_when=asyncio.FIRST_COMPLETED)
            if not written.done():
                raise KafkaError("the producer was given up")
            await written

    async def close(self) -> None:
        """Without a broker the library would wait for ever for what is not sent: that is in the log."""
        if not self.given_up.done():
            self.given_up.set_result(None)
        await close_producer(self.producer)
