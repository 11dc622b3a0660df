"""The strategy of a chat, by its size or by choice."""

import pytest

from parley.core.fanout import FanoutSizes, may_notify, strategy_of
from parley.model import Fanout, MemberSettings, Notify


@pytest.mark.parametrize(
    ("members", "strategy"),
    [
        (2, Fanout.WRITE),
        (99, Fanout.WRITE),
        (100, Fanout.HYBRID),
        (1_000, Fanout.HYBRID),
        (1_001, Fanout.READ),
        (10_000, Fanout.READ),
    ],
)
def test_the_size_decides(members: int, strategy: Fanout) -> None:
    """Fewer than 100 members: write; more than 1,000: read."""
    assert strategy_of(members, None, FanoutSizes()) is strategy


@pytest.mark.parametrize("chosen", list(Fanout))
def test_a_choice_wins(chosen: Fanout) -> None:
    """Whatever the size."""
    assert [strategy_of(members, chosen, FanoutSizes()) for members in (2, 500, 5_000)] == [chosen] * 3


def test_other_sizes() -> None:
    """An operator may set where each begins."""
    sizes = FanoutSizes(write_below=10, read_above=20)
    found = [strategy_of(members, None, sizes) for members in (9, 10, 20, 21)]
    assert found == [Fanout.WRITE, Fanout.HYBRID, Fanout.HYBRID, Fanout.READ]


@pytest.mark.parametrize(
    ("notify", "is_mentioned", "is_muted", "rings"),
    [
        (Notify.ALL, False, False, True),
        (Notify.ALL, True, True, False),
        (Notify.MENTIONS, False, False, False),
        (Notify.MENTIONS, True, False, True),
        (Notify.NONE, True, False, False),
    ],
)
def test_who_needs_a_queue(notify: Notify, is_mentioned: bool, is_muted: bool, rings: bool) -> None:
    """In a hybrid chat, who wants no ring costs nothing."""
    settings = MemberSettings(notify)
    assert may_notify(settings, is_mentioned=is_mentioned, is_muted=is_muted) is rings
