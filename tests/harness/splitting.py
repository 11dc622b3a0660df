"""One direction of a connection, cut into HTTP heads, WebSocket messages and bytes that are neither.

Just enough of RFC 6455 (section 5.2, base framing) for a proxy that drops and repeats whole messages:
it decompresses nothing, and forwards unknown bytes unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Struct

PIECE_BYTES_MAX = 16 * 1024 * 1024

HEAD_END = b"\r\n\r\n"
ASKED = b"GET "
SWITCHED = b"HTTP/1.1 101"
FIN = 0x80
COMPRESSED = 0x40
MASKED = 0x80
TEXT = 1
BINARY = 2
CONTROL = 8


class Piece(Struct):
    """Bytes that belong together; `kind` is the frame's `type` when they are one whole message."""

    raw: bytes
    kind: str | None = None


class _Typed(Struct):
    type: str = ""


class TooLong(Exception):
    """A head or a message that is longer than this proxy keeps in memory."""


class Splitter:
    """Takes the bytes of each read, and yields pieces to forward, in order and without loss."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._message = bytearray()
        self._payload = bytearray()
        self._opcode = 0
        self._in_frames = False

    def feed(self, data: bytes) -> Iterator[Piece]:
        self._buffer += data
        while (piece := self._next()) is not None:
            if piece.raw:
                yield piece
        if len(self._buffer) + len(self._message) > PIECE_BYTES_MAX:
            raise TooLong

    def rest(self) -> bytes:
        """The bytes of an incomplete piece when the connection ended."""
        return bytes(self._message) + self._taken(len(self._buffer))

    def _next(self) -> Piece | None:
        if not self._buffer:
            return None
        return self._next_frame() if self._in_frames else self._next_http()

    def _next_http(self) -> Piece | None:
        """A head that switches to WebSocket ends where frames begin; all else is plain HTTP."""
        beginnings = (ASKED, SWITCHED)
        if not self._buffer.startswith(beginnings):
            undecided = any(start.startswith(self._buffer) for start in beginnings)
            return None if undecided else Piece(self._taken(len(self._buffer)))
        end = self._buffer.find(HEAD_END)
        if end < 0:
            return None
        head = bytes(self._buffer[: end + len(HEAD_END)]).lower()
        self._in_frames = head.startswith(SWITCHED.lower()) or b"upgrade: websocket" in head
        return Piece(self._taken(len(head) if self._in_frames else len(self._buffer)))

    def _next_frame(self) -> Piece | None:
        """The next whole message, or a control frame, which may come in the middle of one."""
        header = frame_header(self._buffer)
        if header is None or len(self._buffer) < header.header_bytes + header.payload_bytes:
            return None
        raw = self._taken(header.header_bytes + header.payload_bytes)
        if header.opcode >= CONTROL:
            return Piece(raw)
        if not self._message:
            self._opcode = 0 if header.first_byte & COMPRESSED else header.opcode
        self._message += raw
        self._payload += unmasked(raw[header.header_bytes :], header.mask)
        return self._whole_message() if header.first_byte & FIN else Piece(b"")

    def _whole_message(self) -> Piece:
        piece = Piece(bytes(self._message), kind_of(self._opcode, bytes(self._payload)))
        self._message.clear()
        self._payload.clear()
        return piece

    def _taken(self, count: int) -> bytes:
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken


class FrameHeader(Struct):
    first_byte: int
    header_bytes: int
    payload_bytes: int
    mask: bytes

    @property
    def opcode(self) -> int:
        return self.first_byte & 0x0F


def frame_header(data: bytearray) -> FrameHeader | None:
    """The header at the start of the data, or None while it is incomplete."""
    if len(data) < 2:
        return None
    short = data[1] & 0x7F
    length_bytes = {126: 2, 127: 8}.get(short, 0)
    mask_at = 2 + length_bytes
    header_bytes = mask_at + (4 if data[1] & MASKED else 0)
    if len(data) < header_bytes:
        return None
    payload_bytes = int.from_bytes(data[2:mask_at], "big") if length_bytes else short
    if payload_bytes > PIECE_BYTES_MAX:
        raise TooLong
    return FrameHeader(data[0], header_bytes, payload_bytes, bytes(data[mask_at:header_bytes]))


def unmasked(payload: bytes, mask: bytes) -> bytes:
    if not mask or not payload:
        return payload
    repeated = (mask * (len(payload) // 4 + 1))[: len(payload)]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")).to_bytes(len(payload), "big")


def kind_of(opcode: int, payload: bytes) -> str | None:
    """The `type` of a frame in either codec; None for anything else."""
    try:
        if opcode == TEXT:
            return msgspec.json.decode(payload, type=_Typed).type or None
        if opcode == BINARY:
            return msgspec.msgpack.decode(payload, type=_Typed).type or None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return None
