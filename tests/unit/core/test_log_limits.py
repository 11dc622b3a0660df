"""Lines that an outage could repeat: the first is logged, then few, and none is uncounted."""

from parley.core.log_limits import CAUSES_MAX, LINE_INTERVAL_SECONDS, LineLimit


def test_the_first_line_is_logged_at_once() -> None:
    """Nothing was left out before it."""
    assert LineLimit().admit("down", now=5.0) == {}


def test_a_thousand_lines_in_an_interval_are_one() -> None:
    """An outage that repeats itself says so once."""
    limit = LineLimit()
    said = [limit.admit("down", now=n * LINE_INTERVAL_SECONDS / 1_000) for n in range(1_000)]
    assert [fields for fields in said if fields is not None] == [{}]


def test_the_next_line_counts_those_left_out() -> None:
    """After the interval one more is logged, and it says how many were not."""
    limit = LineLimit()
    for _ in range(8):
        limit.admit("down", now=0.0)
    assert limit.admit("down", now=LINE_INTERVAL_SECONDS) == {"not_logged": 7}


def test_a_cause_does_not_silence_another() -> None:
    """Two services that fail are two lines."""
    limit = LineLimit()
    assert [limit.admit(cause, now=0.0) for cause in ("a", "b")] == [{}, {}]


def test_the_end_of_a_cause_is_told_once_with_its_count() -> None:
    """Whoever says that it is over says what was left out; nothing is over that never was."""
    limit = LineLimit()
    for _ in range(3):
        limit.admit("down", now=0.0)
    assert [limit.end("down"), limit.end("down")] == [{"not_logged": 2}, None]


def test_a_cause_that_comes_back_is_logged_at_once() -> None:
    """A second outage is news, however soon."""
    limit = LineLimit()
    limit.admit("down", now=0.0)
    limit.end("down")
    assert limit.admit("down", now=0.1) == {}


def test_invented_causes_fill_neither_log_nor_memory() -> None:
    """Beyond so many at once they share one line and one count."""
    limit = LineLimit()
    said = [limit.admit(f"peer {n}", now=0.0) for n in range(CAUSES_MAX * 10)]
    assert len([fields for fields in said if fields is not None]) == CAUSES_MAX + 1
    assert len(limit._silences) == CAUSES_MAX + 1


def test_old_causes_make_room() -> None:
    """When they are over, new ones are logged by themselves again."""
    limit = LineLimit()
    for n in range(CAUSES_MAX):
        limit.admit(f"peer {n}", now=0.0)
    assert limit.admit("late", now=LINE_INTERVAL_SECONDS) == {}
    assert "late" in limit._silences
