"""Outcomes of drafts that came through a topic, on their way back to the nodes whose senders wait.

Each node is told in batches, one call at a time. An outcome that cannot be delivered in time is dropped: its
sender is told that the outcome is unknown, and a retry finds out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import msgspec
import structlog
from aiohttp import web
from msgspec import Struct, field

from parley.bus.ports import BufferedDraft, ReplyAddress
from parley.cluster.bodies import pack
from parley.cluster.calls import NodeError
from parley.cluster.peers import NodeCalls
from parley.errors import Refusal
from parley.model import Appended, Outcome
from parley.sending.answers import SEND_SECONDS_MAX
from parley.telemetry import Metrics

OUTCOMES = "/node/outcomes"
OUTCOMES_PER_CALL_MAX = 1_000
OUTCOMES_WAITING_MAX = 20_000
"""For one node. More are dropped: it has not answered for a while."""
CALL_SECONDS_MAX = 1.5
RETRY_SECONDS = 0.1
TELL_SECONDS_MAX = SEND_SECONDS_MAX
"""By then its sender has been answered."""

log = structlog.get_logger("parley.cluster")

Settle = Callable[[Iterable[tuple[int, Outcome]]], None]


class TicketOutcome(Struct, omit_defaults=True):
    """The outcome of one draft: exactly one of the two is there."""

    ticket: int
    appended: Appended | None = None
    refusal: Refusal | None = None


class OutcomeMailbox(Struct, eq=False):
    """What one node was not told yet, each with the time when it is dropped."""

    waiting: list[tuple[TicketOutcome, float]] = field(default_factory=list)


_decode = msgspec.msgpack.Decoder(list[TicketOutcome]).decode


class OutcomeReturner:
    """`target`: this process, whose own senders are answered by `settle` without a call."""

    def __init__(self, target: str, settle: Settle, calls: NodeCalls, metrics: Metrics) -> None:
        self._target = target
        self._settle = settle
        self._calls = calls
        self._metrics = metrics
        self._mailboxes: dict[ReplyAddress, OutcomeMailbox] = {}
        self._tellers: set[asyncio.Task[None]] = set()

    def give_back(self, buffered: BufferedDraft, outcome: Outcome) -> None:
        if buffered.reply.target == self._target:
            self._settle([(buffered.ticket, outcome)])
            return
        told = (
            TicketOutcome(buffered.ticket, refusal=outcome)
            if isinstance(outcome, Refusal)
            else TicketOutcome(buffered.ticket, appended=outcome)
        )
        mailbox = self._mailboxes.get(buffered.reply)
        if mailbox is None:
            mailbox = self._mailboxes[buffered.reply] = OutcomeMailbox()
            teller = asyncio.create_task(self._tell(buffered.reply, mailbox))
            self._tellers.add(teller)
            teller.add_done_callback(self._tellers.discard)
        if len(mailbox.waiting) < OUTCOMES_WAITING_MAX:
            give_up_at = asyncio.get_running_loop().time() + TELL_SECONDS_MAX
            mailbox.waiting.append((told, give_up_at))

    async def stop(self) -> None:
        """What was not told by now is not told."""
        for teller in self._tellers:
            teller.cancel()
        await asyncio.gather(*self._tellers, return_exceptions=True)

    async def _tell(self, reply: ReplyAddress, mailbox: OutcomeMailbox) -> None:
        await asyncio.sleep(0)  # outcomes of one append make one call
        while mailbox.waiting:
            some = mailbox.waiting[:OUTCOMES_PER_CALL_MAX]
            try:
                body = pack([told for told, _ in some])
                await self._calls.post(reply.url + OUTCOMES, body, CALL_SECONDS_MAX, reply.target)
                mailbox.waiting = mailbox.waiting[len(some) :]
            except NodeError as error:
                now = asyncio.get_running_loop().time()
                if (more := self._metrics.lines.admit(f"outcomes not told: {reply.url}", now)) is not None:
                    log.warning("outcomes not told", url=reply.url, error=str(error), **more)
                mailbox.waiting = [(told, at) for told, at in mailbox.waiting if at > now]
                await asyncio.sleep(RETRY_SECONDS)
        del self._mailboxes[reply]


def outcome_routes(settle: Settle) -> list[web.RouteDef]:
    """What a node serves that waits for outcomes."""

    async def take(request: web.Request) -> web.StreamResponse:
        try:
            told = _decode(await request.read())
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise web.HTTPBadRequest(reason="this body is not well formed") from error
        outcomes: list[tuple[int, Outcome]] = []
        for one in told:
            outcome = one.appended or one.refusal
            if outcome is None or (one.appended and one.refusal):
                raise web.HTTPBadRequest(reason="an outcome is a position or a refusal")
            outcomes.append((one.ticket, outcome))
        settle(outcomes)
        return web.Response(body=b"", content_type="application/octet-stream")

    return [web.post(OUTCOMES, take)]
