"""The ranges of close codes tell a client what to do, and limits fit each other."""

import pytest

from parley.wire import codes, limits
from parley.wire.codes import Close, may_resume

ALL_CODES = [value for value in vars(codes).values() if isinstance(value, Close)]


@pytest.mark.parametrize("close", ALL_CODES, ids=lambda close: str(close.code))
def test_a_reason_fits_into_a_close_frame(close: Close) -> None:
    """RFC 6455 leaves 123 bytes for the reason."""
    assert 0 < len(close.reason.encode()) <= 123


def test_codes_are_distinct() -> None:
    """Each code means one thing."""
    assert len({close.code for close in ALL_CODES}) == len(ALL_CODES)


@pytest.mark.parametrize(
    ("code", "resumes"),
    [(1000, True), (1006, True), (1009, False), (4000, True), (4099, True), (4100, False), (4299, False)],
)
def test_the_range_says_whether_to_resume(code: int, resumes: bool) -> None:
    """4000 to 4099 and ordinary losses are resumed as they are, 4100 to 4299 and 1009 are not."""
    assert may_resume(code) is resumes


def test_a_slow_reader_may_resume() -> None:
    """Being too slow, idle or cut off by a restart never ends a conversation for good."""
    assert all(may_resume(close.code) for close in (codes.GOING_AWAY, codes.TOO_SLOW, codes.IDLE))


def test_the_contracts_limits_are_its_numbers() -> None:
    """What a client is told are the numbers of the contract."""
    told = limits.WELCOME_LIMITS
    assert told["MESSAGE_BYTES_MAX"] == 65_536
    assert told["FRAME_BYTES_MAX"] == 131_072
    assert told["BODY_BYTES_MAX"] == 1_048_576
    assert told["OUTBOX_BYTES_MAX"] == 4_194_304
    assert (told["CHAT_MEMBERS_MAX"], told["USER_CHATS_MAX"], told["IN_FLIGHT_MAX"]) == (10_000, 5_000, 1_024)
    assert (told["PRESENCE_BATCH_MAX"], told["PAGE_ENTRIES_MAX"]) == (500, 1_000)


def test_the_largest_message_fits_into_a_frame() -> None:
    """Content of the largest size, each byte escaped as JSON may, is the sender's to shorten; plain fits."""
    assert limits.FRAME_BYTES_MAX >= limits.MESSAGE_BYTES_MAX + 1_024
