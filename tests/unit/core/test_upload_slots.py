"""Whose place an upload gets, and how long a part may take."""

import pytest

from parley.core.upload_slots import part_seconds_max, whose_slot
from parley.wire.limits import (
    ATTACHMENT_PART_BYTES,
    UPLOAD_GRACE_SECONDS,
    UPLOADS_AT_ONCE_MAX,
    UPLOADS_PER_PERSON_MAX,
)

FOUR_FULL = dict.fromkeys("abcd", UPLOADS_PER_PERSON_MAX)
assert sum(FOUR_FULL.values()) == UPLOADS_AT_ONCE_MAX


@pytest.mark.parametrize(
    ("held", "owner"),
    [
        ({}, "x"),
        ({"x": UPLOADS_PER_PERSON_MAX - 1}, "x"),
        ({"x": UPLOADS_PER_PERSON_MAX}, None),
        ({**FOUR_FULL, "d": UPLOADS_PER_PERSON_MAX - 1}, "x"),
        (FOUR_FULL, "a"),
        ({"a": 4, "b": 4, "c": 4, "d": 2, "x": 2}, "a"),  # as many as d
        ({"a": 4, "b": 4, "c": 4, "e": 1, "x": 3}, None),  # it would have more than a
        ({**dict.fromkeys("abcdefghijklmno", 1), "p": 1}, None),
        ({**dict.fromkeys("abcdefghijklmn", 1), "p": 2}, "p"),
    ],
)
def test_a_person_with_fewer_uploads_gets_a_place(held: dict[str, int], owner: str | None) -> None:
    """One that is free, else one of the person with the most, while that makes it fairer."""
    assert whose_slot(held, "x") == owner


def test_a_part_has_its_time() -> None:
    """From the start a little, and more with every byte that comes."""
    assert part_seconds_max(0) == UPLOAD_GRACE_SECONDS
    assert part_seconds_max(ATTACHMENT_PART_BYTES) == UPLOAD_GRACE_SECONDS + 128
