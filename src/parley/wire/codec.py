"""JSON text frames and MessagePack binary frames of the same values.

An entry is stored as the JSON it travels as, so the JSON codec embeds it untouched; MessagePack
transcodes it. Nothing a client sends makes a codec raise anything but `NotAFrame`: what is wrong with
a frame's fields is a `Misread` value.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Protocol

import msgspec
from msgspec import Raw, Struct

from parley.errors import BAD_REQUEST, UNKNOWN_TYPE, Refusal
from parley.wire.frames import Entry, Request, RequestId, ServerFrame

JSON_PROTOCOL = "parley.v1"
MSGPACK_PROTOCOL = "parley.v1.msgpack"

KNOWN_TYPES = frozenset(
    kind.__struct_config__.tag
    for kind in Request.__args__  # the union's own list, so none is forgotten
)
REQUEST_ID_MAX = 2**63
WHOLE_NUMBER_DIGITS_MAX = 20
MALFORMED = (msgspec.DecodeError, RecursionError, UnicodeError)


class NotAFrame(Exception):
    """What came is no object: the connection cannot go on."""


class Misread(Struct, frozen=True):
    """An object that is no valid request, with what is owed to its sender."""

    refusal: Refusal
    request_id: RequestId


class Codec(Protocol):
    """One encoding of the contract."""

    protocol: str
    binary: bool

    def decode(self, data: bytes | str) -> Request | Misread:
        """The request in a frame. NotAFrame if it is no object at all."""
        ...

    def encode(self, frame: ServerFrame) -> bytes:
        """The bytes of one frame; `entries` must already be in this codec's own form."""
        ...

    def entries(self, stored: Sequence[bytes]) -> list[Raw]:
        """Stored entries in the form this codec embeds."""
        ...


class JsonCodec:
    protocol = JSON_PROTOCOL
    binary = False

    def __init__(self) -> None:
        self._requests: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
        self._encoder = msgspec.json.Encoder()

    def decode(self, data: bytes | str) -> Request | Misread:
        try:
            return self._requests.decode(data)
        except MALFORMED as error:
            return _misread(self._envelope(data), error)

    @staticmethod
    def _envelope(data: bytes | str) -> object:
        """What the field's strict decoder cannot hold (a lone surrogate, 1e400) may still be an object."""
        try:
            return json.loads(data, parse_int=_whole_number)
        except (ValueError, RecursionError) as error:
            raise NotAFrame("not JSON") from error

    def encode(self, frame: ServerFrame) -> bytes:
        return self._encoder.encode(frame)

    def entries(self, stored: Sequence[bytes]) -> list[Raw]:
        return [Raw(entry) for entry in stored]


class MsgpackCodec:
    protocol = MSGPACK_PROTOCOL
    binary = True

    def __init__(self) -> None:
        self._requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
        self._encoder = msgspec.msgpack.Encoder()
        self._stored = msgspec.json.Decoder(Entry)

    def decode(self, data: bytes | str) -> Request | Misread:
        if isinstance(data, str):
            raise NotAFrame("this connection speaks MessagePack in binary frames")
        try:
            return self._requests.decode(data)
        except MALFORMED as error:
            return _misread(self._envelope(data), error)

    @staticmethod
    def _envelope(data: bytes) -> object:
        try:
            return msgspec.msgpack.decode(data)
        except (*MALFORMED, ValueError, TypeError) as error:
            raise NotAFrame("not MessagePack") from error

    def encode(self, frame: ServerFrame) -> bytes:
        return self._encoder.encode(frame)

    def entries(self, stored: Sequence[bytes]) -> list[Raw]:
        return [Raw(self._encoder.encode(self._stored.decode(entry))) for entry in stored]


JSON = JsonCodec()
MSGPACK = MsgpackCodec()
CODECS: dict[str, Codec] = {JSON_PROTOCOL: JSON, MSGPACK_PROTOCOL: MSGPACK}


def _misread(parsed: object, error: Exception) -> Misread:
    """Say what is wrong with an object that is no request; NotAFrame when it is no object."""
    if not isinstance(parsed, dict):
        raise NotAFrame("a frame is one object with a type")
    number = parsed.get("id")
    known = (
        isinstance(number, int | float)
        and not isinstance(number, bool)
        and -REQUEST_ID_MAX <= number <= REQUEST_ID_MAX
    )
    request_id = number if known else None
    kind = parsed.get("type")
    if not isinstance(kind, str) or kind not in KNOWN_TYPES:
        return Misread(UNKNOWN_TYPE.because(f"there is no frame of type {_shown(kind)}"), request_id)
    return Misread(BAD_REQUEST.because(str(error)), request_id)


def _whole_number(digits: str) -> int | float:
    """Python refuses to read thousands of digits, but they are JSON all the same."""
    return int(digits) if len(digits) <= WHOLE_NUMBER_DIGITS_MAX else float(digits)


def _shown(value: object) -> str:
    return ascii(value[:40]) if isinstance(value, str) else "that is no text"
