"""The `Feed` port on Kafka: a consumer group over `messages.persisted`.

The consumer is polled all the time, because a group removes a consumer that does not poll. Fetched records
wait in a queue for each partition, from which one worker takes them; a partition whose queue is full is
paused. Offsets are committed after the handler has returned, a few times a second, and never for a partition
that now belongs to another member. It skips records that no node of this cluster has signed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

from parley.bus import events
from parley.bus.kafka.admin import topic_states
from parley.bus.kafka.client import close_consumer, options, start_client
from parley.bus.kafka.records import RecordReader
from parley.config import KafkaConfig
from parley.core.backoff import JITTER_SHARE, backoff
from parley.core.cluster_keys import ClusterKeys
from parley.errors import ConfigError, StoreUnavailable
from parley.model import Persisted
from parley.store.ports import Handle
from parley.telemetry import Metrics

POLL_MS = 200
WAITING_RECORDS_MAX = 2_000
CHUNK_RECORDS_MAX = 500
COMMIT_SECONDS = 0.2
FINISH_SECONDS_MAX = 5.0
"""How long a handler may still run when its partition is revoked."""
COMMIT_SECONDS_MAX = 2.0
SEEN_CHATS_MAX = 10_000
HANDLE_RETRY_SECONDS = 1.0
HANDLE_RETRY_SECONDS_MAX = 60.0

log = structlog.get_logger("parley.kafka")


class PartitionWork:
    """One partition of this member: the records that were fetched, and how many of them are done."""

    def __init__(self, reader: RecordReader) -> None:
        self._reader = reader
        self.waiting: list[ConsumerRecord] = []
        self.wake = asyncio.Event()
        self.is_revoked = False
        self.done_through: int | None = None
        self.committed: int | None = None
        self.seen: dict[str, tuple[int, int]] = {}
        self.worker: asyncio.Task[None] | None = None

    async def take(self) -> list[ConsumerRecord]:
        """Wait for the next records; none once the partition is revoked."""
        while not self.waiting and not self.is_revoked:
            self.wake.clear()
            await self.wake.wait()
        chunk, self.waiting = self.waiting[:CHUNK_RECORDS_MAX], self.waiting[CHUNK_RECORDS_MAX:]
        return chunk

    def news_in(self, records: list[ConsumerRecord]) -> list[Persisted]:
        """The news in records, without what was handled before: an event may be published twice."""
        last: dict[str, tuple[int, int]] = {}
        new = []
        for told in filter(None, map(self._reader.read, records)):
            place = told.epoch, told.stored.sequence
            if place > (last.get(told.chat_id) or self.seen.get(told.chat_id, (0, 0))):
                last[told.chat_id] = place
                new.append(told)
        return events.gather(new)

    def note(self, news: Persisted) -> None:
        if len(self.seen) >= SEEN_CHATS_MAX:
            self.seen.clear()
        self.seen[news.chat_id] = news.epoch, news.positions[-1].sequence


class GroupMember(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        topic: str,
        group: str,
        handle: Handle,
        chance: Callable[[], float],
        reader: RecordReader,
    ) -> None:
        self._reader = reader
        self._consumer = consumer
        self._topic = topic
        self._group = group
        self._handle = handle
        self._chance = chance
        self._shares: dict[TopicPartition, PartitionWork] = {}
        self.has_worked = False

    def lag(self) -> int:
        """Records of this member's partitions that are on the bus and not done."""
        lag = 0
        for partition, share in self._shares.items():
            if share.done_through is not None and partition in self._consumer.assignment():
                lag += max((self._consumer.highwater(partition) or 0) - share.done_through, 0)
        return lag

    async def run(self) -> None:
        """Until it is cancelled; KafkaError when it cannot go on."""
        committing = asyncio.create_task(self._commit_often())
        try:
            self._consumer.subscribe([self._topic], listener=self)
            await start_client(self._consumer)
            while True:
                found = await self._consumer.getmany(timeout_ms=POLL_MS)
                for partition, records in found.items():
                    self._fetched(partition, records)
        finally:
            committing.cancel()
            await self.on_partitions_revoked(list(self._shares))
            await close_consumer(self._consumer)

    def _fetched(self, partition: TopicPartition, records: list[ConsumerRecord]) -> None:
        share = self._shares.get(partition)
        if share is None:
            share = self._shares[partition] = PartitionWork(self._reader)
            share.done_through = share.committed = records[0].offset
            share.worker = asyncio.create_task(self._work(partition, share))
        share.waiting += records
        share.wake.set()
        if len(share.waiting) >= WAITING_RECORDS_MAX:
            self._consumer.pause(partition)

    # What the group decides

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        log.debug("partitions assigned", group=self._group, partitions=len(assigned))

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Let handlers end, within limits, and commit what is done while the partitions are still ours."""
        shares = {partition: self._shares[partition] for partition in revoked if partition in self._shares}
        workers = [share.worker for share in shares.values() if share.worker is not None]
        for share in shares.values():
            share.is_revoked = True
            share.wake.set()
        if workers:
            await asyncio.wait(workers, timeout=FINISH_SECONDS_MAX)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        await self._commit()
        for partition in shares:
            del self._shares[partition]

    # One partition

    async def _work(self, partition: TopicPartition, share: PartitionWork) -> None:
        while True:
            records = await share.take()
            if share.is_revoked or not records:
                return
            for news in share.news_in(records):
                await self._until_handled(news)
                share.note(news)
            share.done_through = records[-1].offset + 1
            self.has_worked = True
            if len(share.waiting) < WAITING_RECORDS_MAX and partition in self._consumer.paused():
                self._consumer.resume(partition)

    async def _until_handled(self, news: Persisted) -> None:
        attempt = 0
        while True:
            try:
                await self._handle(news)
                return
            except Exception:
                log.exception("a handler failed", group=self._group, chat_id=news.chat_id, attempt=attempt)
            jitter = JITTER_SHARE * self._chance()
            await asyncio.sleep(backoff(attempt, HANDLE_RETRY_SECONDS, HANDLE_RETRY_SECONDS_MAX, jitter))
            attempt += 1

    # Offsets

    async def _commit_often(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_SECONDS)
            await self._commit()

    async def _commit(self) -> None:
        shares = {p: share for p, share in self._shares.items() if share.done_through != share.committed}
        offsets = {partition: share.done_through for partition, share in shares.items()}
        if not offsets:
            return
        try:
            async with asyncio.timeout(COMMIT_SECONDS_MAX):
                await self._consumer.commit(offsets)
        except (CommitFailedError, IllegalStateError):
            log.info("partitions went to another member", group=self._group, partitions=len(offsets))
        except (KafkaError, TimeoutError) as error:
            log.warning("offsets are not committed yet", group=self._group, error=str(error))
        else:
            for partition, share in shares.items():
                share.committed = offsets[partition]


SESSION_MS = 10_000
REBALANCE_MS_MAX = 30_000
FETCH_BYTES_MAX = 256 * 1024
RETRY_SECONDS = 1.0
RETRY_SECONDS_MAX = 8.0

log = structlog.get_logger("parley.kafka")


class KafkaFeed:
    """`settings` are passed to the consumer and override its defaults."""

    def __init__(
        self,
        kafka: KafkaConfig,
        topic: str,
        keys: ClusterKeys,
        metrics: Metrics,
        chance: Callable[[], float],
        **settings: Any,
    ) -> None:
        self._reader = RecordReader(topic, keys, metrics)
        self._kafka = kafka
        self._topic = topic
        self._metrics = metrics
        self._chance = chance
        self._settings = settings

    async def consume(self, group: str, handle: Handle) -> None:
        attempt = 0
        while True:
            member = GroupMember(
                self._consumer(group), self._topic, group, handle, self._chance, self._reader
            )
            self._metrics.consumer_lag.register(member.lag, group)
            try:
                await member.run()
            except KafkaError as error:
                log.warning("a member has left its group", group=group, error=str(error))
            attempt = 0 if member.has_worked else attempt + 1
            jitter = JITTER_SHARE * self._chance()
            await asyncio.sleep(backoff(attempt, RETRY_SECONDS, RETRY_SECONDS_MAX, jitter))

    async def lags(self) -> dict[str, int]:
        try:
            (state,) = await topic_states(self._kafka, [self._topic])
        except ConfigError as error:
            raise StoreUnavailable(str(error)) from error
        return state.groups

    def _consumer(self, group: str) -> AIOKafkaConsumer:
        settings: dict[str, Any] = {
            "group_id": self._kafka.prefix + group,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS_MAX,
            "max_partition_fetch_bytes": FETCH_BYTES_MAX,
        }
        return AIOKafkaConsumer(**options(self._kafka) | settings | self._settings)
