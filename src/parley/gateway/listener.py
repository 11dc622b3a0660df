"""The port: accepts connections, and says no politely before the process runs out of file descriptors.

Beyond its limit a process cannot accept, open or log in any way that a client would understand. So some
descriptors are kept: those who come too late are told 503, and those who are connected notice nothing.
"""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Callable
from pathlib import Path
from ssl import SSLContext
from typing import cast

import msgspec
import structlog
from msgspec import UNSET

from parley.errors import BUSY, Refusal
from parley.telemetry import Metrics
from parley.wire import bodies

BACKLOG_CONNECTIONS = 4_096
DESCRIPTORS_KEPT_MAX = 128
DESCRIPTORS_KEPT_SHARE = 4
"""Of a small limit one in so many is kept: for files, other services, and to say no."""
REFUSED_AT_ONCE_MAX = 16
"""So many are told at the same time why they are refused; more are hung up on."""
REFUSAL_SECONDS_MAX = 1.0
ENOUGH_SHARE = 0.9
"""The shortage is over when so much of what is allowed is open."""

NO_ROOM = BUSY.because("this server has no room for another connection")


def _answer(refusal: Refusal) -> bytes:
    """As HTTP, with the body of every refusal."""
    problem = bodies.Problem(refusal.code, refusal.reason, refusal.temporary, refusal.retry_after_ms or UNSET)
    body = msgspec.json.encode(problem)
    head = (
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


NO_ROOM_ANSWER = _answer(NO_ROOM)

MakeProtocol = Callable[[Callable[[], None]], asyncio.Protocol]
"""The protocol of a new connection, which calls what it is given when it is lost."""

log = structlog.get_logger("parley.gateway")


def open_descriptors() -> int:
    """How many this process has open."""
    return len(os.listdir("/dev/fd")) if Path("/dev/fd").is_dir() else 0


class ClientListener:
    """Counts the connections it has accepted, of whatever kind."""

    def __init__(self, make_protocol: MakeProtocol, metrics: Metrics) -> None:
        self._make_protocol = make_protocol
        self._metrics = metrics
        self._server: asyncio.Server | None = None
        self._own_descriptors = 0
        """Open before the first client came."""
        self._open = 0
        self._refused = 0
        self._refusing = 0
        self._is_short = False
        self._lost = self._closed
        """One for all connections."""

    async def start(self, host: str, port: int, tls: SSLContext | None = None) -> int:
        """Listen; returns the port, which matters when 0 was asked for."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._accept, host, port, backlog=BACKLOG_CONNECTIONS, ssl=tls
        )
        self._own_descriptors = open_descriptors()
        return int(self._server.sockets[0].getsockname()[1])

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    @property
    def connections_max(self) -> int:
        """Asked each time: an operator may raise the limit of a process that runs."""
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        kept = min(DESCRIPTORS_KEPT_MAX, limit // DESCRIPTORS_KEPT_SHARE)
        return max(1, limit - self._own_descriptors - kept)

    def _accept(self) -> asyncio.Protocol:
        if self._open < self.connections_max:
            self._open += 1
            return self._make_protocol(self._lost)
        self._refused += 1
        self._metrics.connections_refused.labels("descriptors").inc()
        if not self._is_short:
            self._is_short = True
            limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            hint = "raise the limit of open files: LimitNOFILE= of the service, or ulimit -n"
            log.error("no file descriptors for more clients", open=self._open, limit=limit, hint=hint)
        if self._refusing >= REFUSED_AT_ONCE_MAX:
            return HungUpProtocol()
        self._refusing += 1
        return RefusedProtocol(self._refusal_over)

    def _refusal_over(self) -> None:
        self._refusing -= 1

    def _closed(self) -> None:
        self._open -= 1
        if self._is_short and self._open <= ENOUGH_SHARE * self.connections_max:
            self._is_short = False
            log.info("file descriptors for clients again", refused=self._refused)
            self._refused = 0


class RefusedProtocol(asyncio.Protocol):
    """Hears what the client wants, says that there is no room, and hangs up."""

    def __init__(self, over: Callable[[], None]) -> None:
        self._over = over
        self._is_answered = False
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._timer = asyncio.get_running_loop().call_later(REFUSAL_SECONDS_MAX, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        """Answered once it has spoken: a close before that makes its kernel throw the answer away."""
        if not self._is_answered:
            self._is_answered = True
            self._transport.write(NO_ROOM_ANSWER)
            if self._transport.can_write_eof():
                self._transport.write_eof()

    def connection_lost(self, error: Exception | None) -> None:
        self._timer.cancel()
        self._over()


class HungUpProtocol(asyncio.Protocol):
    """Too many are being told no already."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()
