"""What becomes of a delivery that failed: another attempt later, or a dead letter."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from enum import StrEnum

from msgspec import Struct

from parley.core.backoff import JITTER_SHARE, backoff

MS_PER_SECOND = 1_000
MAX_RETRIES = 3
RETRY_FIRST_MS = 1_000
RETRY_MS_MAX = 60_000
LONG_RETRY_MS_MAX = 270_000
"""The longest wait where retries go on for hours."""
RETRY_AFTER_MS_MAX = 600_000
"""A recipient that asks for a longer wait is asked again by then."""
CRASHES_MAX = 2
"""A message that crashed its consumer so often is poison: it is not tried again by itself."""
BUCKETS_MS = {"1s": 1_000, "5s": 5_000, "30s": 30_000, "5m": 300_000}
"""The retry topics, `messages.retry.` and the name, and how long each delays, the shortest first."""
LONGEST_BUCKET = max(BUCKETS_MS, key=BUCKETS_MS.__getitem__)
assert BUCKETS_MS[LONGEST_BUCKET] >= LONG_RETRY_MS_MAX * (1 + JITTER_SHARE), "every delay has a bucket"


class Fault(StrEnum):
    """Why a delivery failed. The values are stable: dead letters are found and counted by them."""

    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    BUSY = "busy"
    SERVER_ERROR = "server_error"
    CRASHED = "crashed"
    REFUSED = "refused"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN_ADDRESS = "forbidden_address"
    ACCOUNT_DELETED = "account_deleted"
    ACCOUNT_DISABLED = "account_disabled"
    BLOCKED = "blocked"
    MALFORMED = "malformed"
    TOO_OLD = "too_old"
    NO_RECIPIENT = "no_recipient"
    POISON = "poison"


TEMPORARY = frozenset({Fault.UNREACHABLE, Fault.TIMEOUT, Fault.BUSY, Fault.SERVER_ERROR, Fault.CRASHED})
"""These may end by themselves. Every other one is permanent: a retry would fail in the same way."""


class DeliveryFailure(Struct, frozen=True):
    """A delivery that failed. `detail` is for people. `retry_after_ms`: how long to wait, if asked.

    `may_have_arrived`: the recipient may have it although it did not answer.
    """

    fault: Fault
    detail: str = ""
    retry_after_ms: int = 0
    may_have_arrived: bool = False

    @property
    def is_temporary(self) -> bool:
        return self.fault in TEMPORARY


class RetryPolicy(Struct, frozen=True):
    """When a delivery is given up: after `max_retries`; with `give_up_ms` once it has failed for so long."""

    max_retries: int = MAX_RETRIES
    too_old_seconds: int = 7 * 86_400
    give_up_ms: int | None = None

    @property
    def longest_ms(self) -> int:
        """The longest wait for a retry, but for its chance."""
        return RETRY_MS_MAX if self.give_up_ms is None else LONG_RETRY_MS_MAX


def delay_of_retry(retry_count: int, chance: float, longest_ms: int = RETRY_MS_MAX) -> int:
    """Milliseconds until the next attempt, after so many retries. `chance` is from 0 to 1.

    1 s, doubled with each retry, up to `longest_ms`; then up to a tenth longer.
    """
    return round(backoff(retry_count, RETRY_FIRST_MS, longest_ms, JITTER_SHARE * chance))


def bucket_of(delay_ms: int) -> str:
    """The shortest bucket that is not shorter than the delay, or else the longest.

    The record says itself when it is due: one that is not due yet when its bucket ends takes another.
    """
    return next((name for name, length_ms in BUCKETS_MS.items() if length_ms >= delay_ms), LONGEST_BUCKET)


def after_failure(
    failure: DeliveryFailure, retry_count: int, policy: RetryPolicy, chance: float, failing_ms: int = 0
) -> int | None:
    """Milliseconds until the next attempt; None if the message becomes a dead letter.

    `failing_ms`: how long it has been failing. The last attempt is when that is long enough.
    """
    if not failure.is_temporary:
        return None
    delay_ms = delay_of_retry(retry_count, chance, policy.longest_ms)
    wait_ms = max(delay_ms, min(failure.retry_after_ms, RETRY_AFTER_MS_MAX))
    if policy.give_up_ms is None:
        return wait_ms if retry_count < policy.max_retries else None
    return min(wait_ms, policy.give_up_ms - failing_ms) if failing_ms < policy.give_up_ms else None


def retry_after_ms(header: str, now_ms: int) -> int:
    """What a `Retry-After` asks for: seconds or a date (RFC 9110, 10.2.3); 0 for anything else."""
    if header.isascii() and header.isdigit():
        return int(header[:6]) * MS_PER_SECOND
    try:
        moment = parsedate_to_datetime(header)
    except ValueError:
        return 0
    return max(0, round(moment.timestamp() * MS_PER_SECOND) - now_ms)


def after_crash(crashes: int, detail: str) -> DeliveryFailure:
    """What an attempt that raised an error is: poison, once it has happened `CRASHES_MAX` times."""
    return DeliveryFailure(Fault.POISON if crashes >= CRASHES_MAX else Fault.CRASHED, detail)


def is_too_old(created_ms: int, now_ms: int, policy: RetryPolicy) -> bool:
    return now_ms - created_ms > policy.too_old_seconds * 1_000
