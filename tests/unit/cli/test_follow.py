"""Where a tail starts."""

import pytest

from parley.cli.follow import LAST_DEFAULT, start_after

HEAD = 100


@pytest.mark.parametrize(
    ("start", "last", "after"),
    [
        (None, None, HEAD - LAST_DEFAULT),
        (None, 3, 97),
        (None, 0, HEAD),
        (None, 1_000, 0),
        (1, None, 0),
        (40, None, 39),
        (40, 3, 97),
        (99, 50, 98),
        (40, 0, HEAD),
        (HEAD, None, HEAD - 1),
        (HEAD + 1, None, HEAD),
        (HEAD + 2, None, HEAD),
        (10 * HEAD, 5, HEAD),
    ],
)
def test_a_tail_starts_where_both_options_allow(start: int | None, last: int | None, after: int) -> None:
    """Not before `--from`, with at most `-n` of the last ones, and never beyond the head."""
    assert start_after(start, last, HEAD) == after
