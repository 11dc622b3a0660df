"""Timeouts of silent HTTP connections: one that never sends a request costs ten seconds, not a socket."""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp.web_protocol import RequestHandler

from parley.wire.limits import HELLO_SECONDS_MAX, IDLE_SECONDS_MAX


class IdleTimeouts:
    """Since when each HTTP connection waits for its peer; ends those that wait too long."""

    def __init__(self) -> None:
        self._busy: set[RequestHandler] = set()
        self._idle_since: dict[RequestHandler, float] = {}
        self._spoken: set[RequestHandler] = set()

    def began(self, connection: RequestHandler) -> None:
        """A whole request has come; a WebSocket counts as one that goes on."""
        self._busy.add(connection)
        self._spoken.add(connection)
        self._idle_since.pop(connection, None)

    def ended(self, connection: RequestHandler) -> None:
        self._busy.discard(connection)

    def sweep(self, open_now: Iterable[RequestHandler], now: float) -> int:
        """End what is overdue; returns how many."""
        connections = set(open_now)
        self._spoken &= connections
        self._idle_since = {c: at for c, at in self._idle_since.items() if c in connections}
        overdue = [c for c in connections - self._busy if self._is_overdue(c, now)]
        for connection in overdue:
            connection.force_close()
        return len(overdue)

    def _is_overdue(self, connection: RequestHandler, now: float) -> bool:
        allowed = IDLE_SECONDS_MAX if connection in self._spoken else HELLO_SECONDS_MAX
        return now - self._idle_since.setdefault(connection, now) > allowed
