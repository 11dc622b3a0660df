"""Signals to all nodes over one channel of Redis.

Signals of one turn of the event loop share a message: every node reads it, and a message costs a reader more
than its content. Messages are signed, and each counts once and only for a short time: a program that can
write to Redis can neither invent a signal nor repeat one.
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

from parley.clock import Clock
from parley.core.cluster_keys import SIGNALS, TAG_BYTES, ClusterKeys
from parley.core.log_limits import LineLimit
from parley.core.node_trust import CALL_AGE_MS_MAX
from parley.ephemeral.local import LocalSignals
from parley.ephemeral.redis.client import PassedOver, RedisChannels, RedisClient
from parley.ephemeral.signals import Signal, SomeSignal

CHANNEL = "signals_channel"
SIGNALS_PER_MESSAGE_MAX = 1_000
MESSAGE_BYTES_MAX = 256 * 1024
SIGNALS_WAITING_MAX = 20_000
WAITING_BYTES_MAX = 4 * 1024 * 1024
"""Beyond it the oldest signals are dropped: they are soon outdated."""
PUBLISHERS_REMEMBERED_MAX = 10_000
assert MESSAGE_BYTES_MAX < WAITING_BYTES_MAX

log = structlog.get_logger("parley.ephemeral")


class Bundle(Struct, array_like=True):
    """Signals of one process. A process recognises its own bundles by `publisher` and skips them.

    `number` rises with each bundle of a publisher.
    """

    publisher: str
    number: int
    published_ms: int
    signals: list[bytes]


encode_signal = msgspec.msgpack.Encoder().encode
decode_signal: Callable[[bytes], Signal] = msgspec.msgpack.Decoder(Signal).decode
encode_bundle = msgspec.msgpack.Encoder().encode
decode_bundle = msgspec.msgpack.Decoder(Bundle).decode


class RedisSignals:
    """Subscribers of this node get the value at once, even without Redis; others get bytes."""

    def __init__(
        self,
        client: RedisClient,
        channels: RedisChannels,
        keys: ClusterKeys,
        clock: Clock,
        prefix: str = "",
        passed_over: PassedOver = lambda _: None,
    ) -> None:
        self._client = client
        self._channel = prefix + CHANNEL
        self._ring = keys.ring(SIGNALS, self._channel)
        self._clock = clock
        self._publisher = uuid4().hex
        self._number = 0
        self._heard: dict[str, int] = {}
        """The number of the last bundle of each publisher."""
        self._lines = LineLimit()
        self._passed_over = passed_over
        self._local = LocalSignals()
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._publishing: asyncio.Task[None] | None = None
        self.dropped = 0
        channels.subscribe(self._channel, self._receive)

    def publish(self, signal: Signal) -> None:
        data = encode_signal(signal)
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        while len(self._waiting) > SIGNALS_WAITING_MAX or self._waiting_bytes > WAITING_BYTES_MAX:
            self._take()
            self.dropped += 1
        if self._publishing is None:
            self._publishing = asyncio.get_running_loop().create_task(self._publish_all())
        self._local.publish(signal)

    def subscribe(self, kind: type[SomeSignal], receive: Callable[[SomeSignal], None]) -> Callable[[], None]:
        return self._local.subscribe(kind, receive)

    async def close(self) -> None:
        """Signals that still wait are not sent."""
        if self._publishing is not None:
            self._publishing.cancel()
            await asyncio.gather(self._publishing, return_exceptions=True)

    def _take(self) -> bytes:
        data = self._waiting.popleft()
        self._waiting_bytes -= len(data)
        return data

    async def _publish_all(self) -> None:
        """Publish one message after the other, so that signals keep the order of the calls."""
        try:
            while self._waiting:
                signals = self._take_batch()
                self._number += 1
                data = encode_bundle(Bundle(self._publisher, self._number, self._clock(), signals))
                if await self._client.call(partial(self._publish, self._ring.tag(data) + data)) is None:
                    self.dropped += len(signals)
        finally:
            self._publishing = None

    def _take_batch(self) -> list[bytes]:
        """At least one signal, and no more than fit into one message."""
        signals = [self._take()]
        size = len(signals[0])
        while self._waiting and len(signals) < SIGNALS_PER_MESSAGE_MAX:
            size += len(self._waiting[0])
            if size > MESSAGE_BYTES_MAX:
                break
            signals.append(self._take())
        return signals

    async def _publish(self, data: bytes) -> int:
        return await self._client.redis.publish(self._channel, data)

    def _receive(self, message: bytes) -> None:
        bundle = self._proven(message)
        if bundle is None or bundle.publisher == self._publisher:
            return
        if (reason := self._why_late(bundle)) is not None:
            self._pass_over(reason)
            return
        for part in bundle.signals:
            try:
                signal = decode_signal(part)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                log.debug("not a signal", error=str(error))  # of a newer version
            else:
                self._local.publish(signal)

    def _proven(self, message: bytes) -> Bundle | None:
        """None for what no node of this cluster has told."""
        tag, data = message[:TAG_BYTES], message[TAG_BYTES:]
        if not self._ring.accepts(data, tag):
            self._pass_over("they are not signed with this cluster's secret")
            return None
        try:
            return decode_bundle(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._pass_over("they are of another version")
            return None

    def _why_late(self, bundle: Bundle) -> str | None:
        """None for one that is heard for the first time, and soon."""
        if abs(self._clock() - bundle.published_ms) > CALL_AGE_MS_MAX:
            return "they are old, or the clocks of the two nodes differ"
        if bundle.number <= self._heard.get(bundle.publisher, 0):
            return "they were heard before"
        self._heard.pop(bundle.publisher, None)
        self._heard[bundle.publisher] = bundle.number
        if len(self._heard) > PUBLISHERS_REMEMBERED_MAX:
            del self._heard[next(iter(self._heard))]
        return None

    def _pass_over(self, reason: str) -> None:
        self._passed_over("signals")
        if (more := self._lines.admit(reason, asyncio.get_running_loop().time())) is not None:
            log.warning("signals passed over", reason=reason, **more)
