"""Who waits for the outcome of a draft hears it once, and in time, whatever becomes of the draft."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

import structlog
from msgspec import Struct

from parley.errors import BUSY, SHUTTING_DOWN, Refusal
from parley.model import Draft, Outcome
from parley.store.ports import APPEND_SECONDS_MAX
from parley.wire.frames import RequestId
from parley.wire.limits import ANSWER_SECONDS_MAX

WAITING_DRAFTS_MAX = 100_000
SEND_SECONDS_MAX = 3.25
"""A draft that is older is answered without the store."""
DEADLINE_CHECK_SECONDS = 0.25
assert APPEND_SECONDS_MAX < SEND_SECONDS_MAX, "what the store knows of an append is told, not guessed"
assert SEND_SECONDS_MAX + 2 * DEADLINE_CHECK_SECONDS < ANSWER_SECONDS_MAX, "there is time to tell it"

log = structlog.get_logger("parley.sending")

Done = Callable[[Draft, RequestId, Outcome], None]
"""Called with the outcome of a draft, once."""
Key = TypeVar("Key")


class WaitingDraft(Struct, eq=False):
    """A draft and the sender that waits for its outcome.

    `since`: the loop's time at the last check of deadlines before it came. `is_answered`: the sender has an
    outcome, though the draft may still be on its way.
    """

    draft: Draft
    request_id: RequestId
    done: Done
    since: float
    is_answered: bool = False


Waiting = TypeVar("Waiting", bound=WaitingDraft)


class Answers:
    """Keeps count of the senders that wait, and of their deadlines.

    `give_up` is called with a time a few times a second, while any sender waits: it answers all that came
    before it. What no log was given is taken back as not stored; the outcome of the rest is unknown, and the
    draft goes on without its sender.
    """

    def __init__(self, give_up: Callable[[float], None]) -> None:
        self._give_up = give_up
        self.waiting = 0
        self.is_closed = False
        """Nothing more is taken."""
        self._now = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._none_waits = asyncio.Event()

    @property
    def refusal(self) -> Refusal | None:
        """Why no other draft can be taken now."""
        if self.is_closed:
            return SHUTTING_DOWN
        return BUSY if self.waiting >= WAITING_DRAFTS_MAX else None

    def expect(self) -> float:
        """One more sender waits from now on. Returns `WaitingDraft.since`."""
        self.waiting += 1
        if self._timer is None:
            self._start_timer()
        return self._now

    def give(self, waiting: Iterable[WaitingDraft], outcomes: Iterable[Outcome]) -> None:
        """Each sender gets its outcome, unless it has one.

        A failure in a callback is our fault and is logged; the senders after it go on.
        """
        for one, outcome in zip(waiting, outcomes, strict=True):
            if one.is_answered:
                continue
            one.is_answered = True
            self.waiting -= 1
            try:
                one.done(one.draft, one.request_id, outcome)
            except Exception:
                log.exception("an outcome could not be delivered", request_id=one.draft.request_id)
        if not self.waiting:
            self._none_waits.set()

    def give_all(self, waiting: Iterable[WaitingDraft], outcome: Outcome) -> None:
        """The same outcome for all."""
        for one in waiting:
            self.give((one,), (outcome,))

    async def finish(self) -> None:
        """Returns when no sender waits."""
        while self.waiting:
            self._none_waits.clear()
            await self._none_waits.wait()

    def _start_timer(self) -> None:
        loop = asyncio.get_running_loop()
        self._now = loop.time()
        self._timer = loop.call_later(DEADLINE_CHECK_SECONDS, self._check)

    def _check(self) -> None:
        self._timer = None
        if not self.waiting:
            return
        self._start_timer()
        before = self.waiting
        self._give_up(self._now - SEND_SECONDS_MAX)
        if self.waiting < before:
            log.warning("sends not answered in time", drafts=before - self.waiting)


def take_late(queues: dict[Key, list[Waiting]], before: float) -> list[Waiting]:
    """Take out of queues what came before a time."""
    late: list[Waiting] = []
    for key, queue in queues.items():
        found = late_of(queue, before)
        if found:
            late += found
            queues[key] = [one for one in queue if one.since > before]
    return late


def late_of(queue: Iterable[Waiting], before: float) -> list[Waiting]:
    return [one for one in queue if one.since <= before]
