"""A circuit breaker: when to call a service that does not answer. Pure; the caller passes the time."""

from __future__ import annotations

from parley.core.backoff import backoff

PAUSE_SECONDS_MIN = 0.1
PAUSE_SECONDS_MAX = 5.0
STEADY_SECONDS = 10.0
"""After a failure sooner than this after a recovery, pauses keep growing as in the last outage."""


class Circuit:
    """Open after a failure: calls are skipped for a pause that grows with each failure, then one is tried."""

    __slots__ = ("_closed_at", "_failures", "_is_tried", "_pause_seconds", "_tries_at", "is_open")

    def __init__(self) -> None:
        self.is_open = False
        self._is_tried = False
        self._closed_at = float("-inf")
        self._failures = 0
        self._pause_seconds = 0.0
        self._tries_at = 0.0

    def allows(self, now: float) -> bool:
        """Whether to call; while open, only the first caller after each pause may."""
        if not self.is_open:
            return True
        if now < self._tries_at:
            return False
        self._is_tried = True
        self._tries_at = now + self._pause_seconds  # also if that caller never reports a result
        return True

    def failed(self, now: float) -> bool:
        """A call failed. Returns whether that opened the circuit; calls already under way do not."""
        is_news = not self.is_open
        if is_news and now - self._closed_at > STEADY_SECONDS:
            self._failures = 0
        if is_news or self._is_tried:
            self._pause_seconds = backoff(self._failures, PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX)
            self._failures += 1
            self._tries_at = now + self._pause_seconds
        self.is_open, self._is_tried = True, False
        return is_news

    def worked(self, now: float) -> bool:
        """A call was answered. Returns whether that closed the circuit."""
        is_news = self.is_open
        if is_news:
            self.is_open, self._closed_at = False, now
        return is_news
