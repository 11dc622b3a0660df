"""How fast frames go out: a server ends the connection of whoever goes on when refused. Pure."""

from __future__ import annotations

from parley.client.timers import Timers
from parley.client.timing import Timing
from parley.clock import MS_PER_SECOND
from parley.errors import RATE_LIMITED, Refusal

PACE_TIMER = "pace"
ACKS = (PACE_TIMER, "acks")
ACKS_PER_SECOND_MAX = 100
"""Half of the frames that a server takes from one connection."""


class Rest:
    """What one of a kind was refused for as too fast, the others would be, too: all rest then."""

    def __init__(self, kind: str, timing: Timing, timers: Timers) -> None:
        self._key = (PACE_TIMER, kind)
        self._timing = timing
        self._timers = timers

    @property
    def is_on(self) -> bool:
        return self._timers.pending(self._key)

    def refused(self, refusal: Refusal, now_ms: int) -> None:
        if refusal.code == RATE_LIMITED.code:
            pause_ms = max(refusal.retry_after_ms or 0, self._timing.backoff_base_ms)
            self._timers.set(self._key, now_ms + pause_ms)

    def disconnected(self) -> None:
        """A new connection owes nothing."""
        self._timers.cancel(self._key)


class Pace:
    """Pages and acks."""

    def __init__(self, timing: Timing, timers: Timers) -> None:
        self._timers = timers
        self._acks_this_second = 0
        self.rest = Rest("pages and acks", timing, timers)

    def acks(self, wanted: int, now_ms: int) -> int:
        """How many of so many acks may go out now; a timer wakes whoever has more."""
        if self.rest.is_on or not wanted:
            return 0
        if not self._timers.pending(ACKS):
            self._timers.set(ACKS, now_ms + MS_PER_SECOND)
            self._acks_this_second = 0
        allowed = min(wanted, ACKS_PER_SECOND_MAX - self._acks_this_second)
        self._acks_this_second += allowed
        return allowed

    def disconnected(self) -> None:
        self.rest.disconnected()
        self._timers.cancel(ACKS)
