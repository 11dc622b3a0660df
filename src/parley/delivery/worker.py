"""The worker: from the feed into delivery queues, and from these to the recipients.

The feed only moves the targets of queues, which takes no longer than a commit: a recipient that is slow or
away delays no other one, and no chat. A queue is run by one task of one node at a time, which has claimed it,
so its order is that of the log. A claim that is not renewed runs out, and another worker goes on.

A new queue is claimed with the write that opens it. A queue with a claim that ran out was being run when a
process died: its next messages are tried one by one, each noted before, so that the message that kills the
next process too is known.

A recipient that fails in several chats is paused: its queues stay in the store, and one of them at a time is
a probe, until one arrives. See docs/delivery.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable

import structlog
from msgspec.structs import replace

from parley.clock import MS_PER_SECOND, Clock
from parley.core.deliveries import DeliveryEvent, DeliveryQueue, QueueClaim, Selection
from parley.core.recipient_health import Gate, answers
from parley.core.retry import DeliveryFailure, Fault, RetryPolicy
from parley.delivery.attempts import (
    HELD_BACK,
    Attempts,
    content_of,
    dead_letter_id,
    failing_since,
    is_wanted,
    make_dead_letter,
    newest_wanted,
    poison,
    without_begun,
)
from parley.delivery.ports import Channel, DeliveryKind, DeliveryTopics, Recipient, Source
from parley.delivery.recipients import FailingRecipients
from parley.errors import StoreError
from parley.model import Persisted
from parley.records.deliveries import DeliveryRecords
from parley.store.ports import Feed
from parley.telemetry import Metrics

QUEUES_AT_ONCE_MAX = 16
QUEUES_PER_RECIPIENT_MAX = 4
"""So that one slow recipient leaves room for the others."""
assert QUEUES_PER_RECIPIENT_MAX < QUEUES_AT_ONCE_MAX
QUEUES_PER_LOOK = 64
ENTRIES_PER_READ = 50
DELIVERIES_PER_COMMIT = 10
"""At most so many are repeated after a crash, for each queue."""
CLAIM_MS = 30_000
"""How long the queue of a dead worker waits for another one."""
RENEW_MS = 15_000
"""A claim that runs out sooner is renewed before the next attempt, which takes less."""
STORE_RETRY_SECONDS = 1.0
RECIPIENTS_LOOK_SECONDS = 0.5
LOOK_SECONDS_MAX = 10.0
"""How soon it finds what a command wrote; a clock that was set back delays nothing for longer."""
SHARED_LOOK_SECONDS = 10.0
"""How soon a worker finds queues that nobody told it of, where topics tell of the others."""
GIVE_UP_LOOK_MS = 600_000
"""How often a queue of a recipient that has failed for very long is looked at, to give up what is too old."""
EVERY_POSITION = 2**62

log = structlog.get_logger("parley.delivery")


class QueueLost(Exception):
    """Another worker has the queue: this one was too slow."""


class DeliveryWorker:
    """`holder` names this process in claims; `topics` is for workers on several nodes.

    `recipients`: those that fail, which are paused; without it none is.
    """

    def __init__(
        self,
        *,
        kind: DeliveryKind,
        source: Source,
        store: DeliveryRecords,
        channel: Channel,
        policy: RetryPolicy,
        clock: Clock,
        metrics: Metrics,
        holder: str,
        topics: DeliveryTopics | None = None,
        chance: Callable[[], float] = random.random,
        recipients: FailingRecipients | None = None,
    ) -> None:
        self._kind = kind
        self._source = source
        self._queues = store.queues
        self._dead_letters = store.dead_letters
        self._channel = channel
        self._attempts = Attempts(policy, clock, holder, chance)
        self._policy = policy
        self._clock = clock
        self._metrics = metrics
        self._holder = holder
        self._topics = topics
        self._recipients = recipients or FailingRecipients(None, policy, clock, metrics)
        self._claims = 0
        self._woken = asyncio.Event()
        self._is_open = False
        self._found: list[DeliveryQueue] = []
        """What the last look found, and did not start for lack of room."""
        self._is_more = False
        """There may be others that are due."""
        self._must_look = True
        self._slots: Counter[str] = Counter()
        self._running: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._suspect: asyncio.Task[None] | None = None

    @property
    def arrived_ms(self) -> dict[str, int]:
        """When each recipient was last reached."""
        return self._recipients.arrived_ms

    async def run_if_needed(self, feed: Feed, has_recipients: Callable[[], Awaitable[bool]]) -> None:
        """A server without recipients spends nothing on the feed; its offset stays, so nothing is missed.

        They are asked for again and again: a command in another process may add one.
        """
        while True:
            with contextlib.suppress(StoreError):
                if await has_recipients():
                    break
            await asyncio.sleep(RECIPIENTS_LOOK_SECONDS)
        await self.run(feed)

    async def run(self, feed: Feed) -> None:
        """Until cancelled; what was delivered by then is noted durably."""
        self._is_open = True
        with contextlib.suppress(StoreError):  # the first look asks again
            await self._recipients.refresh()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(feed.consume(self._kind.group, self.handle))
            tasks.create_task(self.run_queues())
            if self._topics is not None:
                tasks.create_task(self._topics.consume(self._kind.prefix, self.wake))

    async def handle(self, news: Persisted) -> None:
        """Note durably what is owed to whom."""
        if not news.positions:
            return
        recipients = await self._channel.owed(news)
        await self.owe(news.chat_id, recipients, news.positions[0].sequence, news.positions[-1].sequence)

    async def owe(self, stream_id: str, recipients: list[str], first: int, last: int) -> None:
        """These recipients get these positions; durable before it returns. Where there is room, at once."""
        open_now = [recipient for recipient in recipients if self._recipients.gate(recipient) is Gate.OPEN]
        now = [recipient for recipient in open_now if self._is_open and self._take_slot(recipient)]
        later = [recipient for recipient in recipients if recipient not in now]
        unused = set(now)
        try:
            if now:
                for queue in await self._queues.extend(stream_id, now, first, last, self._next_claim()):
                    unused.discard(queue.recipient)
                    self._start(queue, "")
            for queue in await self._queues.extend(stream_id, later, first, last) if later else ():
                if queue.recipient in open_now:
                    self._is_more = True  # for those whose tasks end
                elif self._recipients.gate(queue.recipient) is Gate.PROBE:
                    self.look_soon()
        finally:
            for recipient in unused:
                self._free_slot(recipient)

    async def wake(self, chat_id: str, recipient: str) -> None:
        """Run this queue if it is due."""
        if self._is_open and (chat_id, recipient) not in self._running:
            await self._claim(chat_id, recipient)

    def opened(self, queue: DeliveryQueue) -> None:
        """Somebody else opened a queue."""
        if self._recipients.gate(queue.recipient) is not Gate.PAUSED:
            self.look_soon()

    def look_soon(self) -> None:
        """A queue may be due."""
        self._must_look = True
        self._woken.set()

    # Which queues run

    async def run_queues(self) -> None:
        """Run every queue that is due, until cancelled."""
        self._is_open = True
        try:
            while True:
                self._woken.clear()
                pause = await self._look()
                try:
                    async with asyncio.timeout(pause):
                        await self._woken.wait()
                except TimeoutError:
                    self._must_look = True
        finally:
            self._is_open = False
            tasks = list(self._running.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._running, self._slots, self._suspect = {}, Counter(), None  # also of those not begun yet

    async def _look(self) -> float:
        """Start what is due, as far as there is room. Returns in how many seconds to look again."""
        try:
            await self._recipients.refresh()
            while await self._start_some():
                pass
            times = [self._recipients.next_probe_ms()]
            if self._topics is None:
                times.append(await self._queues.next_due(self._kind.prefix, self._clock()))
        except StoreError as error:
            log.warning("queues cannot be read", error=str(error))
            self._must_look = True
            return STORE_RETRY_SECONDS
        now_ms = self._clock()
        waits = [max(time_ms - now_ms, 0) / MS_PER_SECOND for time_ms in times if time_ms is not None]
        return min([*waits, LOOK_SECONDS_MAX if self._topics is None else SHARED_LOOK_SECONDS])

    async def _start_some(self) -> bool:
        """Start queues that the last look found; look again if there is a reason. Whether any was started."""
        if await self._start_found():
            return True
        if not self._must_look or self._slots.total() >= QUEUES_AT_ONCE_MAX:
            return False
        self._must_look = self._is_more = False
        busy = {name for name, count in self._slots.items() if count >= QUEUES_PER_RECIPIENT_MAX}
        paused = self._recipients.paused()
        kept = [queue for queue in self._found if queue.recipient in busy - paused]
        found = await self._queues.due(self._kind.prefix, self._clock(), QUEUES_PER_LOOK, busy | paused)
        self._found = [*kept, *sorted(found, key=lambda queue: queue.retry_count)]
        self._is_more = len(found) == QUEUES_PER_LOOK
        return await self._start_found()

    async def _start_found(self) -> bool:
        """Suspects run one after the other, so that the one that kills is known."""
        found, self._found = self._found, []
        started = False
        for queue in found:
            is_held_back = bool(queue.claim) and self._suspect is not None
            if (queue.chat_id, queue.recipient) in self._running:
                continue
            if is_held_back or not self._has_room(queue.recipient):
                self._found.append(queue)
            elif await self._claim(queue.chat_id, queue.recipient):
                started = True
            elif self._is_more and self._recipients.gate(queue.recipient) is Gate.PAUSED:
                self._must_look = True  # it may have hidden others
        return started

    def _has_room(self, recipient: str) -> bool:
        is_full = self._slots.total() >= QUEUES_AT_ONCE_MAX
        return not is_full and self._slots[recipient] < QUEUES_PER_RECIPIENT_MAX

    def _take_slot(self, recipient: str) -> bool:
        if not self._has_room(recipient):
            return False
        self._slots[recipient] += 1
        return True

    def _free_slot(self, recipient: str) -> None:
        """Others may have waited for it: those that are known, or else those that a look finds."""
        may_wait = self._is_more or not self._has_room(recipient)
        self._slots[recipient] -= 1
        if not self._slots[recipient]:
            del self._slots[recipient]
        if may_wait and not any(queue.recipient == recipient for queue in self._found):
            self._must_look = True
        if may_wait or self._found:
            self._woken.set()

    def _next_claim(self) -> QueueClaim:
        self._claims += 1
        return QueueClaim(f"{self._holder}.{self._claims}", self._clock() + CLAIM_MS)

    async def _claim(self, chat_id: str, recipient: str) -> bool:
        """Run a queue if there is room, and it is due. Returns whether it runs now."""
        gate = self._recipients.gate(recipient)
        if gate is Gate.PAUSED:
            return False
        if not self._take_slot(recipient):
            self._is_more = True
            return False
        before: DeliveryQueue | None = None
        is_probe = False
        claim = self._next_claim()
        try:
            is_probe = gate is Gate.PROBE and await self._recipients.begin_probe(recipient)
            if is_probe or gate is not Gate.PROBE:
                before = await self._queues.claim(chat_id, recipient, claim, self._clock())
        finally:
            if before is None:
                self._free_slot(recipient)
        if before is None:
            if is_probe:
                await self._recipients.end_probe(recipient)
            return False
        queue = replace(before, claim=claim.token, due_ms=claim.until_ms)
        self._start(queue, before.claim, is_probe=is_probe)
        return True

    def _start(self, queue: DeliveryQueue, left_by: str, *, is_probe: bool = False) -> None:
        """`left_by`: the claim of a worker that did not end its run."""
        run = QueueRun(queue, DELIVERIES_PER_COMMIT if left_by else 0, is_probe=is_probe)
        task = self._running[queue.chat_id, queue.recipient] = asyncio.create_task(self._run(run))
        if left_by:
            self._suspect = task

    # One queue

    async def _run(self, run: QueueRun) -> None:
        key = run.queue.chat_id, run.queue.recipient
        try:
            await self._run_until_over(run)
        except QueueLost:
            log.warning("another worker has the queue", chat_id=key[0], recipient=key[1])
        finally:
            task = asyncio.current_task()
            if not run.is_over:
                with contextlib.suppress(StoreError, QueueLost):
                    await self._give_back(run, due_ms=0)
            if run.is_probe:
                await self._recipients.end_probe(key[1])
            if self._running.get(key) is task:
                del self._running[key]
            if self._suspect is task:
                self._suspect, self._is_more = None, True
            self._free_slot(key[1])

    async def _run_until_over(self, run: QueueRun) -> None:
        """While the store fails, the queue waits where it is, as long as it is this worker's."""
        while not run.is_over:
            try:
                await self._run_queue(run)
            except QueueLost:
                run.is_over = True
                raise
            except Exception as error:
                is_store = isinstance(error, StoreError)
                log.warning("a queue waits", chat_id=run.queue.chat_id, exc_info=None if is_store else error)
                await asyncio.sleep(STORE_RETRY_SECONDS)
                if self._clock() >= run.queue.due_ms:
                    return

    async def _run_queue(self, run: QueueRun) -> None:
        while not run.is_over:
            while run.queue.next_sequence <= run.queue.target:
                deliver = self._deliver_newest if self._kind.collapses else self._deliver_page
                if not await deliver(run):
                    return
            run.is_over = await self._queues.finish(run.queue)
            if not run.is_over:
                await self._note(run)  # there is more to do, or another worker has it

    async def _recipient(self, run: QueueRun) -> Recipient | None:
        """The recipient as it is now; without one the queue ends."""
        queue = run.queue
        recipient = await self._channel.recipient(queue.recipient, queue.chat_id)
        if recipient is None:
            if not await self._queues.finish(replace(queue, target=EVERY_POSITION)):
                raise QueueLost
            run.is_over = True
        return recipient

    async def _note(self, run: QueueRun) -> None:
        """Make the front of the queue durable, and renew the claim."""
        renewed = replace(run.queue, due_ms=self._clock() + CLAIM_MS)
        await self._advance(run, renewed)

    async def _give_back(self, run: QueueRun, due_ms: int) -> None:
        """End this run: the queue is due then, for any worker."""
        attempts = without_begun(run.queue.attempts)
        await self._advance(run, replace(run.queue, claim="", due_ms=due_ms, attempts=attempts))
        run.is_over = True

    async def _advance(self, run: QueueRun, queue: DeliveryQueue) -> None:
        stored = await self._queues.advance(queue, run.queue.claim)
        if stored is None:
            raise QueueLost
        run.queue, run.unnoted = stored, 0

    async def _deliver_newest(self, run: QueueRun) -> bool:
        """As `_deliver_page`, for the whole queue at once."""
        target, recipient = run.queue.target, await self._recipient(run)
        if recipient is None:
            return False
        found = await newest_wanted(self._source, recipient, run.queue)
        if found is not None:
            sequence, wire = found
            run.collapse_to(sequence)
            dead = await self._known_dead(run.queue, {sequence: wire})
            if not dead and not await self._deliver(run, recipient, wire):
                return False
        run.pass_to(target + 1)
        return True

    async def _deliver_page(self, run: QueueRun) -> bool:
        """Returns whether the queue may go on now."""
        queue = run.queue
        wires, reached = await self._source.read(
            queue.chat_id, queue.next_sequence - 1, min(ENTRIES_PER_READ, run.left)
        )
        if reached < queue.next_sequence:
            log.warning("a queue ends beyond its log", chat_id=queue.chat_id, target=queue.target)
            run.pass_to(queue.target + 1)
            return True
        dead = await self._known_dead(queue, wires)
        for sequence, wire in wires.items():
            if sequence > queue.target:
                break
            run.pass_to(sequence)
            if sequence not in dead:
                recipient = await self._recipient(run)
                if recipient is None or not await self._deliver(run, recipient, wire):
                    return False
            run.pass_to(sequence + 1)
            if run.unnoted >= DELIVERIES_PER_COMMIT or run.was_careful:
                run.was_careful = False
                await self._note(run)
        run.pass_to(min(reached, queue.target) + 1)
        return True

    async def _known_dead(self, queue: DeliveryQueue, wires: dict[int, bytes]) -> set[int]:
        """Positions that are dead letters already: they are delivered by a replay alone."""
        ids = [
            dead_letter_id(queue.recipient, queue.chat_id, sequence, wire) for sequence, wire in wires.items()
        ]
        found = await self._dead_letters.find(Selection(ids=tuple(ids)), "", len(ids)) if ids else []
        return {dead_letter.sequence for dead_letter in found}

    async def _deliver(self, run: QueueRun, recipient: Recipient, wire: bytes) -> bool:
        """Returns whether the front is done with: delivered, or a dead letter."""
        killer = poison(run.queue.attempts) if run.careful_left else None
        if killer is not None:
            run.careful_left = 0
            await self._dead_letter(run, run.queue, wire, killer)
            return True
        gate = self._recipients.gate(run.queue.recipient)
        if gate is not Gate.OPEN and not run.is_probe:
            return await self._leave_in_peace(run, recipient, wire, gate)
        await self._prepare(run)
        queue = run.queue
        attempted = await self._attempts.attempt(recipient, queue.recipient, wire, queue.crashes)
        failure = attempted.failure
        if attempted.was_made and answers(failure):
            run.is_probe = False
            if await self._recipients.answered(queue.recipient):
                self.look_soon()
        if failure is None:
            self._metrics.delivery_outcomes.labels("delivered").inc()
            run.unnoted += 1
            return True
        now_ms = self._clock()
        since_ms = failing_since(queue, wire, self._recipients.health_of(queue.recipient), now_ms)
        failed = self._attempts.failed(
            failure,
            queue.attempts,
            retry_count=queue.retry_count,
            crashes=queue.crashes,
            failing_ms=now_ms - since_ms,
        )
        queue, wait_ms = replace(queue, attempts=failed.history, crashes=failed.crashes), failed.wait_ms
        due_ms = now_ms + (wait_ms or 0)
        if attempted.was_made and answers(failure) is False:
            is_probe, run.is_probe = run.is_probe, False
            health = await self._recipients.failed(
                queue.recipient, queue.chat_id, failure, wait_ms or 0, is_probe=is_probe
            )
            if health is not None and health.is_paused_everywhere:
                due_ms = max(due_ms, health.paused_until_ms)
        if wait_ms is None:
            await self._dead_letter(run, queue, wire, failure, since_ms)
            return True
        self._metrics.delivery_outcomes.labels("retried").inc()
        run.queue = replace(queue, retry_count=queue.retry_count + 1)
        await self._give_back(run, due_ms)
        await self._tell_retry(run.queue)
        return False

    async def _leave_in_peace(self, run: QueueRun, recipient: Recipient, wire: bytes, gate: Gate) -> bool:
        """Nothing is sent. As `_deliver`: what is given up without an attempt is done with."""
        queue, now_ms = run.queue, self._clock()
        health, give_up_ms = self._recipients.health_of(queue.recipient), self._policy.give_up_ms
        if gate is not Gate.GIVE_UP or health is None or give_up_ms is None:
            await self._give_back(run, 0)
            return False
        if not await is_wanted(recipient, wire):
            return True
        since_ms = failing_since(queue, wire, health, now_ms)
        if now_ms - since_ms < give_up_ms:
            await self._give_back(run, min(since_ms + give_up_ms, now_ms + GIVE_UP_LOOK_MS))
            return False
        held = DeliveryEvent(since_ms, HELD_BACK, health.error, health.detail)
        queue = replace(queue, attempts=without_begun(queue.attempts) or (held,))
        await self._dead_letter(
            run, queue, wire, DeliveryFailure(Fault(health.error), health.detail), since_ms
        )
        return True

    async def _prepare(self, run: QueueRun) -> None:
        """Renew a claim that runs out soon. After a death, note first which message is tried."""
        if run.careful_left:
            run.careful_left -= 1
            run.was_careful = not run.careful_left
            run.queue = replace(run.queue, attempts=self._attempts.begun(run.queue.attempts))
            await self._note(run)
        elif run.queue.due_ms - self._clock() < RENEW_MS:
            await self._note(run)

    async def _tell_retry(self, queue: DeliveryQueue) -> None:
        if self._topics is None:
            self.look_soon()
        else:
            await self._topics.tell_retry(queue)

    async def _dead_letter(
        self,
        run: QueueRun,
        queue: DeliveryQueue,
        wire: bytes,
        failure: DeliveryFailure,
        since_ms: int | None = None,
    ) -> None:
        """Other programs are told before it is durable: after a crash they are told again.

        `since_ms`: how long the queue has been failing, which counts for the next one too.
        """
        dead_letter = make_dead_letter(queue, wire, failure, self._clock(), self._kind.topic)
        if self._topics is not None:
            await self._topics.tell_dead(dead_letter, content_of(wire))
        await self._dead_letters.add(dead_letter)
        self._metrics.delivery_outcomes.labels("dead_lettered").inc()
        log.warning(
            "dead letter", dlq_id=dead_letter.dlq_id, error=dead_letter.error, recipient=dead_letter.recipient
        )
        run.pass_to(queue.next_sequence + 1)
        if since_ms is not None and failure.is_temporary and self._policy.give_up_ms is not None:
            held = DeliveryEvent(since_ms, HELD_BACK, failure.fault.value)
            run.queue = replace(run.queue, attempts=(held,))
        await self._note(run)


class QueueRun:
    """A queue while its task runs it, and how many deliveries are not noted durably yet.

    `is_probe`: its recipient is paused, and one attempt is to say whether it still is.
    """

    def __init__(self, queue: DeliveryQueue, careful_left: int, *, is_probe: bool) -> None:
        self.queue = queue
        self.is_probe = is_probe
        self.unnoted = 0
        self.careful_left = careful_left
        """How many attempts are noted before they begin: one of these messages may have killed a process."""
        self.was_careful = False
        """The last of these was just made: note that it is over."""
        self.is_over = False

    @property
    def left(self) -> int:
        return self.queue.target - self.queue.next_sequence + 1

    def collapse_to(self, sequence: int) -> None:
        """The front is this position now; what was tried before was tried for it."""
        self.queue = replace(self.queue, next_sequence=sequence)

    def pass_to(self, sequence: int) -> None:
        """The front is this position now; a new front has no past."""
        if sequence != self.queue.next_sequence:
            self.queue = replace(self.queue, next_sequence=sequence, retry_count=0, crashes=0, attempts=())
