"""The client's side of both codecs: requests out, server frames in.

A frame of a type that this client does not know is no error: it is `None` and is passed over, so that a
server may say more than an older client understands.
"""

from __future__ import annotations

from typing import Protocol

import msgspec
from msgspec import Raw

from parley.wire.codec import JSON_PROTOCOL, MALFORMED, MSGPACK_PROTOCOL, NotAFrame
from parley.wire.frames import Entry, Request, ServerFrames

KNOWN_ANSWERS = frozenset(
    kind.__struct_config__.tag
    for kind in ServerFrames.__args__  # the union's own list, so none is forgotten
)


class ClientCodec(Protocol):
    """One encoding of the contract, as a client uses it."""

    protocol: str
    binary: bool

    def encode(self, request: Request) -> bytes:
        """The bytes of one request."""
        ...

    def decode(self, data: bytes | str) -> ServerFrames | None:
        """What the server said; None for a type this client does not know. NotAFrame if it is nonsense."""
        ...

    def entry(self, raw: Raw) -> Entry:
        """One entry of a `messages` or `message_batch` frame. NotAFrame if it is none."""
        ...


class JsonClientCodec:
    protocol = JSON_PROTOCOL
    binary = False

    def __init__(self) -> None:
        self._encoder = msgspec.json.Encoder()
        self._frames: msgspec.json.Decoder[ServerFrames] = msgspec.json.Decoder(ServerFrames)
        self._entries = msgspec.json.Decoder(Entry)

    def encode(self, request: Request) -> bytes:
        return self._encoder.encode(request)

    def decode(self, data: bytes | str) -> ServerFrames | None:
        try:
            return self._frames.decode(data)
        except MALFORMED as error:
            _pass_over(_parsed(msgspec.json.Decoder(), data), error)
            return None

    def entry(self, raw: Raw) -> Entry:
        try:
            return self._entries.decode(raw)
        except MALFORMED as error:
            raise NotAFrame(f"not an entry: {error}") from error


class MsgpackClientCodec:
    protocol = MSGPACK_PROTOCOL
    binary = True

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._frames: msgspec.msgpack.Decoder[ServerFrames] = msgspec.msgpack.Decoder(ServerFrames)
        self._entries = msgspec.msgpack.Decoder(Entry)

    def encode(self, request: Request) -> bytes:
        return self._encoder.encode(request)

    def decode(self, data: bytes | str) -> ServerFrames | None:
        if isinstance(data, str):
            raise NotAFrame("this connection speaks MessagePack in binary frames")
        try:
            return self._frames.decode(data)
        except MALFORMED as error:
            _pass_over(_parsed(msgspec.msgpack.Decoder(), data), error)
            return None

    def entry(self, raw: Raw) -> Entry:
        try:
            return self._entries.decode(raw)
        except MALFORMED as error:
            raise NotAFrame(f"not an entry: {error}") from error


CLIENT_CODECS: dict[str, ClientCodec] = {"json": JsonClientCodec(), "msgpack": MsgpackClientCodec()}
"""By the name that `connect(codec=…)` takes."""


class _AnyDecoder(Protocol):
    def decode(self, data: bytes, /) -> object:
        """Whatever is encoded."""
        ...


def _parsed(decoder: _AnyDecoder, data: bytes | str) -> object:
    try:
        return decoder.decode(data.encode() if isinstance(data, str) else data)
    except (*MALFORMED, ValueError, TypeError) as error:
        raise NotAFrame(f"not a frame: {error}") from error


def _pass_over(parsed: object, error: Exception) -> None:
    """NotAFrame unless it is an object of an unknown type."""
    kind = parsed.get("type") if isinstance(parsed, dict) else None
    if not isinstance(kind, str) or kind in KNOWN_ANSWERS:
        raise NotAFrame(f"not a frame of the contract: {error}") from error
