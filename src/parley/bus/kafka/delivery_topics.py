"""Deliveries on Kafka: `messages.retry.*` as timers, and `messages.dlq` for other programs.

A record in a retry topic names a delivery queue and when it is due. It is only a hint: the queue's row in the
store says whether it is. So a lost record delays a retry until the next look at due queues, a repeated or
forged one changes nothing, and records need no signature. A partition whose next record is not due is paused,
and the consumer goes on polling. A record whose time is later than its topic lasts takes another topic then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

import msgspec
import structlog
from aiokafka import (
    AIOKafkaConsumer,
    AIOKafkaProducer,
    ConsumerRebalanceListener,
    ConsumerRecord,
    TopicPartition,
)
from aiokafka.errors import IllegalStateError, KafkaError
from msgspec import Struct

from parley import ids
from parley.bus.events import PERSISTED
from parley.bus.kafka.client import close_consumer, close_producer, options, start_client
from parley.bus.topics import Topic
from parley.clock import Clock, iso
from parley.config import KafkaConfig
from parley.core.backoff import backoff
from parley.core.deliveries import DEAD_LETTER_DAYS, DeadLetter, DeliveryQueue
from parley.core.retry import BUCKETS_MS, RETRY_AFTER_MS_MAX, bucket_of
from parley.errors import StoreError

RETRY_PARTITIONS_MAX = 12
RETRY_DAYS = 1
DLQ_PARTITIONS_MAX = 3
RETRIES = {
    name: Topic(
        f"messages.retry.{name}",
        "chat_id",
        RETRY_DAYS,
        RETRY_PARTITIONS_MAX,
        holds="a delivery that is due again when this time is over",
    )
    for name in BUCKETS_MS
}
DLQ = Topic(
    "messages.dlq", "chat_id", DEAD_LETTER_DAYS, DLQ_PARTITIONS_MAX, holds="a dead letter, for other programs"
)

POLL_MS = 100
COMMIT_SECONDS = 0.5
COMMIT_SECONDS_MAX = 2.0
SEND_SECONDS_MAX = 5.0
SESSION_MS = 10_000
REBALANCE_MS_MAX = 30_000
REJOIN_SECONDS = 1.0
REJOIN_SECONDS_MAX = 8.0

log = structlog.get_logger("parley.kafka")


class RetryRecord(Struct, frozen=True):
    """A queue, and when its front is due."""

    recipient: str
    chat_id: str
    sequence: int
    retry_count: int
    due_ms: int


class OriginalRecord(Struct, frozen=True):
    msg_id: str
    sender: str
    recipient: str
    content: str
    timestamp: str


class DeadLetterRecord(Struct, frozen=True):
    """A dead letter as other programs read it. `error_detail` is for people.

    `source_topic`: the topic that its event came by; empty for what comes by none. The other two name the
    entry for good: 0, and its position in the log of its chat.
    """

    original_message: OriginalRecord
    error: str
    error_detail: str
    retry_count: int
    first_attempt: str
    last_attempt: str
    dlq_timestamp: str
    source_topic: str
    source_partition: int
    source_offset: int
    status: str


decode_retry = msgspec.json.Decoder(RetryRecord).decode

Wake = Callable[[str, str], Awaitable[None]]


class KafkaDeliveryTopics:
    def __init__(self, kafka: KafkaConfig, clock: Clock) -> None:
        self._kafka = kafka
        self._clock = clock
        self._producer: AIOKafkaProducer | None = None
        self._starting = asyncio.Lock()

    async def tell_retry(self, queue: DeliveryQueue) -> None:
        await self._park(
            RetryRecord(queue.recipient, queue.chat_id, queue.next_sequence, queue.retry_count, queue.due_ms)
        )

    async def _park(self, record: RetryRecord) -> None:
        bucket = bucket_of(max(record.due_ms - self._clock(), 0))
        await self._send(RETRIES[bucket], record.chat_id, record)

    async def tell_dead(self, dead_letter: DeadLetter, content: str) -> None:
        record = DeadLetterRecord(
            OriginalRecord(
                dead_letter.message_id,
                dead_letter.sender_id,
                dead_letter.recipient,
                content,
                iso(dead_letter.created_ms),
            ),
            dead_letter.error,
            dead_letter.detail,
            dead_letter.retry_count,
            iso(dead_letter.first_attempt_ms),
            iso(dead_letter.last_attempt_ms),
            iso(dead_letter.dlq_ms),
            PERSISTED.name_in(self._kafka) if dead_letter.chat_id.startswith(ids.CHAT) else "",
            dead_letter.source_partition,
            dead_letter.source_offset,
            dead_letter.status.value,
        )
        await self._send(DLQ, dead_letter.chat_id, record)

    async def _send(self, topic: Topic, key: str, record: Struct) -> None:
        try:
            async with asyncio.timeout(SEND_SECONDS_MAX):
                producer = await self._connected()
                await producer.send_and_wait(
                    topic.name_in(self._kafka), msgspec.json.encode(record), key=key.encode()
                )
        except (KafkaError, TimeoutError) as error:
            log.warning("not told", topic=topic.name, error=str(error) or type(error).__name__)

    async def _connected(self) -> AIOKafkaProducer:
        async with self._starting:
            if self._producer is None:
                producer = AIOKafkaProducer(**options(self._kafka), acks="all")
                try:
                    await start_client(producer)
                except BaseException:
                    await close_producer(producer)
                    raise
                self._producer = producer
            return self._producer

    async def consume(self, prefix: str, wake: Wake) -> None:
        attempt = 0
        while True:
            reader = RetryReader(self._consumer(prefix), self._kafka, prefix, wake, self._park, self._clock)
            try:
                await reader.run()
            except KafkaError as error:
                log.warning("a reader of retries has left its group", error=str(error))
            attempt = 0 if reader.has_worked else attempt + 1
            await asyncio.sleep(backoff(attempt, REJOIN_SECONDS, REJOIN_SECONDS_MAX, 0.0))

    def _consumer(self, prefix: str) -> AIOKafkaConsumer:
        """Each kind of recipients has a group of its own, and passes over the records of others."""
        return AIOKafkaConsumer(
            **options(self._kafka),
            group_id=f"{self._kafka.prefix}retry.{prefix.strip('_')}",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS_MAX,
        )

    async def stop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await close_producer(producer)


class RetryReader(ConsumerRebalanceListener):  # type: ignore[misc]
    """One member of a group over the retry topics. `park` puts a record into a topic once more."""

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        kafka: KafkaConfig,
        prefix: str,
        wake: Wake,
        park: Callable[[RetryRecord], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._consumer = consumer
        self._lengths = {topic.name_in(kafka): BUCKETS_MS[name] for name, topic in RETRIES.items()}
        self._prefix = prefix
        self._wake = wake
        self._park = park
        self._clock = clock
        self._waiting: dict[TopicPartition, tuple[int, int]] = {}
        """Of each paused partition: the offset of the record that is not due, and when to go on."""
        self._done: dict[TopicPartition, int] = {}
        self._committed_at = 0.0
        self.has_worked = False

    async def run(self) -> None:
        """Until it is cancelled; KafkaError when it cannot go on."""
        try:
            self._consumer.subscribe(list(self._lengths), listener=self)
            await start_client(self._consumer)
            while True:
                self._resume_due()
                for partition, records in (await self._consumer.getmany(timeout_ms=POLL_MS)).items():
                    await self._take(partition, records)
                await self._commit_sometimes()
        finally:
            try:
                await self._commit()
            finally:
                await close_consumer(self._consumer)

    def _resume_due(self) -> None:
        now_ms = self._clock()
        for partition, (_, until_ms) in self._waiting.items():
            if until_ms <= now_ms and partition in self._consumer.paused():
                self._consumer.resume(partition)

    async def _take(self, partition: TopicPartition, records: list[ConsumerRecord]) -> None:
        self.has_worked = True
        for record in records:
            retry = self._retry_in(record)
            now_ms = self._clock()
            waited_for, _ = self._waiting.pop(partition, (-1, 0))
            if retry is not None and retry.due_ms > now_ms and record.offset != waited_for:
                # No record waits longer than its topic says, whatever it says itself.
                until_ms = min(retry.due_ms, now_ms + self._lengths[partition.topic])
                self._waiting[partition] = record.offset, until_ms
                self._consumer.pause(partition)
                self._consumer.seek(partition, record.offset)
                return
            if retry is not None:
                await self._fire(retry)
            self._done[partition] = record.offset + 1

    def _retry_in(self, record: ConsumerRecord) -> RetryRecord | None:
        """None for what is for another kind of recipients, or makes no sense."""
        try:
            retry = decode_retry(record.value or b"")
        except (msgspec.MsgspecError, ValueError):
            log.warning("record is not a retry", topic=record.topic, offset=record.offset)
            return None
        return retry if retry.recipient.startswith(self._prefix) else None

    async def _fire(self, retry: RetryRecord) -> None:
        """One that is due later than any retry can be was written by a stranger: it is woken, and over."""
        if 0 < retry.due_ms - self._clock() <= RETRY_AFTER_MS_MAX:
            await self._park(retry)
            return
        try:
            await self._wake(retry.chat_id, retry.recipient)
        except StoreError as error:
            log.warning("a retry waits for the next look at due queues", error=str(error))

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Each begins where the last member has committed."""

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        await self._commit()
        for partition in revoked:
            self._waiting.pop(partition, None)
            self._done.pop(partition, None)

    async def _commit_sometimes(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._committed_at >= COMMIT_SECONDS:
            self._committed_at = now
            await self._commit()

    async def _commit(self) -> None:
        """What is not committed is fired again, which does nothing if the queue is not due."""
        done, self._done = self._done, {}
        if not done:
            return
        try:
            async with asyncio.timeout(COMMIT_SECONDS_MAX):
                await self._consumer.commit(done)
        except (KafkaError, IllegalStateError, TimeoutError) as error:
            log.info("retries are not committed", error=str(error))
