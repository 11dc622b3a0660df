"""Hop 3: drafts of all connections flow together into batches; answers and news flow out.

While one batch waits for the disk, the next one gathers; while that one waits, the first one's acks
and news are handed out. A sender always hears of its own message before it sees the entry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Protocol

import structlog

from parley.bus.ports import Bus
from parley.errors import (
    BUSY,
    OUTCOME_UNKNOWN,
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

log = structlog.get_logger("parley.sending")

Done = Callable[[Draft, RequestId, Outcome], None]


class Sender(Protocol):
    """Whoever takes drafts: this node's own log, or the node that has the chat."""

    def submit(self, draft: Draft, request_id: RequestId, done: Done) -> None:
        """Take a draft; `done` hears its outcome, once. Drafts of one chat keep their order."""
        ...

    async def send(self, draft: Draft) -> Appended:
        """The same for whoever can wait; Refused with the refusal."""
        ...


class Waiting(NamedTuple):
    draft: Draft
    request_id: RequestId
    done: Done


class Sending:
    """The one way into the log."""

    def __init__(self, log: Log, bus: Bus, metrics: Metrics, lanes: int = 1) -> None:
        self._log = log
        self._bus = bus
        self._metrics = metrics
        self._lane_count = lanes
        self._waiting: list[Waiting] = []
        self._wake = asyncio.Event()
        self._lanes: list[asyncio.Task[None]] = []
        self._stopping = False

    def start(self) -> None:
        self._lanes = [asyncio.create_task(self._run_lane()) for _ in range(self._lane_count)]

    async def stop(self) -> None:
        """Finish what was taken; refuse what comes now."""
        self._stopping = True
        self._wake.set()
        await asyncio.gather(*self._lanes)

    def submit(self, draft: Draft, request_id: RequestId, done: Done) -> None:
        """Take a draft; `done` hears its outcome, once."""
        if self._stopping:
            done(draft, request_id, SHUTTING_DOWN)
        elif len(self._waiting) >= WAITING_DRAFTS_MAX:
            done(draft, request_id, BUSY)
        else:
            self._waiting.append(Waiting(draft, request_id, done))
            self._wake.set()

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

    async def _run_lane(self) -> None:
        told: tuple[list[Waiting], AppendResult, float] | None = None
        now = asyncio.get_running_loop().time
        while True:
            batch = self._take()
            if batch:
                appending = asyncio.create_task(self._append(batch))
                if told is not None:
                    await asyncio.sleep(0)  # the next batch is on its way to the disk meanwhile
                    self._tell(*told)
                told = batch, await appending, now()
            elif told is not None:
                self._tell(*told)
                told = None
            elif self._stopping:
                return
            else:
                self._wake.clear()
                await self._wake.wait()

    def _take(self) -> list[Waiting]:
        """The next batch: no more than fits into one live frame."""
        letters = 0
        for count, waiting in enumerate(self._waiting):
            letters += len(waiting.draft.content)
            if count == BATCH_DRAFTS_MAX or (letters > BATCH_LETTERS_MAX and count):
                batch, self._waiting = self._waiting[:count], self._waiting[count:]
                return batch
        batch, self._waiting = self._waiting, []
        return batch

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
