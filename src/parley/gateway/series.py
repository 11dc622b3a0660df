"""The last hour of a few numbers of this node, for the lines of a console."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Mapping

STEP_SECONDS = 5.0
POINTS_MAX = 720
"""An hour."""


class Ring:
    """The newest numbers. It grows with them: an hour of one number takes 5.6 kB."""

    def __init__(self) -> None:
        self._values = array("d")
        self._next = 0

    def add(self, value: float) -> None:
        if len(self._values) < POINTS_MAX:
            self._values.append(value)
        else:
            self._values[self._next] = value
        self._next = (self._next + 1) % POINTS_MAX

    def last(self, count: int) -> list[float]:
        """So many, the oldest first."""
        if len(self._values) < POINTS_MAX:
            return list(self._values[-count:]) if count else []
        ordered = [*self._values[self._next :], *self._values[: self._next]]
        return ordered[-count:] if count else []


class SeriesRecorder:
    """`gauges` are read at each step; of `totals`, which only rise, what a second brought is kept.

    `means`: of a sum and a count, which only rise, the mean of what a step brought; 0 if it brought nothing.
    """

    def __init__(
        self,
        gauges: Mapping[str, Callable[[], float]],
        totals: Mapping[str, Callable[[], float]],
        means: Mapping[str, Callable[[], tuple[float, float]]],
    ) -> None:
        self._gauges = dict(gauges)
        self._totals = dict(totals)
        self._means = dict(means)
        self._before: dict[str, float] = {}
        self._sums: dict[str, tuple[float, float]] = {}
        self._at = 0.0
        self._rings = {name: Ring() for name in (*gauges, *totals, *means)}

    @property
    def names(self) -> list[str]:
        return sorted(self._rings)

    def sample(self) -> None:
        now = asyncio.get_running_loop().time()
        for name, read in self._gauges.items():
            self._rings[name].add(read())
        for name, read in self._totals.items():
            total = read()
            seconds = now - self._at
            before = self._before.get(name)
            is_known = before is not None and seconds > 0
            self._rings[name].add(max(0.0, total - (before or 0.0)) / seconds if is_known else 0.0)
            self._before[name] = total
        for name, sums in self._means.items():
            total, count = sums()
            total_before, count_before = self._sums.get(name, (total, count))
            more = count - count_before
            self._rings[name].add((total - total_before) / more if more > 0 else 0.0)
            self._sums[name] = (total, count)
        self._at = now

    def last(self, name: str, seconds: float) -> list[float]:
        return self._rings[name].last(min(POINTS_MAX, max(1, round(seconds / STEP_SECONDS))))
