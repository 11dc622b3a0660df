"""Work in the background that is done again and again: what a job is, when it runs, when it is late. Pure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct

from parley.core.backoff import JITTER_SHARE, backoff
from parley.model import JobOutcome, JobScope

RETRY_SECONDS_MIN = 1.0
"""The first wait after a failure, or the interval if that is shorter."""
RETRY_SECONDS_MAX = 60.0
RETRY_SECONDS_QUICK = 5.0
"""The longest wait of a job whose interval is shorter than this."""
OVERDUE_INTERVALS = 3
OVERDUE_SECONDS_MIN = 60.0
"""A job that runs every second is not late because of a pause of some seconds."""
STEADY_SECONDS = 60.0
"""A job that runs for ever and fails after so long begins a new streak of failures."""
ERROR_CHARS_MAX = 300
MS_PER_SECOND = 1_000


class Job(Struct, frozen=True, kw_only=True, eq=False):
    """`run` does one run. It may be cancelled at any `await`, and is begun again: it must find its place.

    `does`: what the job is for, as operators read it in docs/jobs.md.

    `interval_seconds` is the pause from the end of a run to the next one. None: it runs when it is woken, or,
    without `until_woken`, one run lasts for ever, and its end is a failure.
    """

    name: str
    does: str = ""
    run: Callable[[], Awaitable[object]]
    interval_seconds: float | None
    timeout_seconds: float | None
    first_seconds: float | None = None
    """From the start of the node to the first run, if that is not the interval."""
    scope: JobScope = JobScope.NODE
    overlaps: bool = True
    """Two nodes may run it at once without harm. If not, it rests while no lease can be had."""
    until_woken: Callable[[], Awaitable[object]] | None = None
    """Returns when the job is wanted before its time. `run` takes note of it, so that it waits again."""

    @property
    def is_endless(self) -> bool:
        return self.interval_seconds is None and self.until_woken is None

    @property
    def first_wait_seconds(self) -> float | None:
        """None: until it is woken."""
        if self.first_seconds is not None:
            return self.first_seconds
        return 0.0 if self.is_endless else self.interval_seconds

    def retry_seconds(self, failures: int, chance: float) -> float:
        """How long to wait after this many failures in a row, the first one included."""
        interval = RETRY_SECONDS_MAX if self.interval_seconds is None else self.interval_seconds
        longest = min(max(interval, RETRY_SECONDS_QUICK), RETRY_SECONDS_MAX)
        return backoff(failures - 1, min(interval, RETRY_SECONDS_MIN), longest, JITTER_SHARE * chance)

    def wait_after(self, last: JobRecord | None, now_ms: int) -> float | None:
        """How long to wait when this node takes the job over, by what the last runner has recorded."""
        interval = self.interval_seconds
        if last is None or interval is None:
            return self.first_wait_seconds
        if last.last_outcome is not JobOutcome.OK or last.last_finished_ms is None:
            return 0.0
        return min(
            max(last.last_finished_ms / MS_PER_SECOND + interval - now_ms / MS_PER_SECOND, 0), interval
        )

    def overdue_ms(self, good_ms: int, failing_ms: int | None) -> int | None:
        """From when on the job is late, unless it succeeds before; None: a success is not due.

        `good_ms`: when it last succeeded, or this node began with it. `failing_ms`: its first failure since.
        """
        patience = OVERDUE_SECONDS_MIN + (self.timeout_seconds or 0.0)
        if self.interval_seconds is not None:
            patience += OVERDUE_INTERVALS * max(self.interval_seconds, self.first_seconds or 0.0)
            return good_ms + round(patience * MS_PER_SECOND)
        return None if failing_ms is None else failing_ms + round(patience * MS_PER_SECOND)


RUNS_KEPT = 20
"""Runs of a job that its node remembers."""


class EndedRun(Struct, frozen=True):
    """One run that has ended."""

    started_ms: int | None
    finished_ms: int
    outcome: JobOutcome
    error: str | None


class JobRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a job: on one node, or, for a job of the cluster, on the node that runs it.

    `runs` and `failures` count since that node started. `overdue_ms`: it is late from then on.
    """

    name: str
    scope: JobScope
    node_id: str
    interval_seconds: float | None = None
    last_started_ms: int | None = None
    last_finished_ms: int | None = None
    last_outcome: JobOutcome | None = None
    last_error: str | None = None
    next_run_ms: int | None = None
    overdue_ms: int | None = None
    runs: int = 0
    failures: int = 0

    @property
    def key(self) -> str:
        """One record for a job of the cluster, one for each node otherwise."""
        return self.name if self.scope is JobScope.CLUSTER else f"{self.name} {self.node_id}"

    def is_overdue(self, now_ms: int) -> bool:
        return self.overdue_ms is not None and now_ms > self.overdue_ms

    @property
    def is_failing(self) -> bool:
        return self.last_outcome in (JobOutcome.FAILED, JobOutcome.TIMED_OUT)
