"""The outbox: what became durable goes to the bus, per chat in the order of its log, and none is left out.

News of this process is at hand and goes at once. What is not at hand (another node stored it, or memory was
full) is read from the log, from the chat's mark on. The mark moves only over what the bus has acknowledged
without a gap, so it may be behind the truth and never ahead: something may be published twice, nothing is
left out. A bus that is away delays everything here and refuses nothing. See docs/fan-out.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Protocol

import msgspec
import structlog

from parley.bus.events import Record, encode, request_id_in
from parley.bus.filling import Filler
from parley.bus.lines import Line, Waiting
from parley.bus.marks import Marks
from parley.clock import MS_PER_SECOND, Clock
from parley.core.backoff import backoff_ms
from parley.errors import SERVICE_UNAVAILABLE, ParleyError, Refusal, StoreError
from parley.model import Persisted
from parley.store.ports import Log, Outbox
from parley.telemetry import Metrics
from parley.wire.limits import MIB

BACKLOG_BYTES_MAX = 32 * MIB
LINES_MAX = 50_000
BATCH_BYTES = 512 * 1024
RECORD_BYTES_BESIDE_VALUE = 128
CONFIRM_SECONDS_MAX = 2.5
SLOW_SECONDS = 5.0
RETRY_MS_MAX = 8_000
STOP_SECONDS_MAX = 3.0
FANOUT_BLOCKED = "Kafka publish failed - message durable but fanout blocked"

log = structlog.get_logger("parley.bus")


class NotPublished(ParleyError):
    """A batch is perhaps on the bus, perhaps not."""


class Sink(Protocol):
    """Where records go."""

    def partition_of(self, key: bytes) -> int:
        """Where records with this key go, always."""
        ...

    async def send(self, partition: int, records: list[Record]) -> None:
        """They are on the bus in this order when it returns. NotPublished: they must be sent again."""
        ...


class Lane:
    """One partition: one batch under way at a time, which keeps its chats in order."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.ready: dict[Line, None] = {}
        self.wake = asyncio.Event()


class Publisher:
    def __init__(
        self,
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
        self._filler = Filler(log, Marks(outbox), self, chance)
        self._lines: dict[str, Line] = {}
        self._lanes: dict[int, Lane] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.backlog_bytes = 0
        metrics.unpublished = self.backlog
        metrics.publish_stalled_seconds = self.stalled_seconds

    # What it is told

    def publish(self, news: list[Persisted]) -> None:
        """Take what became durable. What it has taken before is left out."""
        for item in news:
            line = self._line(item.chat_id)
            if line is not None:
                self._take(line, item)

    async def confirm(self, news: list[Persisted], through: dict[str, int]) -> dict[str, Refusal]:
        """As `Confirm` promises."""
        self.publish(news)
        lines = {chat_id: self._line(chat_id) for chat_id in through}
        late = [chat_id for chat_id, line in lines.items() if line is None]
        waits = {
            chat_id: asyncio.create_task(self._published(line, through[chat_id]))
            for chat_id, line in lines.items()
            if line is not None
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
        """Publish what lies between a mark that nobody has moved and the head, from the log."""
        line = self._line(chat_id)
        if line is None:
            return
        if line.mark is not None and line.mark > mark:
            self._outbox.note_published(chat_id, line.mark)
        self.raise_mark(line, mark)
        line.target = max(line.target, head)
        line.is_behind = line.is_stuck
        self.advance(line)

    # What it says of itself

    def backlog(self) -> int:
        """How many positions are known to be durable and not known to be on the bus."""
        return sum(line.missing for line in self._lines.values())

    def stalled_seconds(self) -> float:
        """For how long the slowest chat has got nothing onto the bus, of those that want to."""
        now = self._now()
        return max((now - line.moved_at for line in self._lines.values() if line.is_outstanding), default=0.0)

    async def stop(self) -> None:
        """Finish what can be finished soon; the rest is in the log, and a sweeper's."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS_MAX):
                for line in list(self._lines.values()):
                    await line.until(line.target)
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

    def _line(self, chat_id: str) -> Line | None:
        """A chat's line; None when there are too many with work to do: then a sweeper will find it."""
        line = self._lines.get(chat_id)
        if line is None:
            if len(self._lines) >= LINES_MAX:
                self._lines = {c: line for c, line in self._lines.items() if line.is_outstanding}
            if len(self._lines) >= LINES_MAX:
                return None
            partition = self._sink.partition_of(chat_id.encode())
            line = self._lines[chat_id] = Line(chat_id, partition, self._now())
        return line

    def _take(self, line: Line, news: Persisted) -> None:
        first = news.positions[0].sequence
        if news.epoch > line.epoch:
            self._begin_epoch(line, news.epoch)
        known = 0 if first == 1 else news.published_through
        if known is not None:
            self.raise_mark(line, known)
        if not line.is_outstanding:
            line.moved_at = self._now()
        for stored in news.positions:
            if line.lacks(stored.sequence):
                self.keep(line, stored.sequence, Waiting(stored, news.epoch, True))
        self.advance(line)

    def _begin_epoch(self, line: Line, epoch: int) -> None:
        """The log was lost and rebuilt: what was known of it is of another one."""
        if line.epoch:
            self.backlog_bytes -= sum(waiting.size for waiting in line.pending.values())
            line.mark, line.target, line.pending, line.is_behind = None, 0, {}, False
        line.epoch = epoch

    def keep(self, line: Line, sequence: int, waiting: Waiting) -> None:
        line.target = max(line.target, sequence)
        if waiting.is_news and self.backlog_bytes >= BACKLOG_BYTES_MAX:
            line.is_behind = True
        else:
            line.pending[sequence] = waiting
            self.backlog_bytes += waiting.size

    def raise_mark(self, line: Line, mark: int) -> None:
        self.backlog_bytes -= line.raise_mark(mark, self._now())

    async def _published(self, line: Line, sequence: int) -> None:
        if not line.is_outstanding:
            line.moved_at = self._now()
        line.target = max(line.target, sequence)
        self.advance(line)
        await line.until(sequence)

    def advance(self, line: Line) -> None:
        """Whatever this chat's next step is, see that it is taken."""
        if line.is_ready:
            lane = self._lane(line.partition)
            lane.ready[line] = None
            lane.wake.set()
        elif line.is_stuck and line.filler is None:
            line.filler = self._start(self._filler.fill(line))

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # One partition

    def _lane(self, partition: int) -> Lane:
        lane = self._lanes.get(partition)
        if lane is None:
            lane = self._lanes[partition] = Lane(partition)
            self._start(self._run_lane(lane))
        return lane

    async def _run_lane(self, lane: Lane) -> None:
        attempt = 0
        while True:
            records, reached = self._collect(lane)
            if not records:
                lane.wake.clear()
                await lane.wake.wait()
            elif await self._deliver(lane, records):
                attempt = 0
                self._settle(records, reached)
            else:
                lane.ready.update(dict.fromkeys(reached))
                await asyncio.sleep(backoff_ms(attempt, self._chance(), RETRY_MS_MAX) / MS_PER_SECOND)
                attempt += 1

    def _collect(self, lane: Lane) -> tuple[list[Record], dict[Line, int]]:
        """The next batch, chat by chat, and how far it brings each; who has more to say waits its turn."""
        records: list[Record] = []
        reached: dict[Line, int] = {}
        size, now_ms = 0, self._clock()
        while lane.ready and size < BATCH_BYTES:
            line = next(iter(lane.ready))
            del lane.ready[line]
            for sequence, waiting in line.following():
                record = self._encoded(line, sequence, waiting, now_ms)
                if record is None or size >= BATCH_BYTES:
                    break
                records.append(record)
                reached[line] = sequence
                size += len(record.value) + RECORD_BYTES_BESIDE_VALUE
        return records, reached

    def _encoded(self, line: Line, sequence: int, waiting: Waiting, now_ms: int) -> Record | None:
        try:
            node = self._node if waiting.is_news else None
            return encode(line.chat_id, waiting.epoch, waiting.stored, node, now_ms)
        except msgspec.MsgspecError as error:
            hint = "its entry is damaged; run: parley check"
            log.critical(FANOUT_BLOCKED, chat_id=line.chat_id, sequence=sequence, error=str(error), hint=hint)
            return None

    async def _deliver(self, lane: Lane, records: list[Record]) -> bool:
        """Whether the bus has them; it may take as long as it wants, but not in silence."""
        sending = asyncio.create_task(self._sink.send(lane.partition, records))
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

    def _settle(self, records: list[Record], reached: dict[Line, int]) -> None:
        self._metrics.published.inc(len(records))
        if log.is_enabled_for(logging.DEBUG):
            for record in records:
                if request_id := request_id_in(record.headers):
                    log.debug("Event published", request_id=request_id, chat_id=record.key.decode())
        for line, through in reached.items():
            if self._lines.get(line.chat_id) is line:
                self.raise_mark(line, through)
                self._outbox.note_published(line.chat_id, through)
                self.advance(line)
