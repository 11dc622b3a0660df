"""JSON text frames and MessagePack binary frames of the same values, for the server and for a client.

An entry is stored as the JSON it travels as, so the JSON codec embeds it untouched; MessagePack
transcodes it.
For any input, a server's codec raises only `NotAFrame`; an object with invalid fields is an `InvalidFrame`. A
client skips frames of a type that it does not know (`None`), so that a newer server can serve older clients.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol, final

import msgspec
from msgspec import Raw, Struct

from parley.errors import BAD_REQUEST, UNKNOWN_TYPE, Refusal
from parley.wire.frames import Entry, Request, RequestId, ServerFrame, ServerFrames

JSON_PROTOCOL = "parley.v1"
MSGPACK_PROTOCOL = "parley.v1.msgpack"

# The unions' own lists, so that no type is forgotten.
KNOWN_TYPES = frozenset(kind.__struct_config__.tag for kind in Request.__args__)
KNOWN_ANSWERS = frozenset(kind.__struct_config__.tag for kind in ServerFrames.__args__)
REQUEST_ID_MAX = 2**63
WHOLE_NUMBER_DIGITS_MAX = 20
MALFORMED = (msgspec.DecodeError, RecursionError, UnicodeError)

encode_entry = msgspec.json.Encoder().encode
"""An entry as it is stored, and as it travels in JSON."""
decode_entry = msgspec.json.Decoder(Entry).decode


class NotAFrame(Exception):
    """The data is not an object with a type: the connection must close."""


@final
class InvalidFrame(Struct, frozen=True):
    """An object that is not a valid request, with the refusal that its sender gets."""

    refusal: Refusal
    request_id: RequestId


# The server's side


class Codec(Protocol):
    """One encoding of the contract, as the server uses it."""

    protocol: str
    binary: bool

    def decode(self, data: bytes | str) -> Request | InvalidFrame:
        """The request in a frame. NotAFrame if it is not an object."""
        ...

    @property
    def encode(self) -> Callable[[ServerFrame], bytes]:
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
        self.encode = msgspec.json.Encoder().encode

    def decode(self, data: bytes | str) -> Request | InvalidFrame:
        try:
            return self._requests.decode(data)
        except MALFORMED as error:
            return _invalid_frame(self._envelope(data), error)

    @staticmethod
    def _envelope(data: bytes | str) -> object:
        """JSON that the strict decoder cannot hold (a lone surrogate, 1e400) may still be an object."""
        try:
            return json.loads(data, parse_int=_whole_number)
        except (ValueError, RecursionError) as error:
            raise NotAFrame("not JSON") from error

    def entries(self, stored: Sequence[bytes]) -> list[Raw]:
        return [Raw(entry) for entry in stored]


class MsgpackCodec:
    protocol = MSGPACK_PROTOCOL
    binary = True

    def __init__(self) -> None:
        self._requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
        self.encode = msgspec.msgpack.Encoder().encode

    def decode(self, data: bytes | str) -> Request | InvalidFrame:
        if isinstance(data, str):
            raise NotAFrame("this connection speaks MessagePack in binary frames")
        try:
            return self._requests.decode(data)
        except MALFORMED as error:
            return _invalid_frame(self._envelope(data), error)

    @staticmethod
    def _envelope(data: bytes) -> object:
        try:
            return msgspec.msgpack.decode(data)
        except (*MALFORMED, ValueError, TypeError) as error:
            raise NotAFrame("not MessagePack") from error

    def entries(self, stored: Sequence[bytes]) -> list[Raw]:
        return [Raw(self.encode(decode_entry(entry))) for entry in stored]


JSON = JsonCodec()
MSGPACK = MsgpackCodec()
CODECS: dict[str, Codec] = {JSON_PROTOCOL: JSON, MSGPACK_PROTOCOL: MSGPACK}


def _invalid_frame(parsed: object, error: Exception) -> InvalidFrame:
    """What is wrong with an object that is not a request; NotAFrame when it is not an object."""
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
        return InvalidFrame(UNKNOWN_TYPE.because(f"there is no frame of type {_shown(kind)}"), request_id)
    return InvalidFrame(BAD_REQUEST.because(str(error)), request_id)


def _whole_number(digits: str) -> int | float:
    """Python refuses to parse thousands of digits, but they are valid JSON."""
    return int(digits) if len(digits) <= WHOLE_NUMBER_DIGITS_MAX else float(digits)


def _shown(value: object) -> str:
    return ascii(value[:40]) if isinstance(value, str) else "that is not text"


# The client's side


class ClientCodec:
    """One encoding of the contract, as a client uses it. `form` is `msgspec.json` or `msgspec.msgpack`."""

    def __init__(self, protocol: str, form: Any) -> None:
        self.protocol = protocol
        self.binary = form is msgspec.msgpack
        self._encoder = form.Encoder()
        self._frames = form.Decoder(ServerFrames)
        self._entries = form.Decoder(Entry)
        self._anything = form.Decoder()

    def encode(self, request: Request) -> bytes:
        """The bytes of one request."""
        encoded: bytes = self._encoder.encode(request)
        return encoded

    def decode(self, data: bytes | str) -> ServerFrames | None:
        """The server's frame; None for a type this client does not know. NotAFrame if it is malformed."""
        if self.binary and isinstance(data, str):
            raise NotAFrame("this connection speaks MessagePack in binary frames")
        try:
            frame: ServerFrames = self._frames.decode(data)
        except MALFORMED as error:
            if self._is_of_known_type(data):
                raise NotAFrame(f"not a frame of the contract: {error}") from error
            return None
        return frame

    def _is_of_known_type(self, data: bytes | str) -> bool:
        """False for an object of a type that this client does not know. NotAFrame if it cannot be read."""
        try:
            parsed = self._anything.decode(data.encode() if isinstance(data, str) else data)
        except (*MALFORMED, ValueError, TypeError) as error:
            raise NotAFrame(f"not a frame: {error}") from error
        kind = parsed.get("type") if isinstance(parsed, dict) else None
        return not isinstance(kind, str) or kind in KNOWN_ANSWERS

    def entry(self, raw: Raw) -> Entry:
        """One entry of a `messages` or `message_batch` frame. NotAFrame if it is malformed."""
        try:
            entry: Entry = self._entries.decode(raw)
        except MALFORMED as error:
            raise NotAFrame(f"not an entry: {error}") from error
        return entry


CLIENT_CODECS = {
    "json": ClientCodec(JSON_PROTOCOL, msgspec.json),
    "msgpack": ClientCodec(MSGPACK_PROTOCOL, msgspec.msgpack),
}
"""By the name that `connect(codec=…)` takes."""
