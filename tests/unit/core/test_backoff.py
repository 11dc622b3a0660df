"""The backoff of the source documents."""

from hypothesis import given
from hypothesis import strategies as st

from parley.core.backoff import backoff_ms


def test_it_doubles_up_to_a_minute() -> None:
    """Without chance it is 1, 2, 4 … seconds, and never more than its limit."""
    assert [backoff_ms(n, 0.0) for n in range(8)] == [1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000]
    assert backoff_ms(10**9, 0.0) == 60_000
    assert backoff_ms(5, 0.0, most_ms=8_000) == 8_000


@given(attempt=st.integers(0, 100), chance=st.floats(0, 1))
def test_chance_adds_a_tenth_at_most(attempt: int, chance: float) -> None:
    """Chance makes it longer, by up to a tenth, never shorter."""
    plain = backoff_ms(attempt, 0.0)
    assert plain <= backoff_ms(attempt, chance) <= plain * 1.1
