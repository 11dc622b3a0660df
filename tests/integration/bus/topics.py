"""A look at topics from outside, with a plain client of the library."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from parley.bus import events
from parley.bus.events import PERSISTED
from parley.bus.kafka.client import options
from parley.config import KafkaConfig


async def sequences_on(kafka: KafkaConfig) -> dict[str, list[int]]:
    """Everything on `messages.persisted`: each chat's numbers in the order of the records."""
    topic = PERSISTED.name_in(kafka)
    consumer = AIOKafkaConsumer(topic, **options(kafka), auto_offset_reset="earliest")
    await consumer.start()
    found: dict[str, list[int]] = {}
    try:
        partitions = [TopicPartition(topic, number) for number in range(kafka.partitions)]
        ends = await consumer.end_offsets(partitions)
        places = await consumer.beginning_offsets(partitions)
        while any(places[partition] < ends[partition] for partition in partitions):
            for partition, records in (await consumer.getmany(timeout_ms=500)).items():
                places[partition] = records[-1].offset + 1
                for record in records:
                    told = events.decode(record.value)
                    assert told is not None
                    found.setdefault(told.chat_id, []).append(told.stored.sequence)
    finally:
        await consumer.stop()
    return found


@asynccontextmanager
async def producer_of(kafka: KafkaConfig) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(**options(kafka))
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()
