"""Limits of log lines that an outage or an attacker could repeat without end."""

from __future__ import annotations

from msgspec import Struct

LINE_INTERVAL_SECONDS = 10.0
CAUSES_MAX = 100
OTHERS = ""
"""The cause of all lines beyond the limit: a client that invents causes cannot fill the log."""


class SilencedCause(Struct):
    """Until when a cause is not logged again, and how many lines were left out."""

    until: float
    left_out: int = 0


class LineLimit:
    """Logs the first line of each cause, then at most one per interval, with the count of lines left out."""

    def __init__(self) -> None:
        self._silences: dict[str, SilencedCause] = {}

    def admit(self, cause: str, now: float) -> dict[str, int] | None:
        """None: leave the line out. Otherwise its extra fields: `not_logged`, if any were left out."""
        if cause not in self._silences and len(self._silences) >= CAUSES_MAX:
            self._forget_old(now)
            cause = cause if len(self._silences) < CAUSES_MAX else OTHERS
        silence = self._silences.get(cause)
        if silence is not None and now < silence.until:
            silence.left_out += 1
            return None
        self._silences[cause] = SilencedCause(now + LINE_INTERVAL_SECONDS)
        return _counted(0 if silence is None else silence.left_out)

    def end(self, cause: str) -> dict[str, int] | None:
        """The cause has ended: the extra fields of the line that says so. None if it was not logged."""
        silence = self._silences.pop(cause, None)
        return None if silence is None else _counted(silence.left_out)

    def _forget_old(self, now: float) -> None:
        """Keep recent causes, and for one more interval those with lines left out."""
        self._silences = {
            cause: silence
            for cause, silence in self._silences.items()
            if now < silence.until or (silence.left_out and now < silence.until + LINE_INTERVAL_SECONDS)
        }


def _counted(left_out: int) -> dict[str, int]:
    return {"not_logged": left_out} if left_out else {}
