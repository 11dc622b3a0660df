"""What becomes of a delivery that failed."""

import pytest

from parley.core.retry import (
    TEMPORARY,
    DeliveryFailure,
    Fault,
    RetryPolicy,
    after_crash,
    after_failure,
    bucket_of,
    delay_of_retry,
    is_too_old,
)

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("retry_count", "shortest_ms", "longest_ms"),
    [
        (0, 1_000, 1_100),
        (1, 2_000, 2_200),
        (2, 4_000, 4_400),
        (5, 32_000, 35_200),
        (6, 60_000, 66_000),
        (60, 60_000, 66_000),
    ],
)
def test_waits_double_up_to_a_minute(retry_count: int, shortest_ms: int, longest_ms: int) -> None:
    """From the plain length to a tenth more, by chance."""
    assert delay_of_retry(retry_count, 0.0) == shortest_ms
    assert delay_of_retry(retry_count, 1.0) == longest_ms


@pytest.mark.parametrize(
    ("delay_ms", "bucket"),
    [
        (1, "1s"),
        (1_000, "1s"),
        (1_001, "5s"),
        (5_000, "5s"),
        (5_001, "30s"),
        (30_000, "30s"),
        (30_001, "5m"),
        (66_000, "5m"),
        (300_001, "5m"),
        (600_000, "5m"),
    ],
)
def test_a_bucket_is_never_shorter_than_the_wait(delay_ms: int, bucket: str) -> None:
    """The shortest of those that are long enough; if there is none, the longest, which takes it again."""
    assert bucket_of(delay_ms) == bucket


@pytest.mark.parametrize("fault", Fault)
def test_only_temporary_faults_are_tried_again(fault: Fault) -> None:
    """The type of the fault decides; a permanent one is a dead letter at once."""
    temporary = {"unreachable", "timeout", "busy", "server_error", "crashed"}
    wait = after_failure(DeliveryFailure(fault), 0, RetryPolicy(), 0.0)
    assert wait == (1_000 if fault.value in temporary else None)
    assert (fault in TEMPORARY) == (fault.value in temporary)


@pytest.mark.parametrize(("max_retries", "retries"), [(3, 3), (0, 0), (5, 5)])
def test_retries_end(max_retries: int, retries: int) -> None:
    """After so many there is no other one."""
    policy = RetryPolicy(max_retries=max_retries)
    failure = DeliveryFailure(Fault.TIMEOUT)
    answers = [after_failure(failure, count, policy, 0.0) for count in range(retries + 1)]
    assert [answer is None for answer in answers] == [False] * retries + [True]


def test_the_second_crash_is_poison() -> None:
    """The first may have been an accident."""
    assert after_crash(1, "").fault is Fault.CRASHED
    assert after_crash(2, "").fault is Fault.POISON


def test_a_message_is_too_old_after_seven_days() -> None:
    """Not yet at exactly that age."""
    policy = RetryPolicy()
    assert not is_too_old(0, 7 * DAY_MS, policy)
    assert is_too_old(0, 7 * DAY_MS + 1, policy)
