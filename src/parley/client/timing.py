"""Durations, retries and timers. Time and chance are arguments: nothing here reads a clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from msgspec import Struct

from parley.clock import MS_PER_DAY
from parley.core.backoff import backoff
from parley.errors import RATE_LIMITED, STORE_DAMAGED, Refusal
from parley.wire.limits import IDEMPOTENCY_DAYS

CHECK_MARGIN_MS = 60 * 60 * 1000
SAFE_RESEND_MS_MAX = IDEMPOTENCY_DAYS * MS_PER_DAY - CHECK_MARGIN_MS
"""How long the server certainly recognises a resend; the margin is for clocks that differ."""

assert 0 < CHECK_MARGIN_MS < SAFE_RESEND_MS_MAX


class Timing(Struct, frozen=True, kw_only=True):
    """Every duration of the SDK. The defaults are those of the protocol; tests shorten them."""

    ack_ms: int = 5_000
    """How long a send waits for its ack before it is resent."""
    resends_max: int = 3
    """How many quick resends there are before the message counts as queued and is retried with backoff."""
    backoff_base_ms: int = 1_000
    backoff_max_ms: int = 60_000
    jitter: float = 0.1
    cursor_flush_ms: int = 100
    """How often a cursor is saved and acknowledged at most."""
    answer_ms: int = 10_000
    """How long the server may take for a heartbeat, a page, a handshake or to accept bytes."""
    drain_ms: int = 5_000
    """How long leaving `async with` waits for the acks of messages in flight."""


class Resend(Struct, frozen=True):
    """Retry after a delay. `queued`: the quick retries are used up."""

    delay_ms: int
    queued: bool


class Fail(Struct, frozen=True):
    """A retry cannot help now. `kept`: it may on a later connection, when an operator has done something."""

    refusal: Refusal
    kept: bool = False


def backoff_ms(attempt: int, timing: Timing, chance: float) -> int:
    """min(1 s * 2^attempt, 60 s), and up to a tenth more; `attempt` counts from 0, chance is 0..1."""
    return int(backoff(attempt, timing.backoff_base_ms, timing.backoff_max_ms, timing.jitter * chance))


def decide_resend(attempts: int, refusal: Refusal | None, timing: Timing, chance: float) -> Resend | Fail:
    """What to do after attempt number `attempts` of a send was refused, or not answered in time (None)."""
    queued = attempts > timing.resends_max
    if refusal is None:
        late = attempts - timing.resends_max - 1
        return Resend(backoff_ms(late, timing, chance) if queued else 0, queued)
    if not refusal.temporary:
        return Fail(refusal, kept=refusal.code == STORE_DAMAGED.code)
    delay = max(refusal.retry_after_ms or 0, backoff_ms(attempts - 1, timing, chance))
    return Resend(delay, queued)


def must_check_first(checked_at_ms: int, now_ms: int) -> bool:
    """Whether this message's id may have expired on the server, so that a resend might store it twice."""
    return now_ms - checked_at_ms >= SAFE_RESEND_MS_MAX


TimerKey = tuple[str, str]
"""What is due, and for which chat; the second part is empty where there is only one."""
TimerCallback = Callable[[int], None]
"""Called with the time, in milliseconds."""


class Timers:
    """Deadlines without a clock. Each key has at most one; setting it again replaces it."""

    def __init__(self) -> None:
        self._pending: dict[TimerKey, tuple[int, TimerCallback | None]] = {}
        self._heap: list[tuple[int, TimerKey]] = []

    def set(self, key: TimerKey, at_ms: int, callback: TimerCallback | None = None) -> None:
        """Call back at this time. Without a callback the key is only `pending` until then."""
        before = self._pending.get(key)
        self._pending[key] = (at_ms, callback)
        if before is None or before[0] != at_ms:
            heapq.heappush(self._heap, (at_ms, key))
            self._drop_replaced()

    def cancel(self, key: TimerKey) -> None:
        self._pending.pop(key, None)

    def pending(self, key: TimerKey) -> bool:
        return key in self._pending

    def run_due(self, now_ms: int) -> None:
        """Run what is due, earliest first, each once."""
        callbacks = []
        while (at_ms := self.next_ms()) is not None and at_ms <= now_ms:
            _, key = heapq.heappop(self._heap)
            _, callback = self._pending.pop(key)
            if callback is not None:
                callbacks.append(callback)
        for callback in callbacks:
            callback(now_ms)

    def next_ms(self) -> int | None:
        """The earliest deadline."""
        while self._heap:
            at_ms, key = self._heap[0]
            pending = self._pending.get(key)
            if pending is not None and pending[0] == at_ms:
                return at_ms
            heapq.heappop(self._heap)
        return None

    def _drop_replaced(self) -> None:
        """Replaced deadlines stay in the heap until they surface, unless they outnumber the others."""
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self._pending):
            self._heap = [(at_ms, key) for key, (at_ms, _) in self._pending.items()]
            heapq.heapify(self._heap)


class RateLimitPause:
    """After a `rate_limited` refusal, pauses every request of this kind, not only the refused one."""

    def __init__(self, kind: str, timing: Timing, timers: Timers) -> None:
        self._key = ("rate limit pause", kind)
        self._timing = timing
        self._timers = timers

    @property
    def is_on(self) -> bool:
        return self._timers.pending(self._key)

    def refused(self, refusal: Refusal, now_ms: int) -> None:
        if refusal.code == RATE_LIMITED.code:
            pause_ms = max(refusal.retry_after_ms or 0, self._timing.backoff_base_ms)
            self._timers.set(self._key, now_ms + pause_ms)

    def end(self) -> None:
        """A new connection may send at once."""
        self._timers.cancel(self._key)
