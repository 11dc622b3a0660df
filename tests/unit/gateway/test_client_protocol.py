"""The headers of frames, wherever a stream of them is cut."""

import random

import pytest

from parley.gateway.client_protocol import FrameHeaders
from tests.integration.gateway.bare import TEXT, masked

LENGTHS = (0, 1, 125, 126, 127, 65_535, 65_536, 70_000)
UNMASKED = b"\x81\x02hi"


@pytest.mark.parametrize("most_bytes", [1, 2, 3, 7, 1_000, 100_000])
def test_masked_frames_pass_however_they_are_cut(most_bytes: int) -> None:
    """Frames of every length, in pieces of every size."""
    stream = b"".join(masked(TEXT, b"\x7f" * length) for length in LENGTHS)
    headers = FrameHeaders()
    assert all(headers.are_masked(piece) for piece in pieces(stream, most_bytes))


@pytest.mark.parametrize("most_bytes", [1, 2, 3, 7, 1_000, 100_000])
@pytest.mark.parametrize("length", LENGTHS)
def test_a_frame_without_a_mask_is_found_behind_any_other(most_bytes: int, length: int) -> None:
    """The header behind a masked frame is the one that is looked at, not its payload."""
    headers = FrameHeaders()
    stream = masked(TEXT, b"\x00" * length) + UNMASKED
    assert not all(headers.are_masked(piece) for piece in pieces(stream, most_bytes))


def test_a_close_is_seen() -> None:
    """A close frame among others is noticed, and nothing that looks like one in a payload."""
    headers = FrameHeaders()
    headers.are_masked(masked(TEXT, masked(8, b"")))
    before = headers.is_closed
    headers.are_masked(masked(8, b"\x03\xe8"))
    assert (before, headers.is_closed) == (False, True)


def pieces(stream: bytes, most_bytes: int) -> list[bytes]:
    draw = random.Random(most_bytes)
    found, at = [], 0
    while at < len(stream):
        size = draw.randint(1, most_bytes)
        found.append(stream[at : at + size])
        at += size
    return found
