"""Reads what other nodes publish: each gateway reads every partition, in no group, and commits no offset.

An event is only a hint: a gateway that misses one finds it in the log. It is believed only if a node of this
cluster has signed it: what it brings is sent to clients without another look at the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from parley.bus import events
from parley.bus.kafka.client import close_consumer, options, start_client
from parley.bus.kafka.records import RecordReader
from parley.config import KafkaConfig
from parley.core.cluster_keys import ClusterKeys
from parley.model import Persisted
from parley.telemetry import Metrics

POLL_MS = 1_000
POLL_RECORDS_MAX = 500
RETRY_SECONDS = 1.0
READER = "live"

log = structlog.get_logger("parley.kafka")


class LiveReader:
    """`node`: this node, whose own records are no news here. `wants`: whether a client here is in a chat."""

    def __init__(
        self,
        kafka: KafkaConfig,
        topic: str,
        keys: ClusterKeys,
        node: str,
        wants: Callable[[str], bool],
        deliver: Callable[[list[Persisted]], None],
        metrics: Metrics,
    ) -> None:
        self._kafka = kafka
        self._topic = topic
        self._records = RecordReader(topic, keys, metrics)
        self._node = node.encode()
        self._wants = wants
        self._deliver = deliver
        self._metrics = metrics
        self._next: dict[TopicPartition, int] = {}
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Everything published after it returns is read."""
        self._consumer = AIOKafkaConsumer(
            **options(self._kafka), enable_auto_commit=False, auto_offset_reset="latest"
        )
        self._consumer.assign([TopicPartition(self._topic, 0)])
        try:
            await start_client(self._consumer)
            self._next = await self._consumer.end_offsets(self._known())
        except BaseException:
            await close_consumer(self._consumer)
            raise
        self._assign()
        self._metrics.consumer_lag.register(self._lag, READER)
        self._reading = asyncio.create_task(self._read())

    async def stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
            await close_consumer(self._consumer)

    def _known(self) -> list[TopicPartition]:
        partitions = self._consumer.partitions_for_topic(self._topic) or ()
        return [TopicPartition(self._topic, partition) for partition in partitions]

    def _assign(self) -> None:
        self._consumer.assign(list(self._next))
        for partition, offset in self._next.items():
            self._consumer.seek(partition, offset)

    def _lag(self) -> int:
        ends = {partition: self._consumer.highwater(partition) for partition in self._next}
        return sum(max((ends[partition] or 0) - offset, 0) for partition, offset in self._next.items())

    async def _read(self) -> None:
        while True:
            try:
                found = await self._consumer.getmany(timeout_ms=POLL_MS, max_records=POLL_RECORDS_MAX)
                self._handle(found)
                self._add_partitions()
            except KafkaError as error:
                log.warning("live reader failed", error=str(error))
                await asyncio.sleep(RETRY_SECONDS)
            except Exception:
                log.exception("news of other nodes could not be told")
            await asyncio.sleep(0)  # while the buffer is full, `getmany` never yields to other tasks

    def _add_partitions(self) -> None:
        """Read new partitions from their start; the others continue at their offsets."""
        new = set(self._known()) - self._next.keys()
        if new:
            log.info("partitions were added", topic=self._topic, count=len(new))
            self._next.update(dict.fromkeys(new, 0))
            self._assign()

    def _handle(self, found: dict[TopicPartition, list[ConsumerRecord]]) -> None:
        positions = []
        for partition, records in found.items():
            self._next[partition] = records[-1].offset + 1
            positions += [position for record in records if (position := self._decode(record)) is not None]
        if positions:
            self._deliver(events.gather(positions))

    def _decode(self, record: ConsumerRecord) -> events.PositionEvent | None:
        """None if this node published it, or if no client here is in the chat.

        A change of members is always read: it may let a client of this node into the chat.
        """
        is_change = False
        for name, value in record.headers:
            if name == events.NODE and value == self._node:
                return None
            is_change = is_change or name == events.CHANGE
        if not is_change and (record.key is None or not self._wants(record.key.decode(errors="replace"))):
            return None
        return self._records.read(record)
