"""One member of a consumer group, from joining to leaving."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

import msgspec
import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

from parley.bus import events
from parley.bus.kafka.connecting import close_consumer
from parley.bus.ports import Handle
from parley.clock import MS_PER_SECOND
from parley.core.backoff import backoff_ms
from parley.model import Persisted

POLL_MS = 200
WAITING_RECORDS_MAX = 2_000
CHUNK_RECORDS_MAX = 500
COMMIT_SECONDS = 0.2
FINISH_SECONDS_MAX = 5.0
"""How long a handler may go on when its chats go to another member."""
COMMIT_SECONDS_MAX = 2.0
SEEN_CHATS_MAX = 10_000

log = structlog.get_logger("parley.kafka")


class Share:
    """One partition of this member: what was fetched and how much of it is done."""

    def __init__(self) -> None:
        self.waiting: list[ConsumerRecord] = []
        self.wake = asyncio.Event()
        self.is_revoked = False
        self.done_through: int | None = None
        self.committed: int | None = None
        self.seen: dict[str, tuple[int, int]] = {}
        self.worker: asyncio.Task[None] | None = None

    async def take(self) -> list[ConsumerRecord]:
        """The next records, when there are some; none once the partition is another member's."""
        while not self.waiting and not self.is_revoked:
            self.wake.clear()
            await self.wake.wait()
        chunk, self.waiting = self.waiting[:CHUNK_RECORDS_MAX], self.waiting[CHUNK_RECORDS_MAX:]
        return chunk

    def news_in(self, records: list[ConsumerRecord]) -> list[Persisted]:
        """What records tell, without what came before: an event may be published twice."""
        last: dict[str, tuple[int, int]] = {}
        new = []
        for told in filter(None, map(_told, records)):
            place = told.epoch, told.stored.sequence
            if place > (last.get(told.chat_id) or self.seen.get(told.chat_id, (0, 0))):
                last[told.chat_id] = place
                new.append(told)
        return events.gather(new)

    def note(self, news: Persisted) -> None:
        if len(self.seen) >= SEEN_CHATS_MAX:
            self.seen.clear()
        self.seen[news.chat_id] = news.epoch, news.positions[-1].sequence


class Member(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        topic: str,
        group: str,
        handle: Handle,
        chance: Callable[[], float],
    ) -> None:
        self._consumer = consumer
        self._topic = topic
        self._group = group
        self._handle = handle
        self._chance = chance
        self._shares: dict[TopicPartition, Share] = {}
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
            await self._consumer.start()
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
            share = self._shares[partition] = Share()
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
        """What is under way may end, within limits; what has ended is committed while it still is ours."""
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

    async def _work(self, partition: TopicPartition, share: Share) -> None:
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
            await asyncio.sleep(backoff_ms(attempt, self._chance()) / MS_PER_SECOND)
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


def _told(record: ConsumerRecord) -> events.Told | None:
    try:
        return events.decode(record.value)
    except (msgspec.MsgspecError, TypeError) as error:
        log.error(
            "a record that is no event", partition=record.partition, offset=record.offset, error=str(error)
        )
        return None
