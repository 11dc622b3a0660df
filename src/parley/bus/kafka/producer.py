"""Where the publisher's records go: an idempotent producer; a batch counts only when all replicas have it.

The library sends a batch again and again until a broker answers, and the broker knows a repetition by its
number. Only when it gives a batch up is the producer replaced; then a batch may be written twice.
"""

from __future__ import annotations

import asyncio
from typing import Any

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.partitioner import DefaultPartitioner

from parley.bus.events import Record
from parley.bus.kafka.connecting import options
from parley.bus.publisher import NotPublished
from parley.bus.topics import BATCH_BYTES_MAX
from parley.config import Kafka

BATCH_BYTES_MARGIN = 4 * 1024
"""For what the broker counts as part of a batch beside its records."""
CLOSE_SECONDS_MAX = 2.0

log = structlog.get_logger("parley.kafka")
_partition = DefaultPartitioner()


class Connection:
    """A producer, and whether it has been given up: whoever waits for it then must not wait on."""

    def __init__(self, producer: AIOKafkaProducer) -> None:
        self.producer = producer
        self.given_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def send(self, topic: str, partition: int, left: list[Record]) -> None:
        """Send what is left, the last one first, in as many batches as it needs."""
        while left:
            batch = self.producer.create_batch()
            _put(batch, left)
            written = await self.producer.send_batch(batch, topic, partition=partition)
            await asyncio.wait([written, self.given_up], return_when=asyncio.FIRST_COMPLETED)
            if not written.done():
                raise KafkaError("the producer was given up")
            await written

    async def close(self) -> None:
        """Without a broker the library would wait for ever for what is not sent: that is in the log."""
        if not self.given_up.done():
            self.given_up.set_result(None)
        try:
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                await self.producer.flush()
                await self.producer.stop()
        except TimeoutError:
            self.producer._closed = True
            await asyncio.wait(
                [asyncio.ensure_future(self.producer._sender.close())], timeout=CLOSE_SECONDS_MAX
            )
            await self.producer.client.close()


class KafkaSink:
    """One topic."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self._kafka = kafka
        self._topic = topic
        self._partitions: list[int] = []
        self._connection: Connection | None = None
        self._starting = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """NotPublished when no broker answers."""
        connection = await self._ready()
        self._partitions = sorted(await connection.producer.partitions_for(self._topic))

    def partition_of(self, key: bytes) -> int:
        partition: int = _partition(key, self._partitions, self._partitions)
        return partition

    async def send(self, partition: int, records: list[Record]) -> None:
        connection = await self._ready()
        try:
            await connection.send(self._topic, partition, records[::-1])
        except KafkaError as error:
            self._replace(connection)
            raise NotPublished(str(error) or type(error).__name__) from error

    async def stop(self) -> None:
        if self._connection is not None:
            self._replace(self._connection)
        await asyncio.gather(*self._closing)

    async def _ready(self) -> Connection:
        async with self._starting:
            if self._connection is None:
                self._connection = await self._connected()
            return self._connection

    async def _connected(self) -> Connection:
        producer = AIOKafkaProducer(
            **options(self._kafka),
            enable_idempotence=True,
            acks="all",
            max_batch_size=BATCH_BYTES_MAX - BATCH_BYTES_MARGIN,
        )
        try:
            await producer.start()
        except BaseException as error:
            await producer.stop()
            if isinstance(error, KafkaError):
                raise NotPublished(str(error) or type(error).__name__) from error
            raise
        return Connection(producer)

    def _replace(self, connection: Connection) -> None:
        if self._connection is connection:
            self._connection = None
            closing = asyncio.create_task(connection.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)


def _put(batch: Any, left: list[Record]) -> None:
    """As many as fit, from the end of the list; at least one."""
    while left:
        key, value, headers = left[-1]
        if batch.append(timestamp=None, key=key, value=value, headers=headers) is None:
            break
        left.pop()
    batch.close()
