"""Publishes what became durable: every position, each chat in the order of its log.

What this process stored is published at once, from memory. The rest is read from the log, from the chat's
mark on (`parley.bus.backlog`). The mark moves only over positions that the bus has acknowledged without a
gap. It may be too low and is never too high: an event may be published twice, none is left out. While the bus
is away, events are late and no send is refused. See docs/fan-out.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import NamedTuple, Protocol

import msgspec
import structlog
from msgspec import Struct

from parley.bus.backlog import BacklogReader, PublishedMarks
from parley.bus.events import Record, encode, request_id_in
from parley.clock import Clock
from parley.core.backoff import JITTER_SHARE, backoff
from parley.errors import SERVICE_UNAVAILABLE, ParleyError, Refusal, StoreError
from parley.model import Persisted, StoredEntry
from parley.store.ports import Log, Outbox
from parley.telemetry import Metrics
from parley.wire.limits import MIB

BACKLOG_BYTES_MAX = 32 * MIB
QUEUES_MAX = 50_000
BATCH_BYTES = 512 * 1024
RECORD_BYTES_BESIDE_VALUE = 128
CONFIRM_SECONDS_MAX = 2.5
SLOW_SECONDS = 5.0
RETRY_SECONDS = 1.0
RETRY_SECONDS_MAX = 8.0
STOP_SECONDS_MAX = 3.0
FANOUT_BLOCKED = "Kafka publish failed - message durable but fanout blocked"

log = structlog.get_logger("parley.bus")


class NotPublished(ParleyError):
    """A batch may be on the bus or not: send it again."""


class Sink(Protocol):
    """The topic that records are written to."""

    def partition_of(self, key: bytes) -> int:
        """The partition of every record with this key."""
        ...

    async def send(self, partition: int, records: list[Record]) -> None:
        """Returns when they are on the bus, in this order. NotPublished: send them again."""
        ...


class QueuedPosition(NamedTuple):
    """A position to publish. `is_news`: this process stored it and has notified its own listeners."""

    stored: StoredEntry
    epoch: int
    is_news: bool

    @property
    def size(self) -> int:
        return len(self.stored.wire or b"")


class BacklogMemory(Struct):
    """How many bytes the queues of all chats hold together."""

    bytes: int = 0


class PublishQueue:
    """One chat: what is on the bus, what waits, and which callers wait for it. No IO.

    `mark`: everything up to here is on the bus; None while this node does not know how far that is. `target`:
    the highest position known to be durable. `is_behind`: some of what lies between was not kept in memory,
    so the log must be read.
    """

    __slots__ = (
        "_memory",
        "chat_id",
        "epoch",
        "filler",
        "is_behind",
        "mark",
        "moved_at",
        "partition",
        "pending",
        "target",
        "waiters",
    )

    def __init__(self, chat_id: str, partition: int, now: float, memory: BacklogMemory) -> None:
        self.chat_id = chat_id
        self.partition = partition
        self.epoch = 0
        self.mark: int | None = None
        self.target = 0
        self.pending: dict[int, QueuedPosition] = {}
        self.is_behind = False
        self.filler: asyncio.Task[None] | None = None
        self.waiters: list[tuple[int, asyncio.Future[None]]] = []
        self.moved_at = now
        self._memory = memory

    @property
    def is_ready(self) -> bool:
        """The next position is in memory."""
        return self.mark is not None and self.mark + 1 in self.pending

    @property
    def is_outstanding(self) -> bool:
        return self.mark is None or self.mark < self.target or bool(self.waiters)

    @property
    def is_stuck(self) -> bool:
        """Something is durable and not on the bus, and the next position is not in memory."""
        return not self.is_ready and (self.mark is None or self.mark < self.target)

    @property
    def missing(self) -> int:
        """How many positions are not on the bus, as far as this node knows."""
        return len(self.pending) if self.mark is None else max(self.target - self.mark, 0)

    def begin_epoch(self, epoch: int) -> None:
        """The log was lost and rebuilt: forget what was known of the old one."""
        if self.epoch:
            self._memory.bytes -= sum(queued.size for queued in self.pending.values())
            self.mark, self.target, self.pending, self.is_behind = None, 0, {}, False
        self.epoch = epoch

    def keep(self, positions: Iterable[StoredEntry], epoch: int, *, is_news: bool) -> None:
        """Queue positions that are neither queued nor on the bus. News beyond the limit is read later."""
        for stored in positions:
            sequence = stored.sequence
            if sequence in self.pending or (self.mark is not None and sequence <= self.mark):
                continue
            self.target = max(self.target, sequence)
            if is_news and self._memory.bytes >= BACKLOG_BYTES_MAX:
                self.is_behind = True
            else:
                self.pending[sequence] = queued = QueuedPosition(stored, epoch, is_news)
                self._memory.bytes += queued.size

    def following(self) -> Iterator[tuple[int, QueuedPosition]]:
        """What can be published next, in order."""
        sequence = (self.mark or 0) + 1
        while self.mark is not None and (queued := self.pending.get(sequence)) is not None:
            yield sequence, queued
            sequence += 1

    def raise_mark(self, through: int, now: float) -> None:
        """Everything up to here is on the bus: drop it, and let those go on who waited for it."""
        if self.mark is not None and through <= self.mark:
            return
        first = 0 if self.mark is None else self.mark + 1
        if through - first < len(self.pending):  # usually a few, of the many that wait while the bus is away
            dropped = [sequence for sequence in range(first, through + 1) if sequence in self.pending]
        else:
            dropped = [sequence for sequence in self.pending if sequence <= through]
        self._memory.bytes -= sum([self.pending.pop(sequence).size for sequence in dropped])
        self.mark, self.target = through, max(self.target, through)
        self.is_behind = self.is_behind and through < self.target
        self.moved_at = now
        if self.waiters:
            for sequence, future in self.waiters:
                if sequence <= through and not future.done():
                    future.set_result(None)
            self.waiters = [(sequence, future) for sequence, future in self.waiters if not future.done()]

    async def until(self, sequence: int) -> None:
        """Returns when everything up to here is on the bus."""
        if self.mark is not None and self.mark >= sequence:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiters.append((sequence, future))
        try:
            await future
        finally:
            self.waiters = [waiter for waiter in self.waiters if waiter[1] is not future]


class PartitionQueue:
    """The chats of one partition. One batch is under way at a time, which keeps each chat in order."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.ready: dict[PublishQueue, None] = {}
        self.wake = asyncio.Event()


class Publisher:
    def __init__(
        self,
        *,
        log: Log,
        outbox: Outbox,
        sink: Sink,
        metrics: Metrics,
        node: str,
        clock: Clock,
        chance: Callable[[], float],
    ) -> None:
        self._outbox = outbox
        self._sink = sink
        self._metrics = metrics
        self._node = node
        self._clock = clock
        self._chance = chance
        self._filler = BacklogReader(log, PublishedMarks(outbox), self._advance, chance)
        self._queues: dict[str, PublishQueue] = {}
        self._partition_queues: dict[int, PartitionQueue] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._memory = BacklogMemory()
        metrics.unpublished_positions.register(self.backlog)
        metrics.publish_stalled_seconds.register(self.stalled_seconds)

    # Input

    def publish(self, news: list[Persisted]) -> None:
        """Queue what became durable, and skip what is queued already."""
        now = self._now()
        for item in news:
            queue = self._queue(item.chat_id)
            if queue is None:
                continue
            if item.epoch > queue.epoch:
                queue.begin_epoch(item.epoch)
            known = 0 if item.positions[0].sequence == 1 else item.published_through
            if known is not None:
                queue.raise_mark(known, now)
            if not queue.is_outstanding:
                queue.moved_at = now
            queue.keep(item.positions, item.epoch, is_news=True)
            self._advance(queue)

    async def confirm(self, news: list[Persisted], through: dict[str, int]) -> dict[str, Refusal]:
        """See `Confirm`."""
        self.publish(news)
        queues = {chat_id: self._queue(chat_id) for chat_id in through}
        late = [chat_id for chat_id, queue in queues.items() if queue is None]
        waits = {
            chat_id: asyncio.create_task(self._published(queue, through[chat_id]))
            for chat_id, queue in queues.items()
            if queue is not None
        }
        if waits:
            _, undone = await asyncio.wait(waits.values(), timeout=CONFIRM_SECONDS_MAX)
            late += [chat_id for chat_id, task in waits.items() if task in undone]
            for task in undone:
                task.cancel()
        for chat_id in late:
            if (more := self._metrics.lines.admit("not confirmed in time", self._now())) is not None:
                sequence = through[chat_id]
                log.error(FANOUT_BLOCKED, chat_id=chat_id, sequence=sequence, error="not in time", **more)
        return dict.fromkeys(late, SERVICE_UNAVAILABLE)

    def sweep(self, chat_id: str, mark: int, head: int) -> None:
        """Publish from the log what lies between a stalled mark and the head."""
        queue = self._queue(chat_id)
        if queue is None:
            return
        if queue.mark is not None and queue.mark > mark:
            self._outbox.note_published(chat_id, queue.mark)
        queue.raise_mark(mark, self._now())
        queue.target = max(queue.target, head)
        queue.is_behind = queue.is_stuck
        self._advance(queue)

    # Metrics and end

    def backlog(self) -> int:
        """How many positions are known to be durable and not known to be on the bus."""
        return sum(queue.missing for queue in self._queues.values())

    @property
    def backlog_bytes(self) -> int:
        """How many bytes of entries wait in memory."""
        return self._memory.bytes

    def stalled_seconds(self) -> float:
        """How long ago the slowest chat published, of the chats with something to publish."""
        now = self._now()
        return max(
            (now - queue.moved_at for queue in self._queues.values() if queue.is_outstanding), default=0.0
        )

    async def stop(self) -> None:
        """Publish what can be published soon. A sweeper publishes the rest from the log."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS_MAX):
                for queue in list(self._queues.values()):
                    await queue.until(queue.target)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self._outbox.flush()
        except StoreError as error:
            log.warning("marks are not written; their events will be published again", error=str(error))

    # One chat

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _queue(self, chat_id: str) -> PublishQueue | None:
        """The queue of a chat; None when too many chats have work: then a sweeper publishes it."""
        queue = self._queues.get(chat_id)
        if queue is None:
            if len(self._queues) >= QUEUES_MAX:
                self._queues = {c: queue for c, queue in self._queues.items() if queue.is_outstanding}
            if len(self._queues) >= QUEUES_MAX:
                return None
            partition = self._sink.partition_of(chat_id.encode())
            queue = self._queues[chat_id] = PublishQueue(chat_id, partition, self._now(), self._memory)
        return queue

    async def _published(self, queue: PublishQueue, sequence: int) -> None:
        if not queue.is_outstanding:
            queue.moved_at = self._now()
        queue.target = max(queue.target, sequence)
        self._advance(queue)
        await queue.until(sequence)

    def _advance(self, queue: PublishQueue) -> None:
        """Start the next step of this chat: publish what is in memory, or read the log."""
        if queue.is_ready:
            partition_queue = self._partition_queues.get(queue.partition)
            if partition_queue is None:
                partition_queue = self._partition_queues[queue.partition] = PartitionQueue(queue.partition)
                self._start(self._run_partition(partition_queue))
            partition_queue.ready[queue] = None
            partition_queue.wake.set()
        elif queue.is_stuck and queue.filler is None:
            queue.filler = self._start(self._filler.fill(queue))

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # One partition

    async def _run_partition(self, partition_queue: PartitionQueue) -> None:
        attempt = 0
        while True:
            records, reached = self._collect(partition_queue)
            if not records:
                partition_queue.wake.clear()
                await partition_queue.wake.wait()
            elif await self._deliver(partition_queue, records):
                attempt = 0
                self._settle(records, reached)
            else:
                partition_queue.ready.update(dict.fromkeys(reached))
                jitter = JITTER_SHARE * self._chance()
                await asyncio.sleep(backoff(attempt, RETRY_SECONDS, RETRY_SECONDS_MAX, jitter))
                attempt += 1

    def _collect(self, partition_queue: PartitionQueue) -> tuple[list[Record], dict[PublishQueue, int]]:
        """The next batch, chat by chat, and how far it gets in each. A chat with more waits for its turn."""
        records: list[Record] = []
        reached: dict[PublishQueue, int] = {}
        size, now_ms = 0, self._clock()
        while partition_queue.ready and size < BATCH_BYTES:
            queue = next(iter(partition_queue.ready))
            del partition_queue.ready[queue]
            for sequence, queued in queue.following():
                record = self._encoded(queue, sequence, queued, now_ms)
                if record is None or size >= BATCH_BYTES:
                    break
                records.append(record)
                reached[queue] = sequence
                size += len(record.value) + RECORD_BYTES_BESIDE_VALUE
        return records, reached

    def _encoded(
        self, queue: PublishQueue, sequence: int, queued: QueuedPosition, now_ms: int
    ) -> Record | None:
        """None for an entry that cannot be read: its chat stops there until an operator repairs it."""
        try:
            node = self._node if queued.is_news else None
            return encode(queue.chat_id, queued.epoch, queued.stored, node, now_ms)
        except msgspec.MsgspecError as error:
            hint = "its entry is damaged; run: parley check"
            log.critical(
                FANOUT_BLOCKED, chat_id=queue.chat_id, sequence=sequence, error=str(error), hint=hint
            )
            return None

    async def _deliver(self, partition_queue: PartitionQueue, records: list[Record]) -> bool:
        """Send a batch, however long it takes; False if it must be sent again. Delays are logged."""
        sending = asyncio.create_task(self._sink.send(partition_queue.partition, records))
        try:
            while not (await asyncio.wait([sending], timeout=SLOW_SECONDS))[0]:
                self._complain(records, "no answer yet")
            await sending
        except NotPublished as error:
            self._complain(records, str(error))
            return False
        finally:
            sending.cancel()
        return True

    def _complain(self, records: list[Record], error: str) -> None:
        self._metrics.publish_failures.inc()
        chats = sorted({record.key.decode() for record in records})[:10]
        log.error(FANOUT_BLOCKED, events=len(records), chats=chats, error=error)

    def _settle(self, records: list[Record], reached: dict[PublishQueue, int]) -> None:
        self._metrics.published.inc(len(records))
        if log.is_enabled_for(logging.DEBUG):
            for record in records:
                if request_id := request_id_in(record.headers):
                    log.debug("Event published", request_id=request_id, chat_id=record.key.decode())
        for queue, through in reached.items():
            if self._queues.get(queue.chat_id) is queue:
                queue.raise_mark(through, self._now())
                self._outbox.note_published(queue.chat_id, through)
                self._advance(queue)
