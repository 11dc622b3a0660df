"""What people notice of each other right now, told to all nodes over one channel.

What is told in one turn of the loop travels together: every node reads it, and a message costs a reader more
than what is in it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from uuid import uuid4

import msgspec
import structlog
from msgspec import Struct

from parley.ephemeral.listeners import Listeners
from parley.ephemeral.redis.channels import Channels
from parley.ephemeral.redis.link import Link

CHANNEL = "signals_channel"
SIGNALS_PER_MESSAGE_MAX = 1_000
MESSAGE_BYTES_MAX = 256 * 1024
SIGNALS_WAITING_MAX = 20_000
WAITING_BYTES_MAX = 4 * 1024 * 1024
"""Beyond it the oldest are dropped: what people notice right now is soon no longer so."""
assert MESSAGE_BYTES_MAX < WAITING_BYTES_MAX

log = structlog.get_logger("parley.ephemeral")


class Bundle(Struct, array_like=True):
    """What one process has told; it knows its own by `teller`, and has heard it already."""

    teller: str
    signals: list[bytes]


encode_bundle = msgspec.msgpack.Encoder().encode
decode_bundle = msgspec.msgpack.Decoder(Bundle).decode


class RedisSignals:
    """Those on this node hear at once, whether Redis is there or not."""

    def __init__(self, link: Link, channels: Channels, prefix: str = "") -> None:
        self._link = link
        self._channel = prefix + CHANNEL
        self._teller = uuid4().hex
        self._listeners = Listeners[bytes]()
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._publishing: asyncio.Task[None] | None = None
        self.dropped = 0
        channels.hear(self._channel, self._heard)

    def tell(self, signal: bytes) -> None:
        self._waiting.append(signal)
        self._waiting_bytes += len(signal)
        while len(self._waiting) > SIGNALS_WAITING_MAX or self._waiting_bytes > WAITING_BYTES_MAX:
            self._take()
            self.dropped += 1
        if self._publishing is None:
            self._publishing = asyncio.get_running_loop().create_task(self._publish_all())
        self._listeners.tell(signal)

    def hear(self, heard: Callable[[bytes], None]) -> Callable[[], None]:
        return self._listeners.add(heard)

    async def close(self) -> None:
        """What waits is not sent any more."""
        if self._publishing is not None:
            self._publishing.cancel()
            await asyncio.gather(self._publishing, return_exceptions=True)

    def _take(self) -> bytes:
        signal = self._waiting.popleft()
        self._waiting_bytes -= len(signal)
        return signal

    async def _publish_all(self) -> None:
        """One message after the other, so that others hear them in the order in which they were told."""
        try:
            while self._waiting:
                signals = self._take_some()
                data = encode_bundle(Bundle(self._teller, signals))
                if await self._link.call(partial(self._publish, data)) is None:
                    self.dropped += len(signals)
        finally:
            self._publishing = None

    def _take_some(self) -> list[bytes]:
        """At least one, and no more than one message may hold."""
        signals = [self._take()]
        size = len(signals[0])
        while self._waiting and len(signals) < SIGNALS_PER_MESSAGE_MAX:
            size += len(self._waiting[0])
            if size > MESSAGE_BYTES_MAX:
                break
            signals.append(self._take())
        return signals

    async def _publish(self, data: bytes) -> int:
        return await self._link.client.publish(self._channel, data)

    def _heard(self, data: bytes) -> None:
        try:
            bundle = decode_bundle(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            log.debug("not signals", channel=self._channel, error=str(error))
            return
        if bundle.teller != self._teller:
            for signal in bundle.signals:
                self._listeners.tell(signal)
