"""Retries and dead letters on a real broker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from aiokafka import AIOKafkaConsumer

from parley.bus.events import PERSISTED
from parley.bus.kafka.admin import topic_states
from parley.bus.kafka.client import options
from parley.bus.kafka.delivery_topics import DLQ, RETRIES, KafkaDeliveryTopics
from parley.clock import wall_clock
from parley.config import KafkaConfig
from parley.core.deliveries import DeliveryQueue
from parley.errors import StoreUnavailable
from tests.contracts.buses import fresh_topics
from tests.contracts.test_dead_letters import dead_letter
from tests.integration.bus.topics import producer_of
from tests.waiting import deadline, eventually

pytestmark = pytest.mark.timeout(120)


def queue(chat_id: str, due_ms: int, recipient: str = "wh_1") -> DeliveryQueue:
    return DeliveryQueue(
        chat_id=chat_id, recipient=recipient, next_sequence=7, target=9, due_ms=due_ms, retry_count=1
    )


@asynccontextmanager
async def topics_on(kafka: KafkaConfig) -> AsyncIterator[KafkaDeliveryTopics]:
    topics = KafkaDeliveryTopics(kafka, wall_clock)
    try:
        yield topics
    finally:
        await topics.stop()


class Woken:
    """A worker that notes which queues it was woken for, and when."""

    def __init__(self) -> None:
        self.queues: list[tuple[str, str, int]] = []

    async def wake(self, chat_id: str, recipient: str) -> None:
        self.queues.append((chat_id, recipient, wall_clock()))

    @asynccontextmanager
    async def by(self, topics: KafkaDeliveryTopics, prefix: str = "wh_") -> AsyncIterator[None]:
        task = asyncio.create_task(topics.consume(prefix, self.wake))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_retry_comes_when_it_is_due() -> None:
    """Not before, from the shortest topic that is long enough; one that waits delays no other topic."""
    kafka, woken = await fresh_topics(partitions=1), Woken()
    async with topics_on(kafka) as topics, woken.by(topics):
        now_ms = wall_clock()
        await topics.tell_retry(queue("far", now_ms + 60_000))
        await topics.tell_retry(queue("third", now_ms + 4_000))
        await topics.tell_retry(queue("first", now_ms + 900))
        await eventually(lambda: len(woken.queues) >= 2, 30)
        assert [chat_id for chat_id, _, _ in woken.queues] == ["first", "third"]
        for (_, recipient, at_ms), due_ms in zip(woken.queues, (900, 4_000), strict=True):
            assert recipient == "wh_1"
            assert now_ms + due_ms <= at_ms
    assert await records_on(kafka, RETRIES["30s"].name_in(kafka)) == []
    (far,) = await records_on(kafka, RETRIES["5m"].name_in(kafka))
    assert far == {
        "recipient": "wh_1",
        "chat_id": "far",
        "sequence": 7,
        "retry_count": 1,
        "due_ms": now_ms + 60_000,
    }


async def test_a_record_never_waits_longer_than_its_topic() -> None:
    """Whatever it says itself, and whoever wrote it; what makes no sense is passed over."""
    kafka, woken = await fresh_topics(partitions=1), Woken()
    topic = RETRIES["1s"].name_in(kafka)
    async with topics_on(kafka) as topics:
        async with producer_of(kafka) as stranger:
            for value in (b"no JSON", b'{"recipient": 3}', None):
                await stranger.send_and_wait(topic, value, key=b"a")
            forged = {
                "recipient": "wh_1",
                "chat_id": "forged",
                "sequence": 1,
                "retry_count": 0,
                "due_ms": 2**50,
            }
            await stranger.send_and_wait(topic, msgspec.json.encode(forged), key=b"a")
        await topics.tell_retry(queue("real", wall_clock() + 500))
        async with woken.by(topics):
            await eventually(lambda: [one[0] for one in woken.queues] == ["forged", "real"], 30)


async def test_what_a_dead_member_did_not_commit_is_woken_again() -> None:
    """A member leaves with a record that waits; the next one wakes that queue, and no other kind's."""
    kafka, first, second = await fresh_topics(partitions=1), Woken(), Woken()
    async with topics_on(kafka) as topics:
        async with first.by(topics):
            await topics.tell_retry(queue("a", wall_clock()))
            await eventually(lambda: len(first.queues) == 1, 30)
            await topics.tell_retry(queue("c", wall_clock(), "push_1"))
            await topics.tell_retry(queue("b", wall_clock() + 5_000))
            await asyncio.sleep(1)
        async with second.by(topics):
            await eventually(lambda: [one[0] for one in second.queues] == ["b"], 30)
    assert [one[0] for one in first.queues] == ["a"]


async def test_a_store_that_fails_does_not_stop_the_timers() -> None:
    """The queue is found by the next look; the records behind it are read."""
    kafka, woken = await fresh_topics(partitions=1), Woken()

    async def wake(chat_id: str, recipient: str) -> None:
        if chat_id == "a":
            raise StoreUnavailable("not now")
        await woken.wake(chat_id, recipient)

    async with topics_on(kafka) as topics:
        task = asyncio.create_task(topics.consume("wh_", wake))
        try:
            await topics.tell_retry(queue("a", 0))
            await topics.tell_retry(queue("b", 0))
            await eventually(lambda: [one[0] for one in woken.queues] == ["b"], 30)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_dead_letter_is_told_in_the_agreed_form() -> None:
    """For consumers that are not Parley's; its fields are in the unit test of the record."""
    kafka = await fresh_topics(partitions=1)
    async with topics_on(kafka) as topics:
        await topics.tell_dead(dead_letter(3), "hello")
    (record,) = await records_on(kafka, DLQ.name_in(kafka))
    names = await topic_states(kafka, [str(record["source_topic"])])
    assert [state.name for state in names] == [PERSISTED.name_in(kafka)], "the topic that it names exists"
    assert (record["error"], record["error_detail"]) == ("timeout", "no answer")


async def test_without_a_broker_deliveries_go_on() -> None:
    """What cannot be told is logged: queues and dead letters are in the store."""
    nobody = KafkaConfig(brokers=["127.0.0.1:9"])
    async with topics_on(nobody) as topics, deadline(20):
        await topics.tell_retry(queue("a", 0))
        await topics.tell_dead(dead_letter(1), "")


async def records_on(kafka: KafkaConfig, topic: str) -> list[dict[str, object]]:
    """Everything on the only partition of a topic."""
    consumer = AIOKafkaConsumer(topic, **options(kafka), auto_offset_reset="earliest")
    await consumer.start()
    try:
        (partition,) = consumer.assignment()
        end = (await consumer.end_offsets([partition]))[partition]
        found: list[dict[str, object]] = []
        while await consumer.position(partition) < end:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                found += [msgspec.json.decode(record.value) for record in records]
        return found
    finally:
        await consumer.stop()
