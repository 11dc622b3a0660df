"""The token of an overview: it gives back exactly what was sent, and refuses what no overview has made."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.errors import Refused
from parley.store.compared_overviews import (
    LEFT_REMEMBERED_MAX,
    TAG_BYTES,
    Versions,
    decode_token,
    encode_token,
    tag_of,
)
from parley.wire.limits import FRAME_BYTES_MAX, SEQUENCE_MAX, USER_CHATS_MAX


def understood(token: str) -> Versions | str:
    """What a token says, or the code that it is refused with."""
    try:
        return decode_token(token)
    except Refused as refused:
        return refused.refusal.code


numbers = st.integers(0, 2**62)
sent = st.dictionaries(
    st.binary(min_size=TAG_BYTES, max_size=TAG_BYTES), st.tuples(numbers, numbers, numbers), max_size=50
)


@given(sent)
def test_a_token_says_what_was_told_in_its_order(said: Versions) -> None:
    """Encoding and decoding give the same chats and versions, in the same order, in plain letters."""
    token = encode_token(said)
    assert list(decode_token(token).items()) == list(said.items())
    assert token.replace("-", "a").replace("_", "a").isalnum()


@given(st.text(max_size=200))
def test_any_text_is_a_token_or_refused(text: str) -> None:
    """Whatever a client sends is understood or a bad request, never a failure."""
    assert isinstance(understood(text), dict | str)


@given(st.binary(max_size=200))
def test_any_bytes_behind_a_token_are_understood_or_refused(packed: bytes) -> None:
    """Well-formed letters over arbitrary bytes end in an answer or a refusal as well."""
    token = base64.urlsafe_b64encode(b"\x01" + packed).rstrip(b"=").decode()
    found = understood(token)
    assert found == "bad_request" or all(len(tag) == TAG_BYTES for tag in found)


@pytest.mark.parametrize(
    "token",
    [
        "",
        "A",
        "12.4611686018427387904",
        "AQ==",
        "AQ ",
        encode_token({tag_of("chat"): (1, 1, 1)})[:-1],
        "Ag",
        base64.urlsafe_b64encode(b"\x01" + b"t" * TAG_BYTES + b"\xff" * 200).decode().rstrip("="),
        "A" * (FRAME_BYTES_MAX + 1),
    ],
)
def test_what_is_no_token_is_refused(token: str) -> None:
    """Empty, cut short, foreign, of another version, endless and too long tokens are refused."""
    with pytest.raises(Refused):
        decode_token(token)


def test_the_longest_usual_token_fits_in_a_frame_comfortably() -> None:
    """5,000 busy chats, and those that were left, leave a quarter of a frame for the rest of the request."""
    chats = {
        tag_of(f"chat_{number}"): (1, 2**28 - 1, 2**21 - 1)
        for number in range(USER_CHATS_MAX + LEFT_REMEMBERED_MAX)
    }
    assert len(chats) == USER_CHATS_MAX + LEFT_REMEMBERED_MAX
    assert len(encode_token(chats)) < FRAME_BYTES_MAX * 3 // 4


def test_the_highest_sequence_fits() -> None:
    """No head that a log can have is cut."""
    said = {tag_of("chat"): (1, SEQUENCE_MAX, 2**53)}
    assert decode_token(encode_token(said)) == said
