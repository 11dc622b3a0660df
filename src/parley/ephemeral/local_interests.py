"""Interests in this process: for one node, for several in a test, and for the model of the routing."""

from __future__ import annotations

from collections.abc import Sequence

from parley.clock import MS_PER_SECOND, Clock
from parley.ephemeral.ports import TENURE_LEASE_SECONDS


class LocalInterests:
    """Bounded by what is registered: whatever belonged to a tenure goes with it."""

    def __init__(self, clock: Clock, lease_seconds: float = TENURE_LEASE_SECONDS) -> None:
        self._clock = clock
        self._lease_ms = round(lease_seconds * MS_PER_SECOND)
        self._ends_ms: dict[str, int] = {}
        self._subjects: dict[str, dict[str, None]] = {}
        """The subjects of each tenure that has not been found to have ended."""
        self._suspected_until_ms = 0

    async def begin(self, tenure: str) -> bool:
        self._drop_ended()
        self._ends_ms[tenure] = self._clock() + self._lease_ms
        self._subjects[tenure] = {}
        return True

    async def renew(self, tenure: str) -> bool | None:
        self._drop_ended()
        if tenure not in self._ends_ms:
            return False
        self._ends_ms[tenure] = self._clock() + self._lease_ms
        return True

    async def register(self, tenure: str, subjects: Sequence[str]) -> list[str] | None:
        self._drop_ended()
        held = self._subjects.get(tenure)
        if held is None:
            return None
        added = [subject for subject in subjects if subject not in held]
        held.update(dict.fromkeys(added))
        return added

    async def release(self, tenure: str, subjects: Sequence[str]) -> None:
        held = self._subjects.get(tenure, {})
        for subject in subjects:
            held.pop(subject, None)

    async def tenures(self, subjects: Sequence[str]) -> dict[str, list[str]] | None:
        self._drop_ended()
        return {
            subject: [tenure for tenure, held in self._subjects.items() if subject in held]
            for subject in subjects
        }

    async def end(self, tenure: str = "") -> bool:
        for ended in [tenure] if tenure else list(self._ends_ms):
            self._ends_ms.pop(ended, None)
            self._subjects.pop(ended, None)
        return True

    async def suspect(self, seconds: float) -> None:
        self._suspected_until_ms = self._clock() + round(seconds * MS_PER_SECOND)

    async def is_suspected(self) -> bool:
        return self._clock() < self._suspected_until_ms

    def _drop_ended(self) -> None:
        now_ms = self._clock()
        for tenure in [one for one, ends_ms in self._ends_ms.items() if ends_ms <= now_ms]:
            del self._ends_ms[tenure], self._subjects[tenure]
