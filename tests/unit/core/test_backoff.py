"""The backoff of the source documents."""

from hypothesis import given
from hypothesis import strategies as st

from parley.core.backoff import JITTER_SHARE, backoff

MINUTE = 60.0


def test_it_doubles_up_to_a_minute() -> None:
    """Without chance it is 1, 2, 4 … seconds, and never more than its limit."""
    assert [backoff(n, 1.0, MINUTE) for n in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert backoff(10**9, 1.0, MINUTE) == MINUTE
    assert backoff(5, 1.0, 8.0) == 8


@given(attempt=st.integers(0, 100), chance=st.floats(0, 1))
def test_chance_adds_a_tenth_at_most(attempt: int, chance: float) -> None:
    """Chance makes it longer, by up to a tenth, never shorter."""
    plain = backoff(attempt, 1.0, MINUTE)
    assert plain <= backoff(attempt, 1.0, MINUTE, JITTER_SHARE * chance) <= plain * 1.1


@given(attempt=st.integers(0, 100), chance=st.floats(0, 1))
def test_full_jitter_is_anything_up_to_the_plain_wait(attempt: int, chance: float) -> None:
    """With `chance - 1` as jitter the wait lies between nothing and its plain length."""
    assert 0 <= backoff(attempt, 1.0, MINUTE, chance - 1) <= backoff(attempt, 1.0, MINUTE)
