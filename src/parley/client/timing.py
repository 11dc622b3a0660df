"""When to try again: decisions over numbers. Time and chance are arguments."""

from __future__ import annotations

from msgspec import Struct

from parley.clock import MS_PER_DAY
from parley.errors import Refusal
from parley.wire.limits import IDEMPOTENCY_DAYS

CHECK_MARGIN_MS = 60 * 60 * 1000
PROVEN_MS_MAX = IDEMPOTENCY_DAYS * MS_PER_DAY - CHECK_MARGIN_MS
"""How long a resend is surely recognised; the margin is for clocks that differ."""

assert 0 < CHECK_MARGIN_MS < PROVEN_MS_MAX


class Timing(Struct, frozen=True, kw_only=True):
    """Every duration of the SDK. The defaults are those of the contract; tests shorten them."""

    ack_ms: int = 5_000
    """How long a send waits for its ack before it is resent."""
    resends_max: int = 3
    """How often that happens before the message counts as queued and is retried with backoff."""
    backoff_base_ms: int = 1_000
    backoff_max_ms: int = 60_000
    jitter: float = 0.1
    cursor_flush_ms: int = 100
    """A cursor is written down and acknowledged at most this often."""
    answer_ms: int = 10_000
    """How long the server may take for a heartbeat, a page, a handshake or to accept bytes."""
    drain_ms: int = 5_000
    """How long leaving `async with` waits for messages that are on their way."""


class Resend(Struct, frozen=True):
    """Try again after a delay. `queued`: the quick retries are spent."""

    delay_ms: int
    queued: bool


class Fail(Struct, frozen=True):
    """Trying again cannot help."""

    refusal: Refusal


def backoff_ms(attempt: int, timing: Timing, chance: float) -> int:
    """min(1 s * 2^attempt, 60 s), and up to a tenth more; `attempt` counts from 0, chance is 0..1."""
    doublings = min(max(attempt, 0), 32)
    delay = min(timing.backoff_base_ms << doublings, timing.backoff_max_ms)
    return delay + int(delay * timing.jitter * chance)


def decide_resend(attempts: int, refusal: Refusal | None, timing: Timing, chance: float) -> Resend | Fail:
    """What follows when a send that went out `attempts` times was refused, or not answered in time (None)."""
    queued = attempts > timing.resends_max
    if refusal is None:
        late = attempts - timing.resends_max - 1
        return Resend(backoff_ms(late, timing, chance) if queued else 0, queued)
    if not refusal.temporary:
        return Fail(refusal)
    delay = max(refusal.retry_after_ms or 0, backoff_ms(attempts - 1, timing, chance))
    return Resend(delay, queued)


def must_check_first(proven_at_ms: int, now_ms: int) -> bool:
    """Whether the server may have forgotten this message's id, so that a resend might store it twice."""
    return now_ms - proven_at_ms >= PROVEN_MS_MAX
