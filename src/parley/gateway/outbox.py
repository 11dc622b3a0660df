"""Coalesced writes: frames gather in each connection's outbox and leave in one write per loop turn.

Frames are bytes already: `framed` makes them once, for any number of connections.
"""

from __future__ import annotations

import asyncio
import contextlib
from struct import Struct

from parley.gateway.socket_groups import SocketGroup
from parley.gateway.turns import LoopShare
from parley.wire.codes import Close

FIN_TEXT = 0x81
FIN_BINARY = 0x82
FIN_CLOSE = 0x88
FIN_PONG = 0x8A
CONTROL_BYTES_MAX = 125
HEADER_16 = Struct(">BBH")
"""The header of a frame whose length takes 16 bits."""


class ConnectionOutbox:
    """What waits for one socket: frames of this turn, and what the transport could not send yet."""

    __slots__ = ("_flusher", "_frames", "_gathered_bytes", "_is_held", "_transport", "group")

    def __init__(self, transport: asyncio.Transport, flusher: Flusher) -> None:
        self._transport = transport
        self._flusher = flusher
        self._frames: list[bytes] = []
        self._gathered_bytes = 0
        self._is_held = False
        self.group = SocketGroup(LoopShare())
        """Of the user, once it is known."""

    def hold(self) -> None:
        """What is offered from now on waits for `begin`, or for `release`."""
        self.flush()
        self._is_held = True

    def begin(self, first: bytes) -> None:
        """This frame, and behind it what was held."""
        self._is_held = False
        self._frames.insert(0, first)
        self._gathered_bytes += len(first)
        self._flusher.add(self)

    def release(self) -> None:
        """What was held goes out after all."""
        self._is_held = False
        if self._frames:
            self._flusher.add(self)

    def offer(self, data: bytes) -> bool:
        """Take a frame; False when the reader has so much unread that it must be looked at."""
        gathered = self._gathered_bytes + len(data)
        if gathered + self._transport.get_write_buffer_size() > self.group.outbox_bytes_max:
            return False
        if not self._frames and not self._is_held:
            self._flusher.add(self)
        self._frames.append(data)
        self._gathered_bytes = gathered
        return True

    def add(self, data: bytes) -> None:
        """Take a frame in any case."""
        if not self._frames and not self._is_held:
            self._flusher.add(self)
        self._frames.append(data)
        self._gathered_bytes += len(data)

    def end(self, last: bytes) -> None:
        """What was offered, this frame, and the end of our half. What was held is not for a client that
        was never welcomed.
        """
        if self._is_held:
            self._frames.clear()
            self._is_held = False
        self._frames.append(last)
        self.flush()
        if self._transport.can_write_eof() and not self._transport.is_closing():
            with contextlib.suppress(OSError):  # the peer is gone, and the loop has not noticed yet
                self._transport.write_eof()

    def flush(self) -> None:
        """Hand everything to the transport in one piece, unless it is held."""
        if self._is_held:
            return
        frames, self._frames, self._gathered_bytes = self._frames, [], 0
        if frames and not self._transport.is_closing():
            self._transport.write(frames[0] if len(frames) == 1 else b"".join(frames))

    @property
    def waiting_bytes(self) -> int:
        if self._transport.is_closing():
            return 0
        return self._transport.get_write_buffer_size() + self._gathered_bytes


class Flusher:
    """Empties every outbox that got something, once per turn of the loop."""

    __slots__ = ("_loop", "_waiting")

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: list[ConnectionOutbox] = []

    def add(self, outbox: ConnectionOutbox) -> None:
        if not self._waiting:
            self._loop = self._loop or asyncio.get_running_loop()
            self._loop.call_soon(self.flush)
        self._waiting.append(outbox)

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        for outbox in waiting:
            outbox.flush()


def framed(payload: bytes, binary: bool) -> bytes:
    """A WebSocket frame: the header of RFC 6455 section 5.2, unmasked and whole, and the payload."""
    first = FIN_BINARY if binary else FIN_TEXT
    size = len(payload)
    if size < 126:
        return bytes((first, size)) + payload
    if size < 65_536:
        return HEADER_16.pack(first, 126, size) + payload
    return bytes((first, 127)) + size.to_bytes(8, "big") + payload


def pong(payload: bytes) -> bytes:
    """The answer to a ping, whose payload is short (RFC 6455 section 5.5)."""
    return bytes((FIN_PONG, len(payload))) + payload


def closing(close: Close) -> bytes:
    """The last frame of a connection. A peer that gave no code is given none (RFC 6455 section 7.4.1)."""
    if not close.code:
        return bytes((FIN_CLOSE, 0))
    reason = close.reason.encode()[: CONTROL_BYTES_MAX - 2].decode(errors="ignore").encode()
    return bytes((FIN_CLOSE, 2 + len(reason))) + close.code.to_bytes(2, "big") + reason
