"""Token buckets: so many in the long run, a burst at once, and never more memory than stated."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.core import rates
from parley.core.rates import Rate, RateLimiter
from tests.harness.clock import VirtualClock

GAPS_MS = st.lists(st.integers(0, 5_000), min_size=1, max_size=100)
RATES = st.builds(
    Rate, per_second=st.sampled_from([10 / 3600, 5 / 60, 1.0, 3.0, 50.0, 200.0]), burst=st.integers(1, 20)
)


def test_a_burst_passes_and_the_next_waits() -> None:
    """A full bucket lets its burst through at once, and then says how long to wait."""
    limiter = RateLimiter(Rate(per_second=50, burst=500))
    assert [limiter.take("ann", 0) for _ in range(500)] == [0] * 500
    assert limiter.take("ann", 0) == 20


def test_keys_do_not_share() -> None:
    """One who is too fast slows down nobody else."""
    limiter = RateLimiter(Rate(1, 1))
    assert limiter.take("ann", 0) == 0
    assert limiter.take("ann", 0) > 0
    assert limiter.take("ben", 0) == 0


@given(RATES, GAPS_MS)
def test_nobody_gets_more_than_the_rate(rate: Rate, gaps_ms: list[int]) -> None:
    """Over any time, at most the burst plus the rate's share of that time is allowed."""
    clock, limiter = VirtualClock(0), RateLimiter(rate)
    allowed_ms = [clock() for gap_ms in gaps_ms if limiter.take("key", clock.advance(gap_ms)) == 0]
    for first, since_ms in enumerate(allowed_ms):
        for last, until_ms in enumerate(allowed_ms[first:], first):
            share = rate.per_second * (until_ms - since_ms) / 1000
            assert last - first + 1 <= rate.burst + share + 0.001


@given(RATES, GAPS_MS)
def test_who_waits_as_told_is_let_through(rate: Rate, gaps_ms: list[int]) -> None:
    """The wait that a refusal names is enough, whatever happened before."""
    clock, limiter = VirtualClock(0), RateLimiter(rate)
    for gap_ms in gaps_ms:
        wait_ms = limiter.take("key", clock.advance(gap_ms))
        if wait_ms:
            assert limiter.take("key", clock()) == wait_ms
            assert limiter.take("key", clock.advance(wait_ms)) == 0


@given(RATES)
def test_the_wait_is_no_longer_than_needed(rate: Rate) -> None:
    """A millisecond before the wait is over it is still too early."""
    limiter = RateLimiter(rate)
    while (wait_ms := limiter.take("key", 0)) == 0:
        pass
    assert limiter.take("key", wait_ms - 1) > 0


def test_what_was_allowed_elsewhere_is_paid_back() -> None:
    """A bucket that is overdrawn lets nobody through until it has made up for it."""
    limiter = RateLimiter(Rate(per_second=1, burst=5))
    assert limiter.spend("ann", 0, cost=8) == -3
    assert limiter.take("ann", 0) == 4_000
    assert limiter.take("ann", 4_000) == 0


def test_giving_back_fills_no_bucket_over_its_burst() -> None:
    """What is given back can be taken again, and no more than that."""
    limiter = RateLimiter(Rate(per_second=1, burst=2))
    assert limiter.take("ann", 0) == 0
    assert limiter.spend("ann", 0, cost=-1) == 2
    assert limiter.spend("ann", 0, cost=-1) == 2


def test_a_wider_count_only_lowers() -> None:
    """Who counts more than this limiter can take from it, and never gives."""
    limiter = RateLimiter(Rate(per_second=1, burst=5))
    limiter.lower("ann", 0, 1)
    limiter.lower("ann", 0, 4)
    assert [limiter.take("ann", 0), limiter.take("ann", 0)] == [0, 1_000]


def test_a_cost_counts_as_many() -> None:
    """A dear request takes several tokens at once or none."""
    limiter = RateLimiter(Rate(1, 10))
    assert limiter.take("ann", 0, cost=8) == 0
    assert limiter.take("ann", 0, cost=8) == 6_000
    assert limiter.take("ann", 0, cost=2) == 0


def test_a_clock_that_steps_back_gives_nothing() -> None:
    """Time that runs backwards neither fills nor empties a bucket."""
    limiter = RateLimiter(Rate(1, 1))
    assert limiter.take("ann", 10_000) == 0
    assert limiter.take("ann", 0) == 1_000
    assert limiter.take("ann", 11_000) == 0


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many keys come, no more buckets are kept than the limit says."""
    monkeypatch.setattr(rates, "BUCKETS_MAX", 100)
    limiter = RateLimiter(Rate(1, 5))
    for key in range(1_000):
        limiter.take(key, key)
        assert len(limiter._buckets) <= 100


def test_full_buckets_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making room costs nobody who is still being slowed down their bucket."""
    monkeypatch.setattr(rates, "BUCKETS_MAX", 10)
    limiter = RateLimiter(Rate(1, 2))
    for key in range(8):
        limiter.take(key, 0)
    assert limiter.take("busy", 10_000, cost=2) == 0
    for newcomer in ("more", "and more"):
        limiter.take(newcomer, 10_000)
    assert limiter.take("busy", 10_000) > 0


def test_making_room_stays_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room is made in one go for many: a flood of new keys does not look through all of them each time."""
    monkeypatch.setattr(rates, "BUCKETS_MAX", 100)
    limiter, looked = RateLimiter(Rate(1, 50)), 0
    forget = limiter._forget_full

    def counted(now_ms: int) -> None:
        nonlocal looked
        looked += 1
        forget(now_ms)

    monkeypatch.setattr(limiter, "_forget_full", counted)
    for key in range(10_000):
        limiter.take(key, key * 500)
    assert looked <= 10_000 // 50
