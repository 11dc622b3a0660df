"""Coalesced writes: frames gather in each connection's outbox and leave in one write per loop turn."""

from __future__ import annotations

import asyncio

from parley.wire.limits import OUTBOX_BYTES_MAX


class Outbox:
    """What waits for one socket: frames of this turn, and what the transport could not send yet."""

    __slots__ = ("_flusher", "_frames", "_gathered_bytes", "_is_held", "_transport")

    def __init__(self, transport: asyncio.Transport, flusher: Flusher) -> None:
        self._transport = transport
        self._flusher = flusher
        self._frames: list[bytes] = []
        self._gathered_bytes = 0
        self._is_held = False

    def hold(self) -> None:
        """What is offered from now on waits for `begin`."""
        self._is_held = True

    def begin(self, first: bytes) -> None:
        """This frame, and behind it what was held."""
        self._is_held = False
        self._frames.insert(0, first)
        self._gathered_bytes += len(first)
        self._flusher.add(self)

    def offer(self, data: bytes) -> bool:
        """Take a frame; False when the reader is too slow for it."""
        gathered = self._gathered_bytes + len(data)
        if gathered + self._transport.get_write_buffer_size() > OUTBOX_BYTES_MAX:
            return False
        if not self._frames and not self._is_held:
            self._flusher.add(self)
        self._frames.append(data)
        self._gathered_bytes = gathered
        return True

    def flush(self) -> None:
        """Hand everything to the transport in one piece."""
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
        self._waiting: list[Outbox] = []

    def add(self, outbox: Outbox) -> None:
        if not self._waiting:
            self._loop = self._loop or asyncio.get_running_loop()
            self._loop.call_soon(self.flush)
        self._waiting.append(outbox)

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        for outbox in waiting:
            outbox.flush()
