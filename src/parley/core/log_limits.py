"""How often a line may stand in the log that an outage, or a stranger, could repeat without end."""

from __future__ import annotations

from msgspec import Struct

LINE_INTERVAL_SECONDS = 10.0
CAUSES_MAX = 100
OTHERS = ""
"""The cause of all that do not fit in: who can invent causes cannot fill the log with them."""


class Silence(Struct):
    """Until when a cause is not logged again, and how often it would have been."""

    until: float
    left_out: int = 0


class LineLimit:
    """One line at once for each cause, then at most one per interval, with the count of those left out."""

    def __init__(self) -> None:
        self._silences: dict[str, Silence] = {}

    def admit(self, cause: str, now: float) -> dict[str, int] | None:
        """None: leave the line out. Else what it must say beside its own: `not_logged`, if any were."""
        if cause not in self._silences and len(self._silences) >= CAUSES_MAX:
            self._forget_old(now)
            cause = cause if len(self._silences) < CAUSES_MAX else OTHERS
        silence = self._silences.get(cause)
        if silence is not None and now < silence.until:
            silence.left_out += 1
            return None
        self._silences[cause] = Silence(now + LINE_INTERVAL_SECONDS)
        return _counted(0 if silence is None else silence.left_out)

    def end(self, cause: str) -> dict[str, int] | None:
        """The cause is gone: what the line that says so must say. None when there was nothing to end."""
        silence = self._silences.pop(cause, None)
        return None if silence is None else _counted(silence.left_out)

    def _forget_old(self, now: float) -> None:
        """Those with something left to say stay, as long as they are not too many."""
        self._silences = {
            cause: silence
            for cause, silence in self._silences.items()
            if now < silence.until or (silence.left_out and now < silence.until + LINE_INTERVAL_SECONDS)
        }


def _counted(left_out: int) -> dict[str, int]:
    return {"not_logged": left_out} if left_out else {}
