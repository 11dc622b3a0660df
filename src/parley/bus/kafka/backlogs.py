"""What the consumer groups of this installation have not done yet, chat by chat, as their offsets say.

A group counts for as long as Kafka keeps its offsets. One that is gone for good is forgotten by Kafka itself,
`offsets.retention.minutes` after its last member left (7 days unless somebody set it), or when an operator
deletes it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from parley.bus import events
from parley.bus.kafka.admin import admin_of
from parley.bus.kafka.bus import partition_for
from parley.bus.kafka.client import close_consumer, options, start_client
from parley.config import KafkaConfig
from parley.errors import ConfigError, StoreUnavailable
from parley.store.rows import EVERYTHING

BACKLOG_RECORDS_MAX = 10_000
"""So many records of a partition are looked through. Behind a longer backlog, everything counts as needed."""
FETCH_MS = 1_000


class KafkaBacklogs:
    """`topic`: the one with the events of all chats, under its full name."""

    def __init__(self, kafka: KafkaConfig, topic: str) -> None:
        self._kafka = kafka
        self._topic = topic

    async def needed_from(self, chat_id: str) -> int:
        """The lowest published position of a chat that a group has not done; above every sequence if none.

        1 if the backlog is too long to be looked through. StoreUnavailable if Kafka cannot be asked.
        """
        try:
            return await self._needed_from(chat_id)
        except (ConfigError, KafkaError, TimeoutError, OSError) as error:
            raise StoreUnavailable(f"the offsets of Kafka's groups cannot be read: {error}") from error

    async def _needed_from(self, chat_id: str) -> int:
        async with admin_of(self._kafka) as admin:
            (found,) = await admin.describe_topics([self._topic])
            numbers = sorted(one["partition"] for one in found["partitions"])
            place = TopicPartition(self._topic, partition_for(chat_id.encode(), numbers))
            groups = [name for name, *_ in await admin.list_consumer_groups()]
            done = [
                await admin.list_consumer_group_offsets(name)
                for name in groups
                if name.startswith(self._kafka.prefix)
            ]
        # A group that reads the topic and has no offset in this partition will begin with its oldest record.
        reading = [offsets for offsets in done if any(one.topic == self._topic for one in offsets)]
        if not reading:
            return EVERYTHING
        offsets = [found[place].offset if place in found else 0 for found in reading]
        return await self._lowest(chat_id, place, min(offsets))

    async def _lowest(self, chat_id: str, place: TopicPartition, start: int) -> int:
        consumer = AIOKafkaConsumer(**options(self._kafka), enable_auto_commit=False)
        try:
            await start_client(consumer)
            end = (await consumer.end_offsets([place]))[place]
            start = max(start, (await consumer.beginning_offsets([place]))[place])
            if end - start > BACKLOG_RECORDS_MAX:
                return 1
            consumer.assign([place])
            consumer.seek(place, start)
            lowest = EVERYTHING
            while await consumer.position(place) < end:
                for records in (await consumer.getmany(place, timeout_ms=FETCH_MS)).values():
                    lowest = min(lowest, lowest_of(chat_id, records))
            return lowest
        finally:
            await close_consumer(consumer)


def lowest_of(chat_id: str, records: Iterable[ConsumerRecord]) -> int:
    """The lowest position of a chat among records. Who wrote them is not asked: at worst a trim waits."""
    lowest = EVERYTHING
    for record in records:
        if record.key == chat_id.encode():
            try:
                told = events.decode(record.value)
            except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
                continue
            if told is not None:
                lowest = min(lowest, told.stored.sequence)
    return lowest
