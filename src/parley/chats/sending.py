"""Hop 3: drafts of all connections flow together into batches; answers and news flow out.

While one batch waits for the disk, the next one gathers; while that one waits, the first one's acks
and news are handed out. A sender always hears of its own message before it sees the entry.
"""

from __future__ import annotations

import asyncio
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
from parley.store.ports import Log
from parley.telemetry import Metrics
from parley.wire.frames import RequestId
from parley.wire.limits import OUTBOX_BYTES_MAX

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

log = structlog.get_logger("parley.sending")

Done = Callable[[Draft, RequestId, Outcome], None]


class Sender(Protocol):
    """Whoever takes drafts: this node's own log, or the node that has the chat."""

    def submit(self, draft: Draft, request_id: RequestId, done: Done) -> None:
        """Take a draft; `done` hears its outcome, once. Drafts of one chat keep their order."""
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
    draft: Draft
    request_id: RequestId
    done: Done
    since: float


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
        self._idle: deque[str] = deque()
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
            self._enqueue(Waiting(draft, request_id, done, asyncio.get_running_loop().time()))

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
        told: tuple[list[Waiting], AppendResult, float] | None = None
        now = asyncio.get_running_loop().time
        while True:
            batch = self._take(EVERY_CHAT)
            if batch:
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
        while batch := self._take(chat_id):
            self._queues.setdefault(chat_id, [])
            result = await self._append(batch)
            self._answer(batch, result, asyncio.get_running_loop().time())
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

    async def _append(self, batch: list[Waiting]) -> AppendResult:
        """A failed batch is one outcome for all: refused if nothing was written, else unknown."""
        try:
            return await self._log.append([waiting.draft for waiting in batch])
        except OutcomeUnknown:
            refusal = OUTCOME_UNKNOWN
        except StoreError as error:
            refusal = STORE_UNAVAILABLE
            log.warning("batch refused", drafts=len(batch), error=str(error))
        except Exception:
            refusal = OUTCOME_UNKNOWN
            log.exception("batch failed", drafts=len(batch))
        return AppendResult([refusal] * len(batch), [])

    def _answer(self, batch: list[Waiting], result: AppendResult, durable_at: float) -> None:
        if result.persisted:
            self._metrics.time_persist(durable_at - batch[0].since)
        if self._confirm is None:
            self._tell(batch, result, durable_at)
        else:
            task = asyncio.create_task(self._confirm_and_tell(self._confirm, batch, result, durable_at))
            self._confirming.add(task)
            task.add_done_callback(self._confirming.discard)

    async def _confirm_and_tell(
        self, confirm: Confirm, batch: list[Waiting], result: AppendResult, durable_at: float
    ) -> None:
        """A retry waits for its original's event too: that may be what its first answer lacked."""
        through: dict[str, int] = {}
        for waiting, outcome in zip(batch, result.outcomes, strict=True):
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
                for waiting, outcome in zip(batch, result.outcomes, strict=True)
            ]
        self._tell(batch, result, durable_at)

    def _tell(self, batch: list[Waiting], result: AppendResult, durable_at: float) -> None:
        """Acks first, then news: on each socket the sender's ack precedes its own entry.

        A listener that fails is our fault and is logged; those after it, and the lane, must not suffer.
        """
        for waiting, outcome in zip(batch, result.outcomes, strict=True):
            try:
                waiting.done(waiting.draft, waiting.request_id, outcome)
            except Exception:
                log.exception("an outcome could not be told", request_id=waiting.draft.request_id)
        try:
            self._bus.publish(result.persisted)
        except Exception:
            log.exception("news could not be told", chats=[news.chat_id for news in result.persisted][:10])
        self._metrics.fanout_seconds.observe(asyncio.get_running_loop().time() - durable_at)
