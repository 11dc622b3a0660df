"""Hop 3 where another node has the chat: its drafts travel there in acknowledged batches.

Each chat has one batch under way at a time, and later drafts wait behind it. So a chat keeps its order even
when its owner changes. If a node fails, its drafts go to the next node or into this node's own log. That is
safe because every log recognises a message by its client's id; a draft without one is never sent twice. Which
node owns a chat matters only for speed. See docs/cluster.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Protocol

import structlog
from msgspec import Struct, field

from parley.errors import (
    BUSY,
    INTERNAL,
    OUTCOME_UNKNOWN,
    SHUTTING_DOWN,
    STORE_DAMAGED,
    STORE_UNAVAILABLE,
    OutcomeUnknown,
    Refusal,
    StoreError,
)
from parley.model import Draft, Outcome
from parley.sending.answers import SEND_SECONDS_MAX, Answers, Done, WaitingDraft, late_of, take_late
from parley.sending.pending import PendingBatch, PendingSends
from parley.sending.sender import LocalSender, Sender
from parley.store.ports import DRAFTS_PER_APPEND_MAX
from parley.telemetry import Metrics
from parley.wire.frames import RequestId

CALLS_PER_NODE_MAX = 4
CALL_CHARS_MAX = 192 * 1024
"""Less than a megabyte, even of characters that take four bytes: it is sent and checked in little time."""
CHAT_DRAFTS_PER_CALL_MAX = 98
"""Two transactions of DynamoDB: a hot chat does not delay the other chats of its batch for long."""
RETRY_WITHIN_SECONDS = 2.5
"""An older draft is not sent to another node: its sender must be answered in time."""
TRIES_MAX = 5
assert RETRY_WITHIN_SECONDS < SEND_SECONDS_MAX, "what is sent elsewhere can still be answered in time"
NOTHING_LOOKED_UP = frozenset(
    refusal.code for refusal in (BUSY, INTERNAL, SHUTTING_DOWN, STORE_DAMAGED, STORE_UNAVAILABLE)
)
"""Refusals given without looking whether an earlier try was stored."""

log = structlog.get_logger("parley.forwarding")


class Peers(Protocol):
    """The other nodes, as a sender of drafts sees them."""

    def owner_of(self, chat_id: str) -> str | None:
        """The node that appends to this chat, perhaps this one; None while no node can."""
        ...

    async def append(self, node_id: str, drafts: Sequence[Draft]) -> list[Outcome]:
        """Have another node append; the outcome of every draft, in their order.

        StoreUnavailable: it stored nothing. OutcomeUnknown: it may have. A node that could not be reached or
        did not answer is not returned by `owner_of` for a while.
        """
        ...


class ForwardedDraft(WaitingDraft, eq=False):
    """A draft on its way. `is_unknown`: a node was given it and never answered, so it may be stored."""

    tries: int = 0
    is_unknown: bool = False


class Destination(Struct, eq=False):
    """One node, this one or another: chats whose drafts may go there, and how many calls are under way."""

    ready_chats: deque[str] = field(default_factory=deque)
    calls: int = 0
    is_starting: bool = False


class Forwarder(Sender):
    """Takes every draft; appends what is this node's own, forwards the rest.

    `local`: this node's way into the log; None on a node that does not append.
    """

    def __init__(
        self,
        node_id: str,
        local: LocalSender | None,
        peers: Peers,
        pending: PendingSends,
        metrics: Metrics,
    ) -> None:
        self._node_id = node_id
        self._local = local
        self._peers = peers
        self._pending = pending
        self._metrics = metrics
        self._queues: dict[str, list[ForwardedDraft]] = {}
        """By chat. A chat keeps its queue, empty or not, while a batch of it is under way."""
        self._answers = Answers(self._give_up)
        self._pending_chats: dict[str, PendingBatch] = {}
        """Chats of which another log may hold drafts that are not answered."""
        self._under_way: dict[int, list[ForwardedDraft]] = {}
        self._destinations: dict[str, Destination] = {}
        self._calls: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """Finish what was taken; refuse what comes now. Call it before the local sender stops."""
        self._answers.is_closed = True
        while self._calls:
            await asyncio.gather(*self._calls)

    def submit(self, draft: Draft, request_id: RequestId, done: Done) -> None:
        chat_id = draft.chat_id
        queue = self._queues.get(chat_id)
        refusal = self._answers.refusal
        if refusal is not None:
            done(draft, request_id, refusal)
        elif queue is None and self._local is not None and self._peers.owner_of(chat_id) == self._node_id:
            self._local.submit(draft, request_id, done)
        else:
            forwarded = ForwardedDraft(draft, request_id, done, self._answers.expect())
            if queue is not None:
                queue.append(forwarded)
                return
            self._queues[chat_id] = [forwarded]
            # What this node took for its own log comes first, though the chat has another owner by now.
            route = partial(self._route, chat_id)
            if self._local is None or not self._local.when_idle(chat_id, route):
                route()

    def _route(self, chat_id: str) -> None:
        """Queue a chat with nothing under way for the node that owns it now."""
        queue = self._queues[chat_id]
        node_id = self._peers.owner_of(chat_id)
        if node_id is None or (node_id == self._node_id and self._local is None):
            for forwarded in queue:
                self._answer(forwarded, STORE_UNAVAILABLE)
            queue = []
        if not queue or node_id is None:
            del self._queues[chat_id]
            self._end_pending(chat_id)
            return
        destination = self._destinations.setdefault(node_id, Destination())
        destination.ready_chats.append(chat_id)
        self._start_call(node_id, destination)

    def _start_call(self, node_id: str, destination: Destination) -> None:
        if not destination.is_starting and destination.calls < CALLS_PER_NODE_MAX:
            destination.is_starting = True
            destination.calls += 1
            call = asyncio.create_task(self._call(node_id, destination))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    async def _call(self, node_id: str, destination: Destination) -> None:
        """Forward one batch after the other, for as long as there are drafts for this node."""
        await asyncio.sleep(0)  # frames that arrived together make one batch
        destination.is_starting = False
        while batch := self._next_batch(node_id, destination):
            if destination.ready_chats:
                self._start_call(node_id, destination)
            self._under_way[id(batch)] = batch
            outcomes = await self._forward(node_id, batch)
            del self._under_way[id(batch)]
            self._settle(batch, outcomes)
        destination.calls -= 1
        if not destination.calls and not destination.ready_chats:
            del self._destinations[node_id]

    def _next_batch(self, node_id: str, destination: Destination) -> list[ForwardedDraft]:
        """The next drafts for this node; pending from here on. Chats with another owner by now go there."""
        batch: list[ForwardedDraft] = []
        chars = 0
        while destination.ready_chats and len(batch) < DRAFTS_PER_APPEND_MAX and chars < CALL_CHARS_MAX:
            chat_id = destination.ready_chats.popleft()
            queue = self._queues[chat_id]
            if not queue or self._peers.owner_of(chat_id) != node_id:
                self._route(chat_id)
                continue
            room = min(CHAT_DRAFTS_PER_CALL_MAX, DRAFTS_PER_APPEND_MAX - len(batch), len(queue))
            count = 0
            while count < room and chars < CALL_CHARS_MAX:
                chars += queue[count].draft.chars
                count += 1
            batch += queue[:count]
            del queue[:count]
            if chat_id not in self._pending_chats:
                self._pending_chats[chat_id] = pending = PendingBatch()
                self._pending.begin(chat_id, pending)
        return batch

    async def _forward(self, node_id: str, batch: list[ForwardedDraft]) -> list[Outcome | None]:
        """The outcome of each draft; None for a draft that may be sent again."""
        drafts = [forwarded.draft for forwarded in batch]
        for forwarded in batch:
            forwarded.tries += 1
        if node_id == self._node_id and self._local is not None:
            return list(await self._local.send_all(drafts, partial(self._answer_own, batch)))
        self._metrics.forwarded_batches.inc()
        self._metrics.forwarded_drafts.inc(len(batch))
        log_drafts("Message forwarded", drafts, node=node_id)
        try:
            return list(await self._peers.append(node_id, drafts))
        except OutcomeUnknown as error:
            self._note_failure("silent", node_id, batch, error)
            return [_after_silence(forwarded) for forwarded in batch]
        except StoreError as error:
            self._note_failure("refused", node_id, batch, error)
            return [None] * len(batch)
        except Exception:
            log.exception("forwarding failed", node=node_id, drafts=len(batch))
            return [OUTCOME_UNKNOWN] * len(batch)

    def _answer_own(self, batch: list[ForwardedDraft], _: Draft, index: RequestId, outcome: Outcome) -> None:
        """Answer at once: this node's own log publishes its events right after its outcomes."""
        assert isinstance(index, int)
        if not batch[index].is_answered and not _is_leaving(outcome):
            self._answer(batch[index], outcome)

    def _note_failure(
        self, reason: str, node_id: str, batch: list[ForwardedDraft], error: StoreError
    ) -> None:
        """Refused drafts go to another node, so that is logged for debugging only."""
        self._metrics.forward_failures.labels(reason).inc()
        say = log.warning if reason == "silent" else log.debug
        now = asyncio.get_running_loop().time()
        if (more := self._metrics.lines.admit(f"not forwarded: {reason} {node_id}", now)) is not None:
            say("not forwarded", reason=reason, node=node_id, drafts=len(batch), error=str(error), **more)

    def _settle(self, batch: list[ForwardedDraft], outcomes: list[Outcome | None]) -> None:
        """Hand out outcomes; drafts to send again go to the front of their chat, in order."""
        oldest = asyncio.get_running_loop().time() - RETRY_WITHIN_SECONDS
        left: dict[str, list[ForwardedDraft]] = {}
        for forwarded, outcome in zip(batch, outcomes, strict=True):
            again = left.setdefault(forwarded.draft.chat_id, [])
            if forwarded.is_answered:
                continue
            if outcome is not None and not _is_leaving(outcome):
                self._answer(forwarded, outcome)
            elif forwarded.tries < TRIES_MAX and forwarded.since >= oldest:
                again.append(forwarded)
            else:
                self._answer(forwarded, STORE_UNAVAILABLE)
        for chat_id, again in left.items():
            self._queues[chat_id][:0] = again
            if not again:
                self._end_pending(chat_id)
            self._route(chat_id)

    def _answer(self, forwarded: ForwardedDraft, outcome: Outcome) -> None:
        """Hand out an outcome, without a claim that nothing was stored where that is not known."""
        if forwarded.is_unknown and isinstance(outcome, Refusal) and outcome.code in NOTHING_LOOKED_UP:
            outcome = OUTCOME_UNKNOWN
        self._answers.give((forwarded,), (outcome,))

    def _end_pending(self, chat_id: str) -> None:
        """Everything of this chat that was given to a log is answered."""
        pending = self._pending_chats.pop(chat_id, None)
        if pending is not None:
            self._pending.end(chat_id, pending)

    def _give_up(self, before: float) -> None:
        """What came before a time is taken back where it is queued. Of what is under way the outcome is
        unknown, and the chat's next drafts still wait behind it.
        """
        for forwarded in take_late(self._queues, before):
            self._answer(forwarded, STORE_UNAVAILABLE)
        for batch in list(self._under_way.values()):
            late = [forwarded for forwarded in late_of(batch, before) if not forwarded.is_answered]
            self._answers.give_all(late, OUTCOME_UNKNOWN)
            waiting = {forwarded.draft.chat_id for forwarded in batch if not forwarded.is_answered}
            for chat_id in {forwarded.draft.chat_id for forwarded in late} - waiting:
                self._end_pending(chat_id)


def log_drafts(event: str, drafts: Sequence[Draft], **more: object) -> None:
    """Debug lines for drafts on their way between nodes."""
    if log.is_enabled_for(logging.DEBUG):
        for draft in drafts:
            log.debug(event, request_id=draft.request_id, chat_id=draft.chat_id, **more)


def _after_silence(forwarded: ForwardedDraft) -> Outcome | None:
    """Only a draft with a client's id may be sent again: the log recognises it."""
    if forwarded.draft.client_key is None:
        return OUTCOME_UNKNOWN
    forwarded.is_unknown = True
    return None


def _is_leaving(outcome: Outcome) -> bool:
    """Whether the node is shutting down: the draft goes to another one, and its sender is not told."""
    return isinstance(outcome, Refusal) and outcome.code == SHUTTING_DOWN.code
