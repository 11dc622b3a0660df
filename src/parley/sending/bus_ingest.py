"""The other end of the topic of drafts: appends what it holds to the log, in the order of each chat.

A record is done when the log has its draft, or has refused it for good. Until then it is tried again, so a
store that is away for a while delays drafts and loses none. What was appended before a crash is recognised by
its client's id.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import structlog

from parley.bus.ports import BufferedDraft
from parley.core.backoff import JITTER_SHARE, backoff
from parley.errors import (
    BUSY,
    OUTCOME_UNKNOWN,
    SERVICE_UNAVAILABLE,
    SHUTTING_DOWN,
    STORE_UNAVAILABLE,
    Refusal,
)
from parley.model import Draft, Outcome
from parley.sending.sender import BATCH_CHARS_MAX, Sender
from parley.wire.frames import RequestId

CHAT_DRAFTS_PER_ROUND_MAX = 98
"""Of one chat at a time, so that they share a batch: what follows waits for how it went."""
RETRY_SECONDS = 0.1
RETRY_SECONDS_MAX = 5.0
TRIES_MAX = 10
"""Of a draft that fails while others do not. Its sender has long been told that the outcome is unknown."""
TRIED_AGAIN = frozenset(
    refusal.code for refusal in (BUSY, OUTCOME_UNKNOWN, SERVICE_UNAVAILABLE, SHUTTING_DOWN, STORE_UNAVAILABLE)
)

log = structlog.get_logger("parley.sending")

GiveBack = Callable[[BufferedDraft, Outcome], None]
"""Sends an outcome back to the node that waits for it; returns at once."""


class BusIngest:
    """`sender`: this node's own log. `is_available`: whether the store can serve, as far as is known."""

    def __init__(
        self,
        sender: Sender,
        give_back: GiveBack,
        is_available: Callable[[], bool],
        chance: Callable[[], float],
    ) -> None:
        self._sender = sender
        self._give_back = give_back
        self._is_available = is_available
        self._chance = chance

    async def append(self, buffered: Sequence[BufferedDraft]) -> None:
        """Returns when each of them is settled. May be cancelled, and called with the same drafts again."""
        left: dict[str, deque[BufferedDraft]] = {}
        for one in buffered:
            left.setdefault(one.draft.chat_id, deque()).append(one)
        tries: dict[int, int] = {}
        attempt = 0
        while left:
            together = [one for queue in left.values() for one in _next_of(queue)]
            failed = await self._append_round(together, tries)
            for chat_id, queue in list(left.items()):
                gone = len(_next_of(queue))
                again = [queue.popleft() for _ in range(gone)]
                queue.extendleft(one for one in reversed(again) if id(one) in failed)
                if not queue:
                    del left[chat_id]
            if failed:
                jitter = JITTER_SHARE * self._chance()
                await asyncio.sleep(backoff(attempt, RETRY_SECONDS, RETRY_SECONDS_MAX, jitter))
                attempt += 1
            else:
                attempt = 0

    async def _append_round(self, together: list[BufferedDraft], tries: dict[int, int]) -> set[int]:
        """Give back every outcome that is final; the drafts that are to be tried again."""
        drafts = [one.draft for one in together]
        outcomes = await self._sender.send_all(drafts, partial(self._heard, together))
        failed = {id(one) for one, outcome in zip(together, outcomes, strict=True) if is_tried_again(outcome)}
        if not failed or (len(failed) == len(together) and not self._is_available()):
            return failed
        for one in together:
            if id(one) in failed:
                tries[id(one)] = tries.get(id(one), 0) + 1
                if tries[id(one)] >= TRIES_MAX:
                    log.error("a draft was given up", chat_id=one.draft.chat_id, tries=TRIES_MAX)
                    failed.discard(id(one))
        return failed

    def _heard(self, together: list[BufferedDraft], _: Draft, index: RequestId, outcome: Outcome) -> None:
        """At once: this node's own log publishes its events right after its outcomes."""
        assert isinstance(index, int)
        if not is_tried_again(outcome):
            self._give_back(together[index], outcome)


def is_tried_again(outcome: Outcome) -> bool:
    """Whether nothing is known to be stored for good, or refused for good."""
    return isinstance(outcome, Refusal) and outcome.code in TRIED_AGAIN


def _next_of(queue: Iterable[BufferedDraft]) -> list[BufferedDraft]:
    """The first drafts of a chat, as many as one batch takes."""
    found: list[BufferedDraft] = []
    chars = 0
    for one in queue:
        chars += len(one.draft.content)
        if found and (len(found) == CHAT_DRAFTS_PER_ROUND_MAX or chars > BATCH_CHARS_MAX):
            break
        found.append(one)
    return found
