"""The splitter loses no byte, finds whole messages and leaves the rest alone."""

import os

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.splitting import PIECE_BYTES_MAX, Piece, Splitter, TooLong

ASKED = b"GET /v1/ws HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\n\r\n"
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"
SEND = msgspec.json.encode({"type": "send_message", "content": "x" * 300})


def frame(payload: bytes, opcode: int = 1, first_bits: int = 0x80, mask: bytes = b"") -> bytes:
    """A WebSocket frame, by the letter of RFC 6455 section 5.2."""
    length, masked = len(payload), 0x80 if mask else 0
    if length < 126:
        header = bytes([first_bits | opcode, masked | length])
    elif length < 2**16:
        header = bytes([first_bits | opcode, masked | 126]) + length.to_bytes(2, "big")
    else:
        header = bytes([first_bits | opcode, masked | 127]) + length.to_bytes(8, "big")
    body = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload)) if mask else payload
    return header + mask + body


def split(data: bytes, chunk_bytes: int = 1 << 20) -> list[Piece]:
    splitter = Splitter()
    chunks = [data[at : at + chunk_bytes] for at in range(0, len(data), chunk_bytes)]
    return [piece for chunk in chunks for piece in splitter.feed(chunk)]


@pytest.mark.parametrize("mask", [b"", b"\x01\x02\x03\x04"], ids=["server", "client"])
@pytest.mark.parametrize("chunk_bytes", [1, 7, 1 << 20])
@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_a_message_is_found_whole(mask: bytes, chunk_bytes: int, size: int) -> None:
    """A message is one piece with its type, whatever its size, its mask and how it was cut up."""
    payload = msgspec.json.encode({"type": "ack", "pad": "x" * size})
    message = frame(payload, mask=mask)
    pieces = split(ASKED + message + message, chunk_bytes)
    assert [piece for piece in pieces if piece.kind] == [Piece(message, "ack")] * 2


def test_messagepack_has_a_kind_too() -> None:
    """The type of a binary frame is read as MessagePack."""
    message = frame(msgspec.msgpack.encode({"type": "messages"}), opcode=2)
    assert split(SWITCHED + message)[1:] == [Piece(message, "messages")]


def test_fragments_are_one_message() -> None:
    """A message in three frames is one piece, and a ping between them stays a piece of its own."""
    head, middle, tail = SEND[:100], SEND[100:200], SEND[200:]
    ping = frame(b"", opcode=9)
    parts = [frame(head, 1, 0), frame(middle, 0, 0), ping, frame(tail, 0)]
    assert split(ASKED + b"".join(parts))[1:] == [
        Piece(ping),
        Piece(parts[0] + parts[1] + parts[3], "send_message"),
    ]


@pytest.mark.parametrize("payload", [b"not json", b"[1]", b'{"type": 7}', b"{}", b"[" * 5_000])
def test_what_is_no_frame_of_ours_has_no_kind(payload: bytes) -> None:
    """A payload that is no object with a type goes through as it is."""
    assert split(ASKED + frame(payload))[1:] == [Piece(frame(payload))]


def test_a_compressed_message_has_no_kind() -> None:
    """A message with the compression bit is not looked into."""
    message = frame(SEND, first_bits=0xC0)
    assert split(ASKED + message)[1:] == [Piece(message)]


def test_plain_http_passes() -> None:
    """Requests and bodies before an upgrade on the same connection go through, then frames are seen."""
    request = b"POST /v1/accounts HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"
    splitter = Splitter()
    pieces = [*splitter.feed(request), *splitter.feed(ASKED), *splitter.feed(frame(SEND))]
    assert pieces == [Piece(request), Piece(ASKED), Piece(frame(SEND), "send_message")]


@given(st.binary(max_size=300), st.integers(1, 50), st.sampled_from([b"", ASKED, SWITCHED]))
def test_no_byte_is_lost_or_made_up(data: bytes, chunk_bytes: int, head: bytes) -> None:
    """What comes out, and what is held back at the end, is what went in, however hostile it is."""
    splitter, whole = Splitter(), head + data
    chunks = [whole[at : at + chunk_bytes] for at in range(0, len(whole), chunk_bytes)]
    try:
        passed = b"".join(piece.raw for chunk in chunks for piece in splitter.feed(chunk))
    except TooLong:
        return
    assert sorted(passed + splitter.rest()) == sorted(whole)


def test_a_message_that_is_too_long_is_refused() -> None:
    """A frame that claims more than the proxy may keep is given up at its header."""
    claim = bytes([0x81, 127]) + (PIECE_BYTES_MAX + 1).to_bytes(8, "big")
    with pytest.raises(TooLong):
        split(ASKED + claim)


def test_a_head_without_an_end_is_refused() -> None:
    """A head that grows without end is given up."""
    with pytest.raises(TooLong):
        split(b"GET " + os.urandom(1024).hex().encode() * (PIECE_BYTES_MAX // 2048 + 1))
