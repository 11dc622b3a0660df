"""Hop 3 where another node has the chat: its drafts travel there in acknowledged batches.

Of one chat one batch is under way at a time, and what comes meanwhile waits behind it: so the order of a chat
outlives every change of its owner. A node that fails is passed over, and its drafts go to the next one or
into this node's own log. That is safe because a message is recognised by its client's id wherever it arrives;
a draft without one is never sent twice. Whose chat is whose matters for speed alone. See docs/cluster.md.

News of a chat may overtake the answer to its own draft on the way here: `hold` makes it wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Protocol

import structlog
from msgspec import Struct, field

from parley.bus.ports import Listener
from parley.chats.sending import (
    BATCH_DRAFTS_MAX,
    NEWS_HELD_MAX,
    SEND_SECONDS_MAX,
    WAITING_DRAFTS_MAX,
    WATCH_SECONDS,
    Done,
    Sender,
    Tell,
)
from parley.errors import (
    BUSY,
    INTERNAL,
    OUTCOME_UNKNOWN,
    SHUTTING_DOWN,
    STORE_UNAVAILABLE,
    OutcomeUnknown,
    Refusal,
    StoreError,
)
from parley.model import Draft, Head, Outcome, Persisted
from parley.telemetry import Metrics
from parley.wire.frames import RequestId

CALLS_PER_NODE_MAX = 4
CALL_LETTERS_MAX = 192 * 1024
"""Less than a megabyte, even of letters that take four bytes: such a body is sent and checked in a moment."""
CHAT_DRAFTS_PER_CALL_MAX = 98
"""Two transactions of DynamoDB: a hot chat does not make the other chats of its batch wait for long."""
RETRY_WITHIN_SECONDS = 2.5
"""A draft that is older is not sent elsewhere: its sender must hear something before it loses patience."""
TRIES_MAX = 5
assert RETRY_WITHIN_SECONDS < SEND_SECONDS_MAX, "what is sent elsewhere can still be answered in time"
NOTHING_LOOKED_UP = frozenset(refusal.code for refusal in (BUSY, INTERNAL, SHUTTING_DOWN, STORE_UNAVAILABLE))
"""Refusals that do not know whether an earlier try was stored; every other one has looked."""

log = structlog.get_logger("parley.forwarding")


class Peers(Protocol):
    """The other nodes, as the sender of a draft sees them."""

    def owner_of(self, chat_id: str) -> str | None:
        """The node that appends to this chat, perhaps this one; None while nobody can."""
        ...

    async def append(self, node_id: str, drafts: Sequence[Draft]) -> list[Outcome]:
        """Have another node append; the outcome of every draft, in their order.

        StoreUnavailable: it took nothing. OutcomeUnknown: perhaps it did. A node that could not be reached,
        or did not answer, is passed over by `owner_of` for a while.
        """
        ...


class Forwarded(Struct, eq=False):
    """A draft on its way. `is_unknown`: a node was told of it and never answered.

    `is_told`: its sender has an answer, though it may still be on its way.
    """

    draft: Draft
    request_id: RequestId
    done: Done
    since: float
    tries: int = 0
    is_unknown: bool = False
    is_told: bool = False

    def tell(self, outcome: Outcome) -> None:
        """Hand out the outcome, without a claim that nothing was stored where that is not known.

        A listener that fails is our fault and is logged; those after it must not suffer.
        """
        self.is_told = True
        if self.is_unknown and isinstance(outcome, Refusal) and outcome.code in NOTHING_LOOKED_UP:
            outcome = OUTCOME_UNKNOWN
        try:
            self.done(self.draft, self.request_id, outcome)
        except Exception:
            log.exception("an outcome could not be told", request_id=self.draft.request_id)


class Lane(Struct, eq=False):
    """The way to one node, this one or another: chats whose drafts may go there, and calls under way."""

    ready: deque[str] = field(default_factory=deque)
    calls: int = 0
    is_starting: bool = False


class Local(Sender, Protocol):
    """This node's own way into the log."""

    def when_idle(self, chat_id: str, tell: Tell) -> bool:
        """Whether drafts of a chat wait or are being stored; then `tell` is called when none is left."""
        ...


class Forwarding(Sender):
    """Takes every draft; appends what is this node's own, forwards the rest.

    `local`: this node's way into the log; None on a node that does not append.
    """

    def __init__(self, node_id: str, local: Local | None, peers: Peers, metrics: Metrics) -> None:
        self._node_id = node_id
        self._local = local
        self._peers = peers
        self._metrics = metrics
        self._queues: dict[str, list[Forwarded]] = {}
        self._waiting_count = 0
        self._held: dict[str, list[tuple[int, Tell]]] = {}
        self._under_way: dict[int, list[Forwarded]] = {}
        self._watch: asyncio.TimerHandle | None = None
        self._lanes: dict[str, Lane] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._stopping = False

    async def stop(self) -> None:
        """Finish what was taken; refuse what comes now. To be called while the local way is still open."""
        self._stopping = True
        while self._calls:
            await asyncio.gather(*self._calls)

    def submit(self, draft: Draft, request_id: RequestId, done: Done) -> None:
        """Take a draft; `done` hears its outcome, once."""
        queue = self._queues.get(draft.chat_id)
        if self._stopping:
            done(draft, request_id, SHUTTING_DOWN)
        elif queue is None and self._local is not None and self._is_own(draft.chat_id):
            self._local.submit(draft, request_id, done)
        elif self._waiting_count >= WAITING_DRAFTS_MAX:
            done(draft, request_id, BUSY)
        else:
            self._waiting_count += 1
            self._watch_on()
            forwarded = Forwarded(draft, request_id, done, asyncio.get_running_loop().time())
            if queue is not None:
                queue.append(forwarded)
            else:
                self._queues[draft.chat_id] = [forwarded]
                self._route_in_turn(draft.chat_id)

    def hold(self, chat_id: str, through: int, tell: Tell) -> bool:
        """As `Sender` promises, for drafts on their way to other nodes and for those of this one's own."""
        if chat_id not in self._queues:
            return self._local is not None and self._local.hold(chat_id, through, tell)
        held = self._held.setdefault(chat_id, [])
        held.append((through, tell))
        if len(held) >= NEWS_HELD_MAX:
            self._release(chat_id)
        return True

    def _route_in_turn(self, chat_id: str) -> None:
        """What this node took for its own log comes first, though the chat has another owner by now."""
        if self._local is None or not self._local.when_idle(chat_id, lambda: self._route(chat_id)):
            self._route(chat_id)

    def _is_own(self, chat_id: str) -> bool:
        return self._peers.owner_of(chat_id) == self._node_id

    def _route(self, chat_id: str) -> None:
        """Bring a chat of which nothing is under way to where it belongs now."""
        if not self._queues[chat_id]:
            self._forget(chat_id)
            return
        node_id = self._peers.owner_of(chat_id)
        if node_id is None or (node_id == self._node_id and self._local is None):
            for forwarded in self._queues[chat_id]:
                self._tell(forwarded, STORE_UNAVAILABLE)
            self._forget(chat_id)
            return
        lane = self._lanes.setdefault(node_id, Lane())
        lane.ready.append(chat_id)
        self._wake(node_id, lane)

    def _forget(self, chat_id: str) -> None:
        """Nothing of this chat is on its way."""
        del self._queues[chat_id]
        self._release(chat_id)

    def _wake(self, node_id: str, lane: Lane) -> None:
        if not lane.is_starting and lane.calls < CALLS_PER_NODE_MAX:
            lane.is_starting = True
            lane.calls += 1
            call = asyncio.create_task(self._run(node_id, lane))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    async def _run(self, node_id: str, lane: Lane) -> None:
        """One call after the other, for as long as there is something to forward."""
        await asyncio.sleep(0)  # frames that arrived together make one batch
        lane.is_starting = False
        while batch := self._take(node_id, lane):
            if lane.ready:
                self._wake(node_id, lane)
            self._under_way[id(batch)] = batch
            outcomes = await self._forward(node_id, batch)
            del self._under_way[id(batch)]
            self._settle(batch, outcomes)
        lane.calls -= 1
        if not lane.calls and not lane.ready:
            del self._lanes[node_id]

    def _take(self, node_id: str, lane: Lane) -> list[Forwarded]:
        """The next batch. Chats that belong elsewhere by now go there instead."""
        batch: list[Forwarded] = []
        letters = 0
        while lane.ready and len(batch) < BATCH_DRAFTS_MAX and letters < CALL_LETTERS_MAX:
            chat_id = lane.ready.popleft()
            if self._peers.owner_of(chat_id) != node_id:
                self._route(chat_id)
                continue
            queue = self._queues[chat_id]
            if not queue:
                self._forget(chat_id)
                continue
            room = min(CHAT_DRAFTS_PER_CALL_MAX, BATCH_DRAFTS_MAX - len(batch))
            count = 0
            while count < min(room, len(queue)) and letters < CALL_LETTERS_MAX:
                letters += len(queue[count].draft.content)
                count += 1
            batch += queue[:count]
            del queue[:count]
        return batch

    async def _forward(self, node_id: str, batch: list[Forwarded]) -> list[Outcome | None]:
        """What became of each draft; None: nothing that its sender must hear, so it may be sent again."""
        drafts = [forwarded.draft for forwarded in batch]
        for forwarded in batch:
            forwarded.tries += 1
        if node_id == self._node_id and self._local is not None:
            return list(await outcomes_of(self._local, drafts))
        self._metrics.forwarded_batches.inc()
        self._metrics.forwarded_drafts.inc(len(batch))
        trace_drafts("Message forwarded", drafts, node=node_id)
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

    def _note_failure(self, reason: str, node_id: str, batch: list[Forwarded], error: StoreError) -> None:
        """What a node refused goes elsewhere; a line for each such batch would only fill the log."""
        self._metrics.forward_failures.labels(reason).inc()
        say = log.warning if reason == "silent" else log.debug
        now = asyncio.get_running_loop().time()
        if (more := self._metrics.lines.admit(f"not forwarded: {reason} {node_id}", now)) is not None:
            say("not forwarded", reason=reason, node=node_id, drafts=len(batch), error=str(error), **more)

    def _settle(self, batch: list[Forwarded], outcomes: list[Outcome | None]) -> None:
        """Hand out outcomes; what can be sent again goes to the front of its chat, in its order."""
        left: dict[str, list[Forwarded]] = {}
        for forwarded, outcome in zip(batch, outcomes, strict=True):
            again = left.setdefault(forwarded.draft.chat_id, [])
            if forwarded.is_told:
                continue
            if outcome is not None and not _is_leaving(outcome):
                self._tell(forwarded, outcome)
            elif self._may_try_again(forwarded):
                again.append(forwarded)
            else:
                self._tell(forwarded, STORE_UNAVAILABLE)
        for chat_id, again in left.items():
            self._queues[chat_id][:0] = again
            if not again:
                self._release(chat_id)
            self._route(chat_id)

    def _may_try_again(self, forwarded: Forwarded) -> bool:
        age = asyncio.get_running_loop().time() - forwarded.since
        return forwarded.tries < TRIES_MAX and age <= RETRY_WITHIN_SECONDS

    def _tell(self, forwarded: Forwarded, outcome: Outcome) -> None:
        self._waiting_count -= 1
        forwarded.tell(outcome)

    def _release(self, chat_id: str) -> None:
        """Tell what waited, save what waits for this node's own drafts of the chat as well."""
        for through, tell in self._held.pop(chat_id, ()):
            try:
                if self._local is None or not self._local.hold(chat_id, through, tell):
                    tell()
            except Exception:
                log.exception("news could not be told", chat=chat_id)

    # In time

    def _watch_on(self) -> None:
        if self._watch is None:
            self._watch = asyncio.get_running_loop().call_later(WATCH_SECONDS, self._look)

    def _look(self) -> None:
        """Answer whoever has waited for too long; look again for as long as anybody waits.

        What waits for its turn is taken back. What is under way is not waited for any longer, but the chat's
        next drafts still are behind it.
        """
        self._watch = None
        if not self._waiting_count:
            return
        self._watch_on()
        before = asyncio.get_running_loop().time() - SEND_SECONDS_MAX
        count = self._waiting_count
        for chat_id, queue in list(self._queues.items()):
            late = [forwarded for forwarded in queue if forwarded.since <= before]
            if late:
                self._queues[chat_id] = [forwarded for forwarded in queue if forwarded.since > before]
                for forwarded in late:
                    self._tell(forwarded, STORE_UNAVAILABLE)
        for batch in list(self._under_way.values()):
            self._give_up(batch, before)
        if self._waiting_count < count:
            log.warning("sends not answered in time", drafts=count - self._waiting_count)

    def _give_up(self, batch: list[Forwarded], before: float) -> None:
        late = [forwarded for forwarded in batch if forwarded.since <= before and not forwarded.is_told]
        for forwarded in late:
            self._tell(forwarded, OUTCOME_UNKNOWN)
        waiting = {forwarded.draft.chat_id for forwarded in batch if not forwarded.is_told}
        for chat_id in {forwarded.draft.chat_id for forwarded in late} - waiting:
            self._release(chat_id)


class AfterAnswers:
    """A listener before another one: on each socket a sender's ack precedes its own entry."""

    def __init__(self, listener: Listener, forwarding: Forwarding) -> None:
        self._listener = listener
        self._forwarding = forwarding

    def persisted(self, news: list[Persisted]) -> None:
        at_once = [item for item in news if not self._is_held(item)]
        if at_once:
            self._listener.persisted(at_once)

    def _is_held(self, item: Persisted) -> bool:
        through = item.positions[-1].sequence
        return self._forwarding.hold(item.chat_id, through, lambda: self._listener.persisted([item]))

    def joined(self, chat_id: str, head: Head, user_ids: list[str]) -> None:
        self._listener.joined(chat_id, head, user_ids)

    def sessions_ended(self, session_ids: list[str]) -> None:
        self._listener.sessions_ended(session_ids)


async def outcomes_of(sender: Sender, drafts: Sequence[Draft]) -> list[Outcome]:
    """Submit a batch; the outcome of every draft, in their order."""
    outcomes: dict[RequestId, Outcome] = {}
    all_told: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(_: Draft, index: RequestId, outcome: Outcome) -> None:
        outcomes[index] = outcome
        if len(outcomes) == len(drafts):
            all_told.set_result(None)

    for index, draft in enumerate(drafts):
        sender.submit(draft, index, done)
    await all_told
    return [outcomes[index] for index in range(len(drafts))]


def trace_drafts(event: str, drafts: Sequence[Draft], **more: object) -> None:
    """Debug lines for drafts on their way between nodes; one look when they are off."""
    if log.is_enabled_for(logging.DEBUG):
        for draft in drafts:
            log.debug(event, request_id=draft.request_id, chat_id=draft.chat_id, **more)


def _after_silence(forwarded: Forwarded) -> Outcome | None:
    """Only what is recognised when it comes again may be sent again."""
    if forwarded.draft.client_key is None:
        return OUTCOME_UNKNOWN
    forwarded.is_unknown = True
    return None


def _is_leaving(outcome: Outcome) -> bool:
    """Whether the node takes nothing any more: the draft goes elsewhere, the sender need not know."""
    return isinstance(outcome, Refusal) and outcome.code == SHUTTING_DOWN.code
