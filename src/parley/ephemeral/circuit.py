"""When to ask a service that does not answer: a decision over a time that is passed in."""

from __future__ import annotations

PAUSE_SECONDS_MIN = 0.1
PAUSE_SECONDS_MAX = 5.0
STEADY_SECONDS = 10.0
"""A failure that comes sooner after an answer goes on with the pauses of the last outage."""


class Circuit:
    """Open after a failure: calls are skipped for a while that grows with each failure, then one tries."""

    __slots__ = ("_closed_at", "_is_tried", "_pause_seconds", "_tries_at", "is_open")

    def __init__(self) -> None:
        self.is_open = False
        self._is_tried = False
        self._closed_at = float("-inf")
        self._pause_seconds = 0.0
        self._tries_at = 0.0

    def allows(self, now: float) -> bool:
        """Whether to call; while open, only the first who asks after each pause may."""
        if not self.is_open:
            return True
        if now < self._tries_at:
            return False
        self._is_tried = True
        self._tries_at = now + self._pause_seconds  # also if the one who tries never says how it went
        return True

    def failed(self, now: float) -> bool:
        """A call failed; whether that is news. Calls that were under way when it opened say nothing new."""
        is_news = not self.is_open
        if is_news and now - self._closed_at > STEADY_SECONDS:
            self._pause_seconds = 0.0
        if is_news or self._is_tried:
            self._pause_seconds = min(max(2 * self._pause_seconds, PAUSE_SECONDS_MIN), PAUSE_SECONDS_MAX)
            self._tries_at = now + self._pause_seconds
        self.is_open, self._is_tried = True, False
        return is_news

    def worked(self, now: float) -> bool:
        """A call was answered; whether that is news."""
        is_news = self.is_open
        if is_news:
            self.is_open, self._closed_at = False, now
        return is_news
