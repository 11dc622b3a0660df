"""Where a catch-up starts: every kind of position that a client may come with."""

import pytest

from parley.core.sync import Start, decide_start, is_same_message
from parley.model import Head

HEAD = Head(epoch=3, sequence=10)
FROM_THE_BEGINNING = Start(0, True)


@pytest.mark.parametrize(
    ("last_acked", "epoch", "start"),
    [
        (0, None, Start(0, False)),
        (0, 3, Start(0, False)),
        (1, 3, Start(1, False)),
        (9, None, Start(9, False)),
        (9, 3, Start(9, False)),
        (10, None, Start(10, False)),
        (10, 3, Start(10, False)),
        (11, None, FROM_THE_BEGINNING),
        (11, 3, FROM_THE_BEGINNING),
        (0, 2, FROM_THE_BEGINNING),
        (5, 1, FROM_THE_BEGINNING),
        (5, 2, FROM_THE_BEGINNING),
        (10, 2, FROM_THE_BEGINNING),
        (5, 0, FROM_THE_BEGINNING),
        (0, 4, FROM_THE_BEGINNING),
        (5, 4, FROM_THE_BEGINNING),
        (11, 4, FROM_THE_BEGINNING),
    ],
)
def test_a_position_is_resumed_from_only_in_its_own_log(
    last_acked: int, epoch: int | None, start: Start
) -> None:
    """A client goes on after a position of this epoch within the log, and starts over from any other."""
    assert decide_start(last_acked, epoch, HEAD) == start


@pytest.mark.parametrize(("last_acked", "start"), [(0, Start(0, False)), (1, FROM_THE_BEGINNING)])
def test_an_empty_log_has_one_position(last_acked: int, start: Start) -> None:
    """In a log without entries only the beginning can be resumed from."""
    assert decide_start(last_acked, 1, Head(1, 0)) == start


@pytest.mark.parametrize(
    ("claimed", "stored", "is_same"),
    [("msg_1", "msg_1", True), ("msg_1", "msg_2", False), ("msg_1", None, False), ("", None, False)],
)
def test_a_last_message_is_compared_with_what_is_stored(
    claimed: str, stored: str | None, is_same: bool
) -> None:
    """Only the very message at its position confirms a client's position; a void confirms none."""
    assert is_same_message(claimed, stored) is is_same
