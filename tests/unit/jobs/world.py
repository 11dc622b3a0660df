"""Jobs that do as they are told, leases that can be away, and nodes that die or pause, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from parley.clock import Clock
from parley.core.jobs import Job
from parley.ephemeral.local import LocalEphemeral
from parley.ephemeral.ports import Leases
from parley.jobs.supervisor import Supervisor
from parley.model import JobScope
from parley.telemetry import Metrics
from tests.harness.jobs import supervisor_on

INTERVAL_SECONDS = 10.0
TIMEOUT_SECONDS = 60.0


class Broken(Exception):
    """A fault in a job."""


class Work:
    """One run: notes when it began, then does what the plan says of it."""

    def __init__(
        self, clock: Clock, takes_seconds: float = 0.0, fails: Callable[[int], bool] = lambda _: False
    ):
        self._start_ms = clock()
        self._clock = clock
        self._takes_seconds = takes_seconds
        self._fails = fails
        self.began: list[float] = []
        self.ended = 0
        self.at_once = 0
        self.at_once_max = 0

    async def run(self) -> None:
        self.began.append((self._clock() - self._start_ms) / 1000)
        self.at_once += 1
        self.at_once_max = max(self.at_once_max, self.at_once)
        try:
            await asyncio.sleep(self._takes_seconds)
            if self._fails(len(self.began)):
                raise Broken("as planned")
            self.ended += 1
        finally:
            self.at_once -= 1

    def job(self, scope: JobScope = JobScope.NODE, overlaps: bool = True) -> Job:
        return Job(
            name="work",
            run=self.run,
            interval_seconds=INTERVAL_SECONDS,
            timeout_seconds=TIMEOUT_SECONDS,
            scope=scope,
            overlaps=overlaps,
        )


class AwayLeases:
    """Leases behind a line that can be cut, for this node alone."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self.is_away = False

    async def hold(self, name: str, holder: str, seconds: float) -> bool | None:
        return None if self.is_away else await self._leases.hold(name, holder, seconds)

    async def release(self, name: str, holder: str) -> None:
        if not self.is_away:
            await self._leases.release(name, holder)


class JobNode:
    """One node of a cluster that shares leases and records."""

    def __init__(self, clock: Clock, name: str, shared: LocalEphemeral) -> None:
        self.metrics = Metrics(clock)
        self.line = AwayLeases(shared.leases)
        self.supervisor: Supervisor = supervisor_on(clock, name, shared, self.metrics, self.line)

    def kill(self) -> None:
        """Its tasks are gone, and it says nothing to anybody."""
        for task in self.supervisor._tasks:
            task.cancel()

    def told(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)
