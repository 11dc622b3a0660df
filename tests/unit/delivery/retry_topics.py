"""The retry topics in memory: the real reader of them, and a broker that keeps records in lists.

A test of an hour takes no time with them. Each topic has one partition.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import msgspec
from aiokafka import TopicPartition

from parley.bus.kafka.delivery_topics import KafkaDeliveryTopics
from parley.bus.topics import Topic
from parley.clock import MS_PER_SECOND, Clock
from parley.config import KafkaConfig


class MemoryConsumer:
    """As much of a consumer as the reader of retries uses."""

    def __init__(self, topics: MemoryTopics) -> None:
        self._records = topics.records
        self._committed = topics.committed
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._client = SimpleNamespace(_get_conn_lock=asyncio.Lock())

    def subscribe(self, names: list[str], listener: object) -> None:
        for name in names:
            partition = TopicPartition(name, 0)
            self._positions[partition] = self._committed.get(partition, 0)

    async def start(self) -> None:
        """It is connected."""

    async def stop(self) -> None:
        """It holds nothing."""

    async def getmany(self, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        found = {}
        for partition, position in self._positions.items():
            values = self._records[partition.topic][position:]
            if values and partition not in self._paused:
                self._positions[partition] += len(values)
                found[partition] = [
                    SimpleNamespace(topic=partition.topic, offset=position + place, value=value)
                    for place, value in enumerate(values)
                ]
        if not found:
            await asyncio.sleep(timeout_ms / MS_PER_SECOND)
        return found

    def paused(self) -> Collection[TopicPartition]:
        return self._paused

    def pause(self, partition: TopicPartition) -> None:
        self._paused.add(partition)

    def resume(self, partition: TopicPartition) -> None:
        self._paused.discard(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._positions[partition] = offset

    async def commit(self, offsets: dict[TopicPartition, int]) -> None:
        self._committed |= offsets


class MemoryTopics(KafkaDeliveryTopics):
    """`records`: the values on each topic, in their order."""

    def __init__(self, clock: Clock, kafka: KafkaConfig | None = None) -> None:
        super().__init__(kafka or KafkaConfig(), clock)
        self.records: dict[str, list[bytes]] = defaultdict(list)
        self.committed: dict[TopicPartition, int] = {}

    async def _send(self, topic: Topic, key: str, record: msgspec.Struct) -> None:
        self.records[topic.name_in(self._kafka)].append(msgspec.json.encode(record))

    def _consumer(self, prefix: str) -> Any:
        return MemoryConsumer(self)
