"""Hop 3: drafts of all connections flow together into batches; outcomes and events flow out.

While one batch waits for the disk, the next one gathers; while that one waits, the first one's outcomes and
events are handed out. Senders are answered first, the events are published after that.

Every sender is answered in time, whatever the store does (`Answers`). What the store was not given yet is
taken back as not stored. The outcome of what it was given is unknown: the append goes on, and its sender does
not wait for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Protocol

import structlog

from parley.bus.ports import Bus, Confirm
from parley.clock import MS_PER_SECOND
from parley.errors import (
    OUTCOME_UNKNOWN,
    SERVICE_UNAVAILABLE,
    STORE_UNAVAILABLE,
    OutcomeUnknown,
    Refusal,
    Refused,
    StoreError,
    refusal_of,
)
from parley.model import Appended, AppendResult, Draft, Outcome
from parley.sending.answers import Answers, Done, WaitingDraft, late_of, take_late
from parley.sending.pending import EVERY_CHAT, PendingBatch, PendingSends
from parley.store.ports import DRAFTS_PER_APPEND_MAX, Batching, Log
from parley.telemetry import Metrics
from parley.wire.frames import RequestId
from parley.wire.limits import OUTBOX_BYTES_MAX

BATCH_CHARS_MAX = 512 * 1024
JSON_BYTES_PER_CHAR_MAX = 6
ENTRY_BYTES_BESIDE_CONTENT_MAX = 1_024
assert (
    BATCH_CHARS_MAX * JSON_BYTES_PER_CHAR_MAX + DRAFTS_PER_APPEND_MAX * ENTRY_BYTES_BESIDE_CONTENT_MAX
    < OUTBOX_BYTES_MAX
), "one commit's frame must fit into an empty outbox"

log = structlog.get_logger("parley.sending")


class Sender(Protocol):
    """Takes drafts: into this node's own log, or to the node that has the chat."""

    def submit(self, draft: Draft, request_id: RequestId, done: Done) -> None:
        """Take a draft; `done` hears its outcome, once and in time. Drafts of one chat keep their order."""
        ...

    async def send(self, draft: Draft) -> Appended:
        """The same for a caller that can wait; Refused with the refusal."""
        (outcome,) = await self.send_all([draft])
        if isinstance(outcome, Refusal):
            raise Refused(outcome)
        return outcome

    async def send_all(self, drafts: Sequence[Draft], heard: Done | None = None) -> list[Outcome]:
        """Submit a batch; the outcome of every draft, in their order. `heard` is called with each at once."""
        outcomes: dict[RequestId, Outcome] = {}
        complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(draft: Draft, index: RequestId, outcome: Outcome) -> None:
            outcomes[index] = outcome
            if len(outcomes) == len(drafts) and not complete.done():
                complete.set_result(None)
            if heard is not None:
                heard(draft, index, outcome)

        for index, draft in enumerate(drafts):
            self.submit(draft, index, done)
        await complete
        return [outcomes[index] for index in range(len(drafts))]


class QueuedDraft(WaitingDraft, eq=False):
    """`submitted_at`: for metrics alone."""

    submitted_at: float = 0.0


class DraftBatch(PendingBatch, eq=False, kw_only=True):
    """Drafts that the log was given, the oldest first."""

    key: str
    queued: list[QueuedDraft]

    def has(self, chat_id: str) -> bool:
        return any(queued.draft.chat_id == chat_id for queued in self.queued)


class LocalSender(Sender):
    """The one way into this node's own log.

    `batching`: how the log wants to be appended to. `confirm`: no send is acknowledged before its event is on
    the bus.
    """

    def __init__(
        self,
        log: Log,
        bus: Bus,
        pending: PendingSends,
        metrics: Metrics,
        batching: Batching,
        confirm: Confirm | None = None,
    ) -> None:
        self._log = log
        self._bus = bus
        self._pending = pending
        self._metrics = metrics
        self._confirm = confirm
        self._per_chat = batching.per_chat
        self._appends_max = batching.appends_at_once_max
        self._drafts_max = batching.drafts_max
        self._queues: dict[str, list[QueuedDraft]] = {}
        """By chat, or one for `EVERY_CHAT`. A chat keeps its queue, empty or not, while a batch is stored."""
        self._under_way: set[DraftBatch] = set()
        self._answers = Answers(self._give_up)
        self._ready_chats: deque[str] = deque()
        """Chats with drafts that no worker has taken up."""
        self._when_idle: dict[str, list[Callable[[], None]]] = {}
        self._wake = asyncio.Event()
        self._workers: set[asyncio.Task[None]] = set()
        self._confirming: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        if not self._per_chat:
            for _ in range(self._appends_max):
                self._start_worker(self._work())

    def _start_worker(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._workers.add(task)
        task.add_done_callback(self._workers.discard)

    async def stop(self) -> None:
        """Finish what was taken; refuse what comes now."""
        self._answers.is_closed = True
        self._wake.set()
        while self._workers or self._ready_chats:
            await asyncio.gather(*self._workers)
            await asyncio.sleep(0)  # a worker that has ended makes room for the next chat
        await asyncio.gather(*self._confirming)

    def submit(self, draft: Draft, request_id: RequestId, done: Done) -> None:
        refusal = self._answers.refusal
        if refusal is not None:
            done(draft, request_id, refusal)
            return
        queued = QueuedDraft(
            draft, request_id, done, self._answers.expect(), submitted_at=self._metrics.now()
        )
        key = draft.chat_id if self._per_chat else EVERY_CHAT
        queue = self._queues.get(key)
        if queue:  # a worker is at it
            queue.append(queued)
            return
        self._queues[key] = [queued]
        if queue is None and self._per_chat:
            self._ready_chats.append(key)
            self._start_chats()
        self._wake.set()

    def when_idle(self, chat_id: str, then: Callable[[], None]) -> bool:
        """Whether drafts of a chat wait or are being stored; then `then` is called when none is left."""
        if chat_id not in self._queues:
            return False
        self._when_idle.setdefault(chat_id, []).append(then)
        return True

    async def _work(self) -> None:
        """A worker for all chats: it hands out one batch's outcomes while the next waits for the disk."""
        stored: tuple[DraftBatch, AppendResult, float] | None = None
        while True:
            batch = self._next_batch(EVERY_CHAT, 0)
            if batch is not None:
                appending = asyncio.create_task(self._append(batch))
                if stored is not None:
                    await asyncio.sleep(0)  # the next batch is on its way to the disk meanwhile
                    self._answer(*stored)
                stored = batch, await appending, self._metrics.now()
            elif stored is not None:
                self._answer(*stored)
                stored = None
            elif self._answers.is_closed:
                return
            else:
                self._wake.clear()
                await self._wake.wait()

    def _start_chats(self) -> None:
        while self._ready_chats and len(self._workers) < self._appends_max:
            self._start_worker(self._work_on_chat(self._ready_chats.popleft()))

    async def _work_on_chat(self, chat_id: str) -> None:
        """A worker for one chat, for as long as it has drafts; each batch waits for the one before."""
        await asyncio.sleep(0)  # frames that arrived together make one batch
        after = 0
        while batch := self._next_batch(chat_id, after):
            self._queues.setdefault(chat_id, [])
            result = await self._append(batch)
            if result.persisted:
                after = result.persisted[-1].positions[-1].sequence
            self._answer(batch, result, self._metrics.now())
        for then in self._when_idle.pop(chat_id, ()):
            then()
        asyncio.get_running_loop().call_soon(self._start_chats)

    def _next_batch(self, key: str, after: int) -> DraftBatch | None:
        """What is queued, but no more than fits into one live frame; pending from here on."""
        queue = self._queues.pop(key, None)
        if not queue:
            return None
        chars = 0
        for count, queued in enumerate(queue):
            chars += queued.draft.chars
            if count == self._drafts_max or (chars > BATCH_CHARS_MAX and count):
                self._queues[key] = queue[count:]
                queue = queue[:count]
                break
        batch = DraftBatch(after=after, key=key, queued=queue)
        self._under_way.add(batch)
        self._pending.begin(key, batch)
        return batch

    async def _append(self, batch: DraftBatch) -> AppendResult:
        """A failed batch is one outcome for all: refused if nothing was written, else unknown."""
        drafts = [queued.draft for queued in batch.queued]
        try:
            return await self._log.append(drafts)
        except OutcomeUnknown:
            refusal = OUTCOME_UNKNOWN
        except StoreError as error:
            refusal = refusal_of(error)
            more = self._metrics.lines.admit(f"batch refused: {error}", asyncio.get_running_loop().time())
            if more is not None:
                log.warning("batch refused", drafts=len(drafts), error=str(error), **more)
        except Exception:
            refusal = OUTCOME_UNKNOWN
            log.exception("batch failed", drafts=len(drafts))
        return AppendResult([refusal] * len(drafts), [])

    def _answer(self, batch: DraftBatch, result: AppendResult, durable_at: float) -> None:
        if result.persisted:
            self._metrics.time_persist(durable_at - batch.queued[0].submitted_at)
        if self._confirm is None:
            self._finish(batch, result, durable_at)
        else:
            task = asyncio.create_task(self._confirm_and_finish(self._confirm, batch, result, durable_at))
            self._confirming.add(task)
            task.add_done_callback(self._confirming.discard)

    async def _confirm_and_finish(
        self, confirm: Confirm, batch: DraftBatch, result: AppendResult, durable_at: float
    ) -> None:
        """A retry waits for its original's event too: its first answer may have failed for lack of it."""
        through: dict[str, int] = {}
        for queued, outcome in zip(batch.queued, result.outcomes, strict=True):
            if isinstance(outcome, Appended):
                chat_id = queued.draft.chat_id
                through[chat_id] = max(outcome.sequence, through.get(chat_id, 0))
        try:
            late = await confirm(result.persisted, through)
        except Exception:
            log.exception("it is unknown whether news is on the bus", chats=list(through)[:10])
            late = dict.fromkeys(through, SERVICE_UNAVAILABLE)
        if late:
            result.outcomes = [
                late.get(queued.draft.chat_id, outcome) if isinstance(outcome, Appended) else outcome
                for queued, outcome in zip(batch.queued, result.outcomes, strict=True)
            ]
        self._finish(batch, result, durable_at)

    def _finish(self, batch: DraftBatch, result: AppendResult, durable_at: float) -> None:
        """Outcomes first, then events: listeners rely on this order."""
        waited_ms = round((durable_at - batch.queued[0].submitted_at) * MS_PER_SECOND)
        for news in result.persisted:
            news.waited_ms = waited_ms
        self._answers.give(batch.queued, result.outcomes)
        try:
            self._bus.publish(result.persisted)
        except Exception:
            log.exception(
                "news could not be published", chats=[news.chat_id for news in result.persisted][:10]
            )
        self._end(batch)
        self._metrics.fanout_seconds.observe(self._metrics.now() - durable_at)

    def _end(self, batch: DraftBatch) -> None:
        """Every sender in it has its answer."""
        self._under_way.discard(batch)
        self._pending.end(batch.key, batch)

    def _give_up(self, before: float) -> None:
        """What came before a time is refused where it is still queued: the store will never see it."""
        late = take_late(self._queues, before)
        self._answers.give_all(late, STORE_UNAVAILABLE)
        for batch in list(self._under_way):
            self._answers.give_all(late_of(batch.queued, before), OUTCOME_UNKNOWN)
            if batch.queued[-1].is_answered:
                self._end(batch)
