"""Rate limits as token buckets: pure arithmetic over a clock that is passed in."""

from __future__ import annotations

from math import ceil

from msgspec import Struct


class Rate(Struct, frozen=True):
    """So many per second in the long run, and at most `burst` at once."""

    per_second: float
    burst: float


MESSAGES_PER_USER = Rate(50, 500)
FRAMES_PER_CONNECTION = Rate(200, 1_000)
REGISTRATIONS_PER_ADDRESS = Rate(10 / 3600, 10)
CONNECTIONS_PER_ADDRESS = Rate(100 / 60, 100)
FAILED_LOGINS = Rate(5 / 60, 5)

BUCKETS_MAX = 100_000
ROUNDING = 1e-6
"""What sums of fractions may lack and still count as whole."""


class Bucket:
    __slots__ = ("level", "updated_ms")

    def __init__(self, level: float, now_ms: int) -> None:
        self.level = level
        self.updated_ms = now_ms


class RateLimiter:
    """One bucket per key. Full buckets are forgotten when there are too many: they say nothing."""

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
        """Count it, enough or not; returns what is left, below 0 if overdrawn. A cost below 0 gives back."""
        bucket = self._refilled(key, now_ms)
        bucket.level = min(self.rate.burst, bucket.level - cost)
        return bucket.level

    def lower(self, key: object, now_ms: int, level: float) -> None:
        """No more than this is left: somebody who counts more than we do says so."""
        bucket = self._refilled(key, now_ms)
        bucket.level = min(bucket.level, level)

    def _wait_ms(self, bucket: Bucket, cost: float) -> int:
        """Rounded up: who waits as long as told is let through."""
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
        # An attacker with that many addresses gets fresh buckets rather than our memory, and making half
        # of the room free each time keeps the cost of looking small.
        self._buckets = kept if len(kept) <= BUCKETS_MAX // 2 else {}
