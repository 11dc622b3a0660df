"""Hop 3 through a topic: drafts are buffered in front of the log, and their outcomes come back by a call.

The ack still waits for the store. A draft that was given to the topic may be stored at any time, so a sender
who has waited too long is told that the outcome is unknown, never that nothing was stored. Only a draft with
a client's id goes this way: the log recognises it, however often it is appended. Changes of members have none
and go directly, after the messages of their chat that were sent before them. See docs/ingest.md.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

import structlog
from msgspec import Struct, field

from parley.bus.ports import BufferedDraft, DraftQueue, ReplyAddress
from parley.clock import Clock
from parley.errors import OUTCOME_UNKNOWN, STORE_UNAVAILABLE, OutcomeUnknown, StoreUnavailable
from parley.model import Draft, Outcome
from parley.sending.answers import Answers, Done, WaitingDraft, take_late
from parley.sending.forwarder import CALL_CHARS_MAX
from parley.sending.pending import PendingBatch, PendingSends
from parley.sending.sender import Sender
from parley.store.ports import DRAFTS_PER_APPEND_MAX
from parley.telemetry import Metrics
from parley.wire.frames import RequestId

log = structlog.get_logger("parley.sending")


class PutBatch(PendingBatch, eq=False, kw_only=True):
    """The drafts of one chat that were given to the topic together, and how many wait for their outcome."""

    waiting: int = 0


class TopicDraft(WaitingDraft, eq=False):
    """`batch`: it was given to the topic with these."""

    batch: PutBatch | None = None


class ChatQueue(Struct, eq=False):
    """What waits for its turn in a chat, and how many are under way by each of the two ways."""

    waiting: deque[TopicDraft] = field(default_factory=deque)
    buffered: int = 0
    direct: int = 0


class BusSender(Sender):
    """`direct`: the way of drafts without a client's id. `address`: where outcomes are to be sent."""

    def __init__(
        self,
        direct: Sender,
        queue: DraftQueue,
        address: Callable[[], ReplyAddress],
        pending: PendingSends,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._direct = direct
        self._queue = queue
        self._address = address
        self._pending = pending
        self._metrics = metrics
        self._chats: dict[str, ChatQueue] = {}
        self._partitions: dict[int, list[TopicDraft]] = {}
        """Drafts that may go to the topic. A partition is here while its writer runs."""
        self._buffered: dict[int, TopicDraft] = {}
        """By ticket: those that the topic was given."""
        self._last_ticket = 0
        self._answers = Answers(self._give_up)
        self._writers: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """Refuse what comes now; every sender has an answer when it returns."""
        self._answers.is_closed = True
        await self._answers.finish()
        for writer in self._writers:
            writer.cancel()
        await asyncio.gather(*self._writers, return_exceptions=True)

    def submit(self, draft: Draft, request_id: RequestId, done: Done) -> None:
        refusal = self._answers.refusal
        if refusal is not None:
            done(draft, request_id, refusal)
            return
        chat = self._chats.setdefault(draft.chat_id, ChatQueue())
        chat.waiting.append(TopicDraft(draft, request_id, done, self._answers.expect()))
        self._advance(draft.chat_id, chat)

    def _advance(self, chat_id: str, chat: ChatQueue) -> None:
        """Send on what may go now: drafts by one way wait for those before them by the other."""
        while chat.waiting:
            one = chat.waiting[0]
            if one.draft.client_key is None:
                if chat.buffered:
                    break
                chat.direct += 1
                chat.waiting.popleft()
                self._direct.submit(one.draft, one.request_id, partial(self._direct_done, one))
            else:
                if chat.direct:
                    break
                chat.buffered += 1
                chat.waiting.popleft()
                self._enqueue(one)
        if not (chat.waiting or chat.buffered or chat.direct):
            self._chats.pop(chat_id, None)

    def _direct_done(self, one: TopicDraft, _: Draft, __: RequestId, outcome: Outcome) -> None:
        self._answers.give((one,), (outcome,))
        chat = self._chats[one.draft.chat_id]
        chat.direct -= 1
        self._advance(one.draft.chat_id, chat)

    # Into the topic

    def _enqueue(self, one: TopicDraft) -> None:
        partition = self._queue.partition_of(one.draft.chat_id)
        queue = self._partitions.get(partition)
        if queue is not None:
            queue.append(one)
            return
        self._partitions[partition] = [one]
        writer = asyncio.create_task(self._write(partition))
        self._writers.add(writer)
        writer.add_done_callback(self._writers.discard)

    async def _write(self, partition: int) -> None:
        """One batch after the other: so drafts of a chat are in the topic in their order."""
        await asyncio.sleep(0)  # frames that arrived together make one batch
        while batch := self._next_batch(partition):
            tickets = range(self._last_ticket + 1, self._last_ticket + 1 + len(batch))
            self._last_ticket += len(batch)
            self._begin(batch)
            self._buffered.update(zip(tickets, batch, strict=True))
            address, now_ms = self._address(), self._clock()
            drafts = [
                BufferedDraft(one.draft, ticket, address, now_ms)
                for ticket, one in zip(tickets, batch, strict=True)
            ]
            try:
                await self._queue.put(partition, drafts)
            except StoreUnavailable as error:
                self._note_failure(error, len(batch))
                self.settle((ticket, STORE_UNAVAILABLE) for ticket in tickets)
            except OutcomeUnknown as error:  # it may be in the topic: its outcome may still come
                self._note_failure(error, len(batch))
            except Exception:
                log.exception("drafts could not be buffered", drafts=len(batch))
                self.settle((ticket, OUTCOME_UNKNOWN) for ticket in tickets)
        del self._partitions[partition]

    def _next_batch(self, partition: int) -> list[TopicDraft]:
        queue = self._partitions[partition]
        chars = count = 0
        while count < min(len(queue), DRAFTS_PER_APPEND_MAX) and chars < CALL_CHARS_MAX:
            chars += len(queue[count].draft.content)
            count += 1
        batch, self._partitions[partition] = queue[:count], queue[count:]
        return batch

    def _begin(self, batch: list[TopicDraft]) -> None:
        """From here on their entries may arrive, and wait for their acks."""
        found: dict[str, PutBatch] = {}
        for one in batch:
            chat_id = one.draft.chat_id
            if chat_id not in found:
                found[chat_id] = PutBatch()
                self._pending.begin(chat_id, found[chat_id])
            one.batch = found[chat_id]
            one.batch.waiting += 1

    def _note_failure(self, error: Exception, drafts: int) -> None:
        now = asyncio.get_running_loop().time()
        if (more := self._metrics.lines.admit("drafts not buffered", now)) is not None:
            log.warning("drafts not buffered", drafts=drafts, error=str(error), **more)

    # Outcomes

    def settle(self, outcomes: Iterable[tuple[int, Outcome]]) -> None:
        """Answer the senders of these tickets. An outcome that comes too late says nothing any more."""
        for ticket, outcome in outcomes:
            one = self._buffered.pop(ticket, None)
            if one is not None:
                self._end_buffered(one, outcome)

    def _end_buffered(self, one: TopicDraft, outcome: Outcome) -> None:
        """The ack first, then the entries that waited for it, then what waited for its turn."""
        self._answers.give((one,), (outcome,))
        chat_id, batch = one.draft.chat_id, one.batch
        if batch is not None:
            batch.waiting -= 1
            if not batch.waiting:
                self._pending.end(chat_id, batch)
        chat = self._chats[chat_id]
        chat.buffered -= 1
        self._advance(chat_id, chat)

    def _give_up(self, before: float) -> None:
        """What came before a time is taken back if the topic was not given it. Of the rest the outcome is
        unknown.
        """
        for one in take_late(self._partitions, before):
            self._end_buffered(one, STORE_UNAVAILABLE)
        self.settle([(t, OUTCOME_UNKNOWN) for t, one in self._buffered.items() if one.since <= before])
        for chat in list(self._chats.values()):
            while chat.waiting and chat.waiting[0].since <= before:
                self._answers.give((chat.waiting.popleft(),), (STORE_UNAVAILABLE,))
