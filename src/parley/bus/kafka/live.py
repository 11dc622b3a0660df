"""What other nodes publish, from now on: each gateway reads every partition, in no group, and keeps no place.

It is a hint: whoever misses something finds it in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from parley.bus import events
from parley.bus.kafka.connecting import close_consumer, options
from parley.config import Kafka
from parley.model import Persisted
from parley.telemetry import Metrics

POLL_MS = 1_000
POLL_RECORDS_MAX = 500
RETRY_SECONDS = 1.0
READER = "live"

log = structlog.get_logger("parley.kafka")


class LiveReader:
    """`node`: whose records are no news here. `wants`: whether anybody here hears a chat."""

    def __init__(
        self,
        kafka: Kafka,
        topic: str,
        node: str,
        wants: Callable[[str], bool],
        tell: Callable[[list[Persisted]], None],
        metrics: Metrics,
    ) -> None:
        self._kafka = kafka
        self._topic = topic
        self._node = node.encode()
        self._wants = wants
        self._tell = tell
        self._metrics = metrics
        self._next: dict[TopicPartition, int] = {}
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """What is published after it returns is heard."""
        self._consumer = AIOKafkaConsumer(
            **options(self._kafka), enable_auto_commit=False, auto_offset_reset="latest"
        )
        self._consumer.assign([TopicPartition(self._topic, 0)])
        try:
            await self._consumer.start()
            self._next = await self._consumer.end_offsets(self._known())
        except BaseException:
            await close_consumer(self._consumer)
            raise
        self._take_places()
        self._metrics.consumer_lags[READER] = self._lag
        self._reading = asyncio.create_task(self._read())

    async def stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
            await close_consumer(self._consumer)

    def _known(self) -> list[TopicPartition]:
        partitions = self._consumer.partitions_for_topic(self._topic) or ()
        return [TopicPartition(self._topic, partition) for partition in partitions]

    def _take_places(self) -> None:
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
                self._hear(found)
                self._look_for_partitions()
            except KafkaError as error:
                log.warning("the live reader cannot go on", error=str(error))
                await asyncio.sleep(RETRY_SECONDS)
            except Exception:
                log.exception("news of other nodes could not be told")
            await asyncio.sleep(0)  # a full buffer would never let anybody else run

    def _look_for_partitions(self) -> None:
        """One that was added is read from its start; the others go on where they are."""
        new = set(self._known()) - self._next.keys()
        if new:
            log.info("partitions were added", topic=self._topic, count=len(new))
            self._next.update(dict.fromkeys(new, 0))
            self._take_places()

    def _hear(self, found: dict[TopicPartition, list[ConsumerRecord]]) -> None:
        told = []
        for partition, records in found.items():
            self._next[partition] = records[-1].offset + 1
            told += [position for record in records if (position := self._told(record)) is not None]
        if told:
            self._tell(events.gather(told))

    def _told(self, record: ConsumerRecord) -> events.Told | None:
        if not self._is_news(record):
            return None
        try:
            return events.decode(record.value, record.headers)
        except (msgspec.MsgspecError, TypeError) as error:
            log.error(
                "a record that is no event",
                partition=record.partition,
                offset=record.offset,
                error=str(error),
            )
            return None

    def _is_news(self, record: ConsumerRecord) -> bool:
        """A change of members may concern somebody here who does not hear the chat yet."""
        is_change = False
        for name, value in record.headers:
            if name == events.NODE and value == self._node:
                return False
            is_change = is_change or name == events.CHANGE
        return is_change or (record.key is not None and self._wants(record.key.decode()))
