"""Hop 3: drafts of all connections flow together into batches; answers and news flow out.

While one batch waits for the disk, the next one gathers; while that one waits, the first one's acks
and news are handed out. A sender always hears of its own message before it sees the entry.

Every sender is answered in time, whatever the store does: a watch looks at what waits a few times a second.
What the store was not given yet is taken back; of what it was given nobody knows, and it goes on without
anybody waiting for it.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Coroutine
from typing import NamedTuple, Protocol

import structlog

from parley.bus.ports import Bus, Confirm
from parley.errors import (
    BUSY,
    OUTCOME_UNKNOWN,
    SERVICE_UNAVAILABLE,
    SHUTTING_DOWN,
    STORE_UNAVAILABLE,
    OutcomeUnknown,
    Refusal,
    Refused,
    StoreError,
)
from parley.model import Appended, AppendResult, Draft, Outcome
from parley.store.ports import APPEND_SECONDS_MAX, Log
from parley.telemetry import Metrics
from parley.wire.frames import RequestId
from parley.wire.limits import ANSWER_SECONDS_MAX, OUTBOX_BYTES_MAX

BATCH_DRAFTS_MAX = 512
BATCH_LETTERS_MAX = 512 * 1024
JSON_BYTES_PER_LETTER_MAX = 6
ENTRY_BYTES_BESIDE_CONTENT_MAX = 1_024
assert (
    BATCH_LETTERS_MAX * JSON_BYTES_PER_LETTER_MAX + BATCH_DRAFTS_MAX * ENTRY_BYTES_BESIDE_CONTENT_MAX
    < OUTBOX_BYTES_MAX
), "one commit's frame must fit into an empty outbox"
WAITING_DRAFTS_MAX = 100_000
CHATS_UNDER_WAY_MAX = 256
EVERY_CHAT = ""
"""The name of the queue that all chats share."""
SEND_SECONDS_MAX = 3.25
"""A draft that is older is answered without the store."""
WATCH_SECONDS = 0.25
NEWS_HELD_MAX = 1_000
assert APPEND_SECONDS_MAX < SEND_SECONDS_MAX, "what the store knows of an append is told, not guessed"
assert SEND_SECONDS_MAX + 2 * WATCH_SECONDS < ANSWER_SECONDS_MAX, "there is time to tell it"

log = structlog.get_logger("parley.sending")

Done = Callable[[Draft, RequestId, Outcome], None]
Tell = Callable[[], None]


class Sender(Protocol):
    """Whoever takes drafts: this node's own log, or the node that has the chat."""

    def submit(self, draft: Draft, request_id: RequestId, done: Done) -> None:
        """Take a draft; `done` hears its outcome, once and in time. Drafts of one chat keep their order."""
        ...

    def hold(self, chat_id: str, through: int, tell: Tell) -> bool:
        """Whether news of a chat up to a position waits for the answers to drafts that may be in it.

        Then `tell` is called after those answers: on each socket the ack precedes its own entry.
        """
        ...

    async def send(self, draft: Draft) -> Appended:
        """The same for whoever can wait; Refused with the refusal."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def done(_: Draft, __: RequestId, outcome: Outcome) -> None:
            if not future.done():
                future.set_result(outcome)

        self.submit(draft, None, done)
        outcome = await future
        if isinstance(outcome, Refusal):
            raise Refused(outcome)
        return outcome


class Waiting(NamedTuple):
    """A draft and who waits for its outcome.

    `since`: the loop's time at the watch's last look before it came. `submitted_at`: for metrics alone.
    """

    draft: Draft
    request_id: RequestId
    done: Done
    since: float
    submitted_at: float


class HeldNews:
    """What is told once the batches that were under way when it came are answered."""

    __slots__ = ("batches", "tell")

    def __init__(self, tell: Tell, batches: int) -> None:
        self.tell = tell
        self.batches = batches


class Batch:
    """Drafts that the log was given, the oldest first. `told`: how many of them have their answer.

    `after`: what stands at or before this position of the chat is none of these.
    """

    __slots__ = ("after", "held", "told", "waiting")

    def __init__(self, waiting: list[Waiting], after: int) -> None:
        self.waiting = waiting
        self.after = after
        self.told = 0
        self.held: list[HeldNews] = []


class Sending(Sender):
    """The one way into the log.

    `lanes`: how many batches over all chats may be under way at once. 0: one per chat instead, each with at
    most `batch_drafts_max` drafts, for a log that commits chat by chat. `confirm`: nothing is acknowledged
    before its event is on the bus.
    """

    def __init__(
        self,
        log: Log,
        bus: Bus,
        metrics: Metrics,
        lanes: int = 1,
        batch_drafts_max: int = BATCH_DRAFTS_MAX,
        confirm: Confirm | None = None,
    ) -> None:
        self._log = log
        self._bus = bus
        self._metrics = metrics
        self._confirm = confirm
        self._lane_count = lanes
        self._batch_drafts_max = batch_drafts_max
        self._waiting_count = 0
        self._queues: dict[str, list[Waiting]] = {}
        self._under_way: dict[str, list[Batch]] = {}
        """By the name of their queue, until they are answered."""
        self._now = 0.0
        self._watch: asyncio.TimerHandle | None = None
        self._idle: deque[str] = deque()
        self._on_idle: dict[str, list[Tell]] = {}
        self._wake = asyncio.Event()
        self._lanes: set[asyncio.Task[None]] = set()
        self._confirming: set[asyncio.Task[None]] = set()
        self._stopping = False

    def start(self) -> None:
        for _ in range(self._lane_count):
            self._add_lane(self._run_lane())

    def _add_lane(self, lane: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(lane)
        self._lanes.add(task)
        task.add_done_callback(self._lanes.discard)

    async def stop(self) -> None:
        """Finish what was taken; refuse what comes now."""
        self._stopping = True
        self._wake.set()
        while self._lanes or self._idle:
            await asyncio.gather(*self._lanes)
            await asyncio.sleep(0)  # a lane that has ended makes room for the next chat
        await asyncio.gather(*self._confirming)

    def submit(self, draft: Draft, request_id: RequestId, done: Done) -> None:
        """Take a draft; `done` hears its outcome, once."""
        if self._stopping:
            done(draft, request_id, SHUTTING_DOWN)
        elif self._waiting_count >= WAITING_DRAFTS_MAX:
            done(draft, request_id, BUSY)
        else:
            self._waiting_count += 1
            if self._watch is None:
                self._watch_on()
            self._enqueue(Waiting(draft, request_id, done, self._now, self._metrics.now()))

    def hold(self, chat_id: str, through: int, tell: Tell) -> bool:
        """As `Sender` promises. A draft that the log was not given yet cannot be in the news."""
        batches = [
            batch
            for batch in self._under_way.get(EVERY_CHAT if self._lane_count else chat_id, ())
            if batch.after < through and (not self._lane_count or _is_in(chat_id, batch))
        ]
        held = HeldNews(tell, len(batches))
        for batch in batches:
            batch.held.append(held)
            if len(batch.held) >= NEWS_HELD_MAX:
                _release(batch)
        return bool(batches)

    def when_idle(self, chat_id: str, tell: Tell) -> bool:
        """Whether drafts of a chat wait or are being stored; then `tell` is called when none is left."""
        if chat_id not in self._queues:
            return False
        self._on_idle.setdefault(chat_id, []).append(tell)
        return True

    def _enqueue(self, waiting: Waiting) -> None:
        name = EVERY_CHAT if self._lane_count else waiting.draft.chat_id
        queue = self._queues.get(name)
        if queue is not None:
            queue.append(waiting)
        else:
            self._queues[name] = [waiting]
            if not self._lane_count:
                self._idle.append(name)
                self._start_chats()
        self._wake.set()

    async def _run_lane(self) -> None:
        """A lane over all chats; it hands out one batch's answers while the next waits for the disk."""
        told: tuple[Batch, AppendResult, float] | None = None
        now = self._metrics.now
        while True:
            waiting = self._take(EVERY_CHAT)
            if waiting:
                batch = self._begin(EVERY_CHAT, waiting, 0)
                appending = asyncio.create_task(self._append(batch))
                if told is not None:
                    await asyncio.sleep(0)  # the next batch is on its way to the disk meanwhile
                    self._answer(*told)
                told = batch, await appending, now()
            elif told is not None:
                self._answer(*told)
                told = None
            elif self._stopping:
                return
            else:
                self._wake.clear()
                await self._wake.wait()

    def _start_chats(self) -> None:
        while self._idle and len(self._lanes) < CHATS_UNDER_WAY_MAX:
            self._add_lane(self._run_chat(self._idle.popleft()))

    async def _run_chat(self, chat_id: str) -> None:
        """A lane of one chat, for as long as it has drafts; each batch waits for the one before."""
        await asyncio.sleep(0)  # frames that arrived together make one batch
        after = 0
        while waiting := self._take(chat_id):
            self._queues.setdefault(chat_id, [])
            batch = self._begin(chat_id, waiting, after)
            result = await self._append(batch)
            if result.persisted:
                after = result.persisted[-1].positions[-1].sequence
            self._answer(batch, result, self._metrics.now())
        for tell in self._on_idle.pop(chat_id, ()):
            tell()
        asyncio.get_running_loop().call_soon(self._start_chats)

    def _take(self, name: str) -> list[Waiting]:
        """The next batch: no more than fits into one live frame."""
        queue = self._queues.pop(name, [])
        letters = 0
        for count, waiting in enumerate(queue):
            letters += len(waiting.draft.content)
            if count == self._batch_drafts_max or (letters > BATCH_LETTERS_MAX and count):
                self._queues[name] = queue[count:]
                queue = queue[:count]
                break
        self._waiting_count -= len(queue)
        return queue

    def _begin(self, name: str, waiting: list[Waiting], after: int) -> Batch:
        batch = Batch(waiting, after)
        self._under_way.setdefault(name, []).append(batch)
        return batch

    async def _append(self, batch: Batch) -> AppendResult:
        """A failed batch is one outcome for all: refused if nothing was written, else unknown."""
        drafts = [waiting.draft for waiting in batch.waiting]
        try:
            return await self._log.append(drafts)
        except OutcomeUnknown:
            refusal = OUTCOME_UNKNOWN
        except StoreError as error:
            refusal = STORE_UNAVAILABLE
            more = self._metrics.lines.admit(f"batch refused: {error}", asyncio.get_running_loop().time())
            if more is not None:
                log.warning("batch refused", drafts=len(drafts), error=str(error), **more)
        except Exception:
            refusal = OUTCOME_UNKNOWN
            log.exception("batch failed", drafts=len(drafts))
        return AppendResult([refusal] * len(drafts), [])

    def _answer(self, batch: Batch, result: AppendResult, durable_at: float) -> None:
        if result.persisted:
            self._metrics.time_persist(durable_at - batch.waiting[0].submitted_at)
        if self._confirm is None:
            self._tell(batch, result, durable_at)
        else:
            task = asyncio.create_task(self._confirm_and_tell(self._confirm, batch, result, durable_at))
            self._confirming.add(task)
            task.add_done_callback(self._confirming.discard)

    async def _confirm_and_tell(
        self, confirm: Confirm, batch: Batch, result: AppendResult, durable_at: float
    ) -> None:
        """A retry waits for its original's event too: that may be what its first answer lacked."""
        through: dict[str, int] = {}
        for waiting, outcome in zip(batch.waiting, result.outcomes, strict=True):
            if isinstance(outcome, Appended):
                chat_id = waiting.draft.chat_id
                through[chat_id] = max(outcome.sequence, through.get(chat_id, 0))
        try:
            late = await confirm(result.persisted, through)
        except Exception:
            log.exception("nobody knows whether news is on the bus", chats=list(through)[:10])
            late = dict.fromkeys(through, SERVICE_UNAVAILABLE)
        if late:
            result.outcomes = [
                late.get(waiting.draft.chat_id, outcome) if isinstance(outcome, Appended) else outcome
                for waiting, outcome in zip(batch.waiting, result.outcomes, strict=True)
            ]
        self._tell(batch, result, durable_at)

    def _tell(self, batch: Batch, result: AppendResult, durable_at: float) -> None:
        """Acks first, then news: on each socket the sender's ack precedes its own entry."""
        if batch.told:
            rest = slice(batch.told, None)
            told = zip(batch.waiting[rest], result.outcomes[rest], strict=True)
        else:
            told = zip(batch.waiting, result.outcomes, strict=True)
        for waiting, outcome in told:
            _hand_out(waiting, outcome)
        self._end(batch)
        try:
            self._bus.publish(result.persisted)
        except Exception:
            log.exception("news could not be told", chats=[news.chat_id for news in result.persisted][:10])
        _release(batch)
        self._metrics.fanout_seconds.observe(self._metrics.now() - durable_at)

    def _end(self, batch: Batch) -> None:
        """Everybody who waited for it has an answer."""
        if batch.told == len(batch.waiting):
            return
        batch.told = len(batch.waiting)
        name = EVERY_CHAT if self._lane_count else batch.waiting[0].draft.chat_id
        batches = self._under_way[name]
        batches.remove(batch)
        if not batches:
            del self._under_way[name]

    # In time

    def _watch_on(self) -> None:
        loop = asyncio.get_running_loop()
        self._now = loop.time()
        self._watch = loop.call_later(WATCH_SECONDS, self._look)

    def _look(self) -> None:
        """Answer whoever has waited for too long; look again for as long as anybody waits."""
        self._watch = None
        if not self._waiting_count and not self._under_way:
            return
        self._watch_on()
        before = self._now - SEND_SECONDS_MAX
        refused, unknown = self._take_back(before), self._give_up(before)
        if refused or unknown:
            log.warning("sends not answered in time", refused=refused, unknown=unknown)

    def _take_back(self, before: float) -> int:
        """Refuse what came before a time and still waits for its turn: the store will never see it."""
        refused = 0
        for name, queue in list(self._queues.items()):
            late = _count_late(queue, before)
            if late:
                self._queues[name] = queue[late:]
                self._waiting_count -= late
                refused += late
                for waiting in queue[:late]:
                    _hand_out(waiting, STORE_UNAVAILABLE)
        return refused

    def _give_up(self, before: float) -> int:
        """Answer what came before a time and is under way: perhaps it is stored, perhaps it will be."""
        unknown = 0
        for batch in [batch for batches in self._under_way.values() for batch in batches]:
            late = _count_late(batch.waiting, before)
            if late > batch.told:
                unknown += late - batch.told
                for waiting in batch.waiting[batch.told : late]:
                    _hand_out(waiting, OUTCOME_UNKNOWN)
                if late == len(batch.waiting):
                    self._end(batch)
                    _release(batch)
                else:
                    batch.told = late
        return unknown


def _hand_out(waiting: Waiting, outcome: Outcome) -> None:
    """A listener that fails is our fault and is logged; those after it, and the lane, must not suffer."""
    try:
        waiting.done(waiting.draft, waiting.request_id, outcome)
    except Exception:
        log.exception("an outcome could not be told", request_id=waiting.draft.request_id)


def _release(batch: Batch) -> None:
    """Tell what waited for this batch, and for no other that is still under way."""
    held, batch.held = batch.held, []
    for news in held:
        news.batches -= 1
        if not news.batches:
            try:
                news.tell()
            except Exception:
                log.exception("news could not be told", chat=batch.waiting[0].draft.chat_id)


def _count_late(waiting: list[Waiting], before: float) -> int:
    """How many came before a time; they are in the order in which they came."""
    if not waiting or waiting[0].since > before:
        return 0
    return bisect_right(waiting, before, key=lambda one: one.since)


def _is_in(chat_id: str, batch: Batch) -> bool:
    return any(waiting.draft.chat_id == chat_id for waiting in batch.waiting)
