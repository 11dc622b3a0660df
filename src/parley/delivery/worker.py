"""The worker: from the feed into lanes, and from the lanes to the recipients.

The feed only moves the targets of lanes, which takes no longer than a commit: a recipient that is slow or
away delays no other one, and no chat. A lane is run by one task at a time, so its order is that of the log.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable

import structlog
from msgspec.structs import replace

from parley.clock import MS_PER_SECOND, Clock
from parley.core.retry import DeliveryFailure, Fault, RetryPolicy, after_failure
from parley.delivery.attempts import FAILED, Attempts, letter_id, make_letter, read_wires, time_of
from parley.delivery.ports import Channel
from parley.errors import StoreError
from parley.model import Persisted
from parley.store.delivery.ports import DeliveryStore
from parley.store.delivery.rows import DeliveryEvent, Lane, Selection
from parley.store.ports import Feed, Log
from parley.telemetry import Metrics

GROUP = "delivery"
LANES_AT_ONCE_MAX = 16
LANES_PER_RECIPIENT_MAX = 4
"""So that one slow recipient leaves room for the others."""
assert LANES_PER_RECIPIENT_MAX < LANES_AT_ONCE_MAX
ENTRIES_PER_READ = 50
DELIVERIES_PER_COMMIT = 10
"""At most so many are repeated after a crash, for each lane."""
STORE_RETRY_SECONDS = 1.0
LOOK_SECONDS_MAX = 60.0
"""A clock that was set back must not delay what is due for longer."""
EVERY_POSITION = 2**62

log = structlog.get_logger("parley.delivery")


class DeliveryWorker:
    def __init__(
        self,
        logs: Log,
        store: DeliveryStore,
        channel: Channel,
        policy: RetryPolicy,
        clock: Clock,
        metrics: Metrics,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._log = logs
        self._lanes = store.lanes
        self._letters = store.dead_letters
        self._channel = channel
        self._attempts = Attempts(channel, policy, clock)
        self._policy = policy
        self._clock = clock
        self._metrics = metrics
        self._chance = chance
        self._woken = asyncio.Event()
        self._running: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def run(self, feed: Feed) -> None:
        """Until cancelled; what was delivered by then is noted durably."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(feed.consume(GROUP, self.handle))
            tasks.create_task(self.run_lanes())

    async def handle(self, news: Persisted) -> None:
        """Note durably what is owed to whom."""
        if not news.positions:
            return
        wires = [stored.wire for stored in news.positions if stored.wire is not None]
        recipients = await self._channel.recipients(news.chat_id, time_of(wires[-1]) if wires else None)
        if recipients:
            first, last = news.positions[0].sequence, news.positions[-1].sequence
            await self._lanes.extend(news.chat_id, recipients, first, last)
            self._woken.set()

    async def run_lanes(self) -> None:
        """Run every lane that is due, until cancelled."""
        try:
            while True:
                self._woken.clear()
                pause = await self._start_due()
                try:
                    async with asyncio.timeout(pause):
                        await self._woken.wait()
                except TimeoutError:
                    pass
        finally:
            tasks = list(self._running.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _start_due(self) -> float:
        """Start what is due, as far as there is room. Returns in how many seconds something else is due."""
        try:
            while await self._start_some():
                pass
            now_ms = self._clock()
            next_ms = await self._lanes.next_due(now_ms)
        except StoreError as error:
            log.warning("lanes cannot be read", error=str(error))
            return STORE_RETRY_SECONDS
        if next_ms is None:
            return LOOK_SECONDS_MAX
        return min((next_ms - now_ms) / MS_PER_SECOND, LOOK_SECONDS_MAX)

    async def _start_some(self) -> bool:
        """Returns whether there may be others to start."""
        of_recipient = Counter(recipient for _, recipient in self._running)
        busy = {name for name, count in of_recipient.items() if count >= LANES_PER_RECIPIENT_MAX}
        started = False
        for lane in await self._lanes.due(self._clock(), 2 * LANES_AT_ONCE_MAX, busy):
            key = (lane.chat_id, lane.recipient)
            is_full = of_recipient[lane.recipient] >= LANES_PER_RECIPIENT_MAX
            if key in self._running or is_full or len(self._running) >= LANES_AT_ONCE_MAX:
                continue
            of_recipient[lane.recipient] += 1
            self._running[key] = asyncio.create_task(self._run(lane))
            started = True
        return started

    async def _run(self, lane: Lane) -> None:
        try:
            await self._run_lane(lane)
        except Exception as error:  # the lane is as it was, and is tried again
            is_store = isinstance(error, StoreError)
            log.warning("a lane waits", chat_id=lane.chat_id, exc_info=None if is_store else error)
            await asyncio.sleep(STORE_RETRY_SECONDS)
        finally:
            del self._running[lane.chat_id, lane.recipient]
            self._woken.set()

    async def _run_lane(self, lane: Lane) -> None:
        if lane.recipient not in await self._channel.recipients(lane.chat_id):
            await self._lanes.finish(lane.chat_id, lane.recipient, EVERY_POSITION)
            return
        run = LaneRun(lane)
        try:
            while run.lane.next_sequence <= run.lane.target:
                if not await self._deliver_page(run):
                    return
        finally:
            if run.unnoted:
                await self._lanes.advance(run.lane)
        if not await self._lanes.finish(lane.chat_id, lane.recipient, run.lane.target):
            await self._lanes.advance(run.lane)  # it goes on as soon as its task has ended

    async def _deliver_page(self, run: LaneRun) -> bool:
        """Returns whether the lane may go on now."""
        lane = run.lane
        wires, reached = await read_wires(
            self._log, lane.chat_id, lane.next_sequence - 1, min(ENTRIES_PER_READ, run.left)
        )
        if reached < lane.next_sequence:
            log.warning("a lane ends beyond its log", chat_id=lane.chat_id, target=lane.target)
            run.pass_to(lane.target + 1)
            return True
        dead = await self._known_dead(lane, wires)
        for sequence, wire in wires.items():
            if sequence > lane.target:
                break
            run.pass_to(sequence)
            if sequence not in dead and not await self._deliver(run, wire):
                return False
            run.pass_to(sequence + 1)
            if run.unnoted >= DELIVERIES_PER_COMMIT:
                await self._lanes.advance(run.lane)
                run.unnoted = 0
        run.pass_to(min(reached, lane.target) + 1)
        return True

    async def _known_dead(self, lane: Lane, wires: dict[int, bytes]) -> set[int]:
        """Positions that are dead letters already: they are delivered by a replay alone."""
        ids = [letter_id(lane.recipient, lane.chat_id, sequence, wire) for sequence, wire in wires.items()]
        found = await self._letters.find(Selection(ids=tuple(ids)), "", len(ids)) if ids else []
        return {letter.sequence for letter in found}

    async def _deliver(self, run: LaneRun, wire: bytes) -> bool:
        """Returns whether the front is done with: delivered, or a dead letter."""
        lane = run.lane
        failure = await self._attempts.attempt(lane.recipient, wire, lane.crashes)
        if failure is None:
            self._metrics.delivery_outcomes.labels("delivered").inc()
            run.unnoted += 1
            return True
        now_ms = self._clock()
        event = DeliveryEvent(now_ms, FAILED, failure.fault.value, failure.detail)
        lane = replace(
            lane,
            attempts=(*lane.attempts, event),
            crashes=lane.crashes + (failure.fault is Fault.CRASHED),
        )
        wait_ms = after_failure(failure, lane.retry_count, self._policy, self._chance())
        if wait_ms is None:
            await self._bury(run, lane, wire, failure, now_ms)
            return True
        self._metrics.delivery_outcomes.labels("retried").inc()
        run.lane = replace(lane, retry_count=lane.retry_count + 1, due_ms=now_ms + wait_ms)
        run.unnoted = 0
        await self._lanes.advance(run.lane)
        return False

    async def _bury(
        self, run: LaneRun, lane: Lane, wire: bytes, failure: DeliveryFailure, now_ms: int
    ) -> None:
        letter = make_letter(lane, wire, failure, now_ms)
        await self._letters.add(letter)
        self._metrics.delivery_outcomes.labels("dead_lettered").inc()
        log.warning("dead letter", dlq_id=letter.dlq_id, error=letter.error, recipient=letter.recipient)
        run.pass_to(lane.next_sequence + 1)
        await self._lanes.advance(run.lane)
        run.unnoted = 0


class LaneRun:
    """A lane while its task runs it, and how many deliveries are not noted durably yet."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.unnoted = 0

    @property
    def left(self) -> int:
        return self.lane.target - self.lane.next_sequence + 1

    def pass_to(self, sequence: int) -> None:
        """The front is this position now; a new front has no past."""
        if sequence != self.lane.next_sequence:
            lane = self.lane
            self.lane = Lane(
                chat_id=lane.chat_id, recipient=lane.recipient, next_sequence=sequence, target=lane.target
            )
