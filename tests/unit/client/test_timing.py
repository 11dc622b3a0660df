"""When to try again."""

import pytest

from parley.client.timing import (
    SAFE_RESEND_MS_MAX,
    Fail,
    Resend,
    Timers,
    Timing,
    backoff_ms,
    decide_resend,
    must_check_first,
)
from parley.clock import MS_PER_DAY
from parley.errors import NOT_A_MEMBER, RATE_LIMITED

TIMING = Timing()


@pytest.mark.parametrize(
    ("attempt", "seconds"), [(0, 1), (1, 2), (2, 4), (5, 32), (6, 60), (50, 60), (10**9, 60), (-1, 1)]
)
def test_backoff_doubles_up_to_a_minute(attempt: int, seconds: int) -> None:
    """The delay is one second times two to the attempt, never above sixty."""
    assert backoff_ms(attempt, TIMING, 0) == seconds * 1000


@pytest.mark.parametrize("attempt", [0, 3, 20])
def test_jitter_adds_at_most_a_tenth(attempt: int) -> None:
    """Chance only ever lengthens the delay, by up to ten percent."""
    base = backoff_ms(attempt, TIMING, 0)
    assert backoff_ms(attempt, TIMING, 0.5) == base * 105 // 100
    assert backoff_ms(attempt, TIMING, 1) == base * 110 // 100


@pytest.mark.parametrize("attempts", [1, 2, 3])
def test_an_unanswered_send_is_resent_three_times_at_once(attempts: int) -> None:
    """The wait for the ack has passed already, so that the resend follows without another."""
    assert decide_resend(attempts, None, TIMING, 0) == Resend(0, queued=False)


@pytest.mark.parametrize(("attempts", "seconds"), [(4, 1), (5, 2), (6, 4), (40, 60)])
def test_after_three_resends_a_send_is_queued(attempts: int, seconds: int) -> None:
    """From then on it is retried with backoff, for as long as it takes."""
    assert decide_resend(attempts, None, TIMING, 0) == Resend(seconds * 1000, queued=True)


def test_a_permanent_refusal_ends_a_send() -> None:
    """What cannot help is not tried."""
    assert decide_resend(1, NOT_A_MEMBER, TIMING, 0) == Fail(NOT_A_MEMBER)


@pytest.mark.parametrize(("retry_after_ms", "attempts", "delay_ms"), [(5_000, 1, 5_000), (10, 3, 4_000)])
def test_a_temporary_refusal_waits_as_long_as_the_server_asks(
    retry_after_ms: int, attempts: int, delay_ms: int
) -> None:
    """The server's wish counts, but never shortens the backoff."""
    assert decide_resend(attempts, RATE_LIMITED.after(retry_after_ms), TIMING, 0) == Resend(
        delay_ms, queued=False
    )


@pytest.mark.parametrize("attempts", [1, 4, 5, 100])
def test_a_temporary_refusal_never_ends_a_send(attempts: int) -> None:
    """However often a message was refused for now, it is tried again."""
    assert isinstance(decide_resend(attempts, RATE_LIMITED, TIMING, 0), Resend)


def test_an_old_message_is_checked_before_the_server_forgets_it() -> None:
    """The check comes before the seven days of the keys are over, not after."""
    assert SAFE_RESEND_MS_MAX < 7 * MS_PER_DAY
    assert not must_check_first(0, SAFE_RESEND_MS_MAX - 1)
    assert must_check_first(0, SAFE_RESEND_MS_MAX)


def ran(timers: Timers, now_ms: int) -> list[str]:
    """What the timers of `noted` said until then."""
    said.clear()
    timers.run_due(now_ms)
    return list(said)


said: list[str] = []


def noted(timers: Timers, name: str, at_ms: int) -> None:
    timers.set((name, ""), at_ms, lambda _: said.append(name))


def test_timers_tell_each_deadline_once_and_in_order() -> None:
    """What is due comes earliest first, and then no more."""
    timers = Timers()
    noted(timers, "b", 20)
    noted(timers, "a", 10)
    noted(timers, "c", 30)
    assert timers.next_ms() == 10
    assert ran(timers, 20) == ["a", "b"]
    assert ran(timers, 20) == []
    assert timers.next_ms() == 30


def test_a_deadline_can_be_replaced_and_cancelled() -> None:
    """Only the last word on a key counts."""
    timers = Timers()
    noted(timers, "moved", 10)
    noted(timers, "moved", 50)
    noted(timers, "gone", 20)
    timers.cancel(("gone", ""))
    assert ran(timers, 40) == []
    assert timers.pending(("moved", ""))
    assert ran(timers, 50) == ["moved"]


def test_replaced_deadlines_do_not_pile_up() -> None:
    """A timer that is moved on and on costs no memory."""
    timers = Timers()
    for at_ms in range(10_000, 0, -1):
        timers.set(("one", ""), at_ms)
    assert len(timers._heap) < 100
    assert timers.next_ms() == 1
