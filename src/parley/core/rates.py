"""Rate limits as token buckets: pure arithmetic over a clock that is passed in."""

from __future__ import annotations

from math import ceil

from msgspec import Struct

from parley.wire.limits import OVERVIEW_CHATS_MAX, PAGE_BYTES_MAX, PAGE_ENTRIES_MAX


class Rate(Struct, frozen=True):
    """`per_second` requests in the long run, and at most `burst` at once."""

    per_second: float
    burst: float


MESSAGES_PER_USER = Rate(50, 500)
FRAMES_PER_CONNECTION = Rate(200, 1_000)
"""Before hello: per address."""
WORK_PER_USER = Rate(400, 4_000)
"""Of all connections of a user. A frame is one unit of work, and an answer as many as it cost to read."""
REGISTRATIONS_PER_ADDRESS = Rate(10 / 3600, 10)
CONNECTIONS_PER_ADDRESS = Rate(100 / 60, 100)
FAILED_LOGINS = Rate(5 / 60, 5)
"""Of one account from one address, or of one session that changes its password."""
FAILED_LOGINS_PER_ADDRESS = Rate(20 / 60, 60)
FAILED_LOGINS_PER_ACCOUNT = Rate(100 / 3600, 100)
NEW_CHATS_PER_USER = Rate(60 / 60, 60)
MEMBER_CHANGES_PER_USER = Rate(600 / 60, 600)
CHAT_CHANGES_PER_USER = Rate(30 / 60, 30)
REPORTS_PER_USER = Rate(20 / 3600, 20)
COST_PER_USER = Rate(200, 1_000)
"""What the requests of a person cost together: an ordinary one is 1, see `Operation.cost`."""
COST_PER_ADDRESS = Rate(20, 200)
"""The same for requests without a session."""

ROWS_PER_UNIT = 100
"""Entries of a log that are read as cheaply as a frame is answered."""
CHATS_PER_UNIT = 10
PEOPLE_PER_UNIT = 10
BYTES_PER_UNIT = 64 * 1024
assert WORK_PER_USER.burst > PAGE_ENTRIES_MAX / ROWS_PER_UNIT + PAGE_BYTES_MAX / BYTES_PER_UNIT
assert WORK_PER_USER.burst > OVERVIEW_CHATS_MAX / CHATS_PER_UNIT

BUCKETS_MAX = 100_000
ROUNDING = 1e-6
"""The rounding error that sums of fractions may have."""


def work_of(*, rows: int = 0, chats: int = 0, people: int = 0, size_bytes: int = 0) -> float:
    """What an answer cost beyond an ordinary one."""
    return (
        rows / ROWS_PER_UNIT + chats / CHATS_PER_UNIT + people / PEOPLE_PER_UNIT + size_bytes / BYTES_PER_UNIT
    )


class Bucket:
    __slots__ = ("level", "updated_ms")

    def __init__(self, level: float, now_ms: int) -> None:
        self.level = level
        self.updated_ms = now_ms


class RateLimiter:
    """One bucket per key. When there are too many, full buckets are dropped: a new one is full too."""

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self._buckets: dict[object, Bucket] = {}

    def take(self, key: object, now_ms: int, cost: float = 1.0) -> int:
        """0 when allowed (and counted), else the milliseconds to wait."""
        bucket = self._refilled(key, now_ms)
        wait_ms = self._wait_ms(bucket, cost)
        if not wait_ms:
            bucket.level -= cost
        return wait_ms

    def spend(self, key: object, now_ms: int, cost: float) -> float:
        """Count a cost even if too little is left. Returns what is left, negative if overdrawn.

        A negative cost gives back.
        """
        bucket = self._refilled(key, now_ms)
        bucket.level = min(self.rate.burst, bucket.level - cost)
        return bucket.level

    def lower(self, key: object, now_ms: int, level: float) -> None:
        """Lower what is left to `level`, the level of the counter that all nodes share."""
        bucket = self._refilled(key, now_ms)
        bucket.level = min(bucket.level, level)

    def _wait_ms(self, bucket: Bucket, cost: float) -> int:
        """Rounded up, so that a client that waits this long is allowed."""
        lacking = cost - bucket.level - ROUNDING
        return ceil(lacking / self.rate.per_second * 1000) if lacking > 0 else 0

    def _refilled(self, key: object, now_ms: int) -> Bucket:
        bucket = self._buckets.get(key)
        if bucket is None:
            if len(self._buckets) >= BUCKETS_MAX:
                self._forget_full(now_ms)
            bucket = self._buckets[key] = Bucket(self.rate.burst, now_ms)
        elif now_ms > bucket.updated_ms:
            gained = (now_ms - bucket.updated_ms) / 1000 * self.rate.per_second
            bucket.level = min(self.rate.burst, bucket.level + gained)
            bucket.updated_ms = now_ms
        return bucket

    def _forget_full(self, now_ms: int) -> None:
        full_after_ms = self.rate.burst / self.rate.per_second * 1000
        kept = {k: b for k, b in self._buckets.items() if now_ms - b.updated_ms < full_after_ms}
        # An attacker with that many addresses gets new buckets rather than unlimited memory. Freeing at least
        # half each time keeps the cost of this search small.
        self._buckets = kept if len(kept) <= BUCKETS_MAX // 2 else {}
