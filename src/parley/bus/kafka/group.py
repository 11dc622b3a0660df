"""A member of a consumer group, whatever it does with the records of its partitions.

The consumer is polled all the time, because a group removes a consumer that does not poll. Fetched records
wait in a queue for each partition, from which one worker takes them; a partition whose queue is full is
paused. Offsets are committed a few times a second over what is done, and never for a partition that now
belongs to another member.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Generic, TypeVar

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

from parley.bus.kafka.client import close_consumer, start_client
from parley.core.backoff import JITTER_SHARE, backoff
from parley.telemetry import Metrics

POLL_MS = 200
WAITING_RECORDS_MAX = 2_000
CHUNK_RECORDS_MAX = 500
COMMIT_SECONDS = 0.2
COMMIT_SECONDS_MAX = 2.0
REJOIN_SECONDS = 1.0
REJOIN_SECONDS_MAX = 8.0
HANDLE_RETRY_SECONDS = 1.0

log = structlog.get_logger("parley.kafka")

T = TypeVar("T")


class PartitionShare:
    """One partition of a member: the records that were fetched, and how far they are done."""

    def __init__(self, offset: int) -> None:
        self.waiting: list[ConsumerRecord] = []
        self.wake = asyncio.Event()
        self.is_revoked = False
        self.done_through = self.committed = offset
        self.worker: asyncio.Task[None] | None = None

    async def take(self) -> list[ConsumerRecord]:
        """Wait for the next records; none once the partition is revoked."""
        while not self.waiting and not self.is_revoked:
            self.wake.clear()
            await self.wake.wait()
        if self.is_revoked:
            return []
        chunk, self.waiting = self.waiting[:CHUNK_RECORDS_MAX], self.waiting[CHUNK_RECORDS_MAX:]
        return chunk

    @property
    def unconfirmed(self) -> Sequence[asyncio.Future[None]]:
        """What was handled and is not done: it may still be, while the partition is ours."""
        return ()


S = TypeVar("S", bound=PartitionShare)


class GroupMember(ConsumerRebalanceListener, Generic[S]):  # type: ignore[misc]
    """From one connection to the brokers to its end.

    `finish_seconds`: how long handlers may still run when their partition goes to another member;
    `stop_seconds`: the same when this member leaves.
    """

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        topic: str,
        group: str,
        chance: Callable[[], float],
        finish_seconds: float,
        stop_seconds: float | None = None,
    ) -> None:
        self.consumer = consumer
        self.group = group
        self._topic = topic
        self._chance = chance
        self._finish_seconds = finish_seconds
        self._stop_seconds = finish_seconds if stop_seconds is None else stop_seconds
        self._shares: dict[TopicPartition, S] = {}
        self._ending = asyncio.Lock()
        self.has_worked = False

    @abstractmethod
    def make_share(self, offset: int) -> S:
        """A partition of which nothing before this offset is owed."""

    @abstractmethod
    async def handle(self, share: S, records: list[ConsumerRecord]) -> None:
        """Do what the next records of a partition ask for, and say how far they are done."""

    def lag(self) -> int:
        """Records of this member's partitions that are on the bus and not done."""
        return sum(
            max((self.consumer.highwater(partition) or 0) - share.done_through, 0)
            for partition, share in self._shares.items()
            if partition in self.consumer.assignment()
        )

    async def run(self) -> None:
        """Until it is cancelled; KafkaError when it cannot go on."""
        committing = asyncio.create_task(self._commit_often())
        try:
            self.consumer.subscribe([self._topic], listener=self)
            await start_client(self.consumer)
            while True:
                found = await self.consumer.getmany(timeout_ms=POLL_MS)
                for partition, records in found.items():
                    self._fetched(partition, records)
                await asyncio.sleep(0)  # while the buffer is full, `getmany` never yields to other tasks
        finally:
            committing.cancel()
            try:
                await self._end(list(self._shares), self._stop_seconds)
            finally:
                await close_consumer(self.consumer)

    def _fetched(self, partition: TopicPartition, records: list[ConsumerRecord]) -> None:
        share = self._shares.get(partition)
        if share is None:
            share = self._shares[partition] = self.make_share(records[0].offset)
            share.worker = asyncio.create_task(self._work(partition, share))
        share.waiting += records
        share.wake.set()
        if len(share.waiting) >= WAITING_RECORDS_MAX:
            self.consumer.pause(partition)

    async def _work(self, partition: TopicPartition, share: S) -> None:
        while records := await share.take():
            await self.handle(share, records)
            self.has_worked = True
            if len(share.waiting) < WAITING_RECORDS_MAX and partition in self.consumer.paused():
                self.consumer.resume(partition)

    async def until_done(self, call: Callable[[], Awaitable[T]], seconds_max: float, **where: object) -> T:
        """Call again and again, with growing pauses, until it does not fail."""
        attempt = 0
        while True:
            try:
                return await call()
            except Exception:
                log.exception("a handler failed", group=self.group, attempt=attempt, **where)
            jitter = JITTER_SHARE * self._chance()
            await asyncio.sleep(backoff(attempt, HANDLE_RETRY_SECONDS, seconds_max, jitter))
            attempt += 1

    # What the group decides

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        log.debug("partitions assigned", group=self.group, partitions=len(assigned))

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        await self._end(revoked, self._finish_seconds)

    async def _end(self, partitions: Collection[TopicPartition], seconds: float) -> None:
        """Let handlers end, within limits, and commit what is done while the partitions are still ours.

        A rebalance may take partitions while this member leaves. Each is ended once: whoever comes second
        waits for the first, and ends what is left.
        """
        async with self._ending:
            await self._end_shares(partitions, seconds)

    async def _end_shares(self, partitions: Collection[TopicPartition], seconds: float) -> None:
        shares = {partition: self._shares[partition] for partition in partitions if partition in self._shares}
        workers = [share.worker for share in shares.values() if share.worker is not None]
        for share in shares.values():
            share.is_revoked = True
            share.wake.set()
        unconfirmed = [future for share in shares.values() for future in share.unconfirmed]
        if workers or unconfirmed:
            await asyncio.wait([*workers, *unconfirmed], timeout=seconds)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        await self._commit()
        for partition in shares:
            del self._shares[partition]

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
                await self.consumer.commit(offsets)
        except (CommitFailedError, IllegalStateError):
            log.info("partitions went to another member", group=self.group, partitions=len(offsets))
        except (KafkaError, TimeoutError) as error:
            log.warning("offsets are not committed yet", group=self.group, error=str(error))
        else:
            for partition, share in shares.items():
                share.committed = offsets[partition]


async def belong(
    make_member: Callable[[], GroupMember[S]], metrics: Metrics, chance: Callable[[], float]
) -> None:
    """Be a member of a group until cancelled; without a broker, try again."""
    attempt = 0
    while True:
        member = make_member()
        metrics.consumer_lag.register(member.lag, member.group)
        try:
            await member.run()
        except KafkaError as error:
            log.warning("a member has left its group", group=member.group, error=str(error))
        attempt = 0 if member.has_worked else attempt + 1
        await asyncio.sleep(backoff(attempt, REJOIN_SECONDS, REJOIN_SECONDS_MAX, JITTER_SHARE * chance()))
