"""Which places of the store were found damaged since this process started, and whether writes met it."""

from __future__ import annotations

LINE_SECONDS = 300.0
"""How long a place is not logged again."""
WRITES_STOPPED_SECONDS = 300.0
"""How long a server is not ready after a write that met damage, where the store can be repaired meanwhile."""
PLACES_MAX = 1_000
ELSEWHERE = "elsewhere"
"""The place of all damage beyond the limit."""


class DamageRecord:
    """Times are seconds of any clock that only rises."""

    def __init__(self) -> None:
        self._quiet_until: dict[str, float] = {}
        self._writes_stopped_until = 0.0

    def met(self, place: str, now: float) -> bool:
        """Remember a place. Returns whether to log it: once, and again after some minutes."""
        if place not in self._quiet_until and len(self._quiet_until) >= PLACES_MAX:
            place = ELSEWHERE
        is_due = now >= self._quiet_until.get(place, now)
        if is_due:
            self._quiet_until[place] = now + LINE_SECONDS
        return is_due

    def stop_writes(self, now: float, seconds: float) -> None:
        """A write met damage: so long the server is not ready."""
        self._writes_stopped_until = max(self._writes_stopped_until, now + seconds)

    def stops_writes(self, now: float) -> bool:
        return now < self._writes_stopped_until

    @property
    def count(self) -> int:
        """Places that were found damaged."""
        return len(self._quiet_until)
