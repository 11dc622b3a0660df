"""When to ask a service that does not answer: a decision over a time that is passed in."""

from __future__ import annotations

PAUSE_SECONDS_MIN = 0.1
PAUSE_SECONDS_MAX = 5.0


class Circuit:
    """Open after a failure: calls are skipped for a while that grows with each failure, then one tries."""

    __slots__ = ("_is_tried", "_pause_seconds", "_tries_at", "is_open")

    def __init__(self) -> None:
        self.is_open = False
        self._is_tried = False
        self._pause_seconds = PAUSE_SECONDS_MIN
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
        if not self.is_open:
            self.is_open, self._is_tried = True, False
            self._pause_seconds = PAUSE_SECONDS_MIN
            self._tries_at = now + self._pause_seconds
            return True
        if self._is_tried:
            self._is_tried = False
            self._pause_seconds = min(2 * self._pause_seconds, PAUSE_SECONDS_MAX)
            self._tries_at = now + self._pause_seconds
        return False

    def worked(self) -> bool:
        """A call was answered; whether that is news."""
        was_open, self.is_open = self.is_open, False
        return was_open
