"""Runs the jobs of a node: again and again, within limits, whatever a run does. See docs/jobs.md.

A run that fails or takes too long is counted, logged once per streak of failures, and repeated with growing
waits. A job of the cluster runs on the node that holds its lease. What is known of the jobs is shared, so
that each node can answer for all.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from functools import partial

import structlog

from parley.clock import MS_PER_SECOND, Clock
from parley.core.jobs import ERROR_CHARS_MAX, RUNS_KEPT, STEADY_SECONDS, EndedRun, Job, JobRecord
from parley.ephemeral.ports import NODE_RECORD_SECONDS, JobRecords, Leases
from parley.errors import BAD_REQUEST, BUSY, NOT_FOUND, ParleyError, Refusal
from parley.jobs.lease import JobLease
from parley.model import JobOutcome, JobScope
from parley.telemetry import Metrics

REPORT_SECONDS = 5.0
"""How old what other nodes know of this node's jobs may be."""
assert NODE_RECORD_SECONDS > 2 * REPORT_SECONDS, "one report may be lost"
RELEASE_SECONDS_MAX = 0.4
CANCEL_AGAIN_SECONDS = 0.05
CANCELS_MAX = 100
"""A job has five seconds to close its connections: a client of Kafka that is cut off leaves them open."""
NO_LEASE = "Redis cannot be reached, so no node knows which one may run it: it rests until Redis is back"
NO_SUCH_JOB = NOT_FOUND.because("this node does not run such a job")
RUNS_FOR_EVER = BAD_REQUEST.because("this job runs all the time")
ENDED = "it ended, although it should run for ever"

log = structlog.get_logger("parley.jobs")


class SupervisedJob:
    """One job on this node: its runs so far, and when the next one is due."""

    def __init__(self, job: Job, node_id: str, lease: JobLease | None, now_ms: int) -> None:
        self.job = job
        self.lease = lease
        self._node_id = node_id
        self.wait_seconds = job.first_wait_seconds
        """Before the next run; None: until it is woken."""
        self.streak = 0
        """Failures in a row."""
        self.good_ms = now_ms
        """When it last succeeded, or this node began with it."""
        self.failing_ms: int | None = None
        self.started_ms: int | None = None
        self.finished_ms: int | None = None
        self.outcome: JobOutcome | None = None
        self.error: str | None = None
        self.next_run_ms: int | None = None
        self.runs = 0
        self.last_runs: deque[EndedRun] = deque(maxlen=RUNS_KEPT)
        """The newest last."""
        self.failures = 0
        self.wanted = asyncio.Event()
        """An operator wants it to run now."""
        self.elsewhere: JobRecord | None = None
        """What the node that has the job last said of it."""

    @property
    def is_resting(self) -> bool:
        """Nobody can say whether this node may run it, and it must not run twice at once."""
        lease = self.lease
        return lease is not None and lease.is_unknown and not lease.may_run

    @property
    def is_here(self) -> bool:
        """Whether this node answers for it."""
        return self.lease is None or self.lease.may_run or self.is_resting

    def is_overdue(self, now_ms: int) -> bool:
        """Also where another node should run it and none does, whoever has the lease."""
        known = self.record() if self.is_here else self.elsewhere
        return known is not None and known.is_overdue(now_ms)

    def record(self) -> JobRecord:
        return JobRecord(
            name=self.job.name,
            scope=self.job.scope,
            node_id=self._node_id,
            interval_seconds=self.job.interval_seconds,
            last_started_ms=self.started_ms,
            last_finished_ms=self.finished_ms,
            last_outcome=self.outcome,
            last_error=NO_LEASE if self.is_resting else self.error,
            next_run_ms=self.next_run_ms,
            overdue_ms=self.job.overdue_ms(self.good_ms, self.failing_ms),
            runs=self.runs,
            failures=self.failures,
        )

    def began(self, now_ms: int) -> None:
        self.started_ms = now_ms
        self.next_run_ms = None

    def ended(self, outcome: JobOutcome, error: str | None, now_ms: int, chance: float) -> None:
        """Note a run, and when the next one is due."""
        self.runs += 1
        self.last_runs.append(EndedRun(self.started_ms, now_ms, outcome, error))
        self.finished_ms, self.outcome, self.error = now_ms, outcome, error
        if outcome is JobOutcome.OK:
            self.streak, self.failing_ms, self.good_ms = 0, None, now_ms
            self.wait_seconds = self.job.interval_seconds
        elif outcome is JobOutcome.LEASE_LOST:
            self.wait_seconds = 0.0
        else:
            if self.job.is_endless and now_ms - (self.started_ms or 0) >= STEADY_SECONDS * MS_PER_SECOND:
                self.streak, self.failing_ms = 0, None
            self.streak += 1
            self.failures += 1
            self.failing_ms = self.failing_ms or now_ms
            self.wait_seconds = self.job.retry_seconds(self.streak, chance)


class Supervisor:
    """`holder` names this process in leases: another one after each start, unlike the id of the node."""

    def __init__(
        self,
        *,
        node_id: str,
        holder: str,
        leases: Leases,
        records: JobRecords,
        metrics: Metrics,
        clock: Clock,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._node_id = node_id
        self._holder = holder
        self._leases = leases
        self._records = records
        self._metrics = metrics
        self._clock = clock
        self._chance = chance
        self._jobs: dict[str, SupervisedJob] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, jobs: Iterable[Job]) -> None:
        """Run these from now on. Each name is taken once."""
        for job in jobs:
            assert job.name not in self._jobs, f"two jobs are called {job.name}"
            lease = None
            if job.scope is JobScope.CLUSTER:
                lease = JobLease(self._leases, f"job:{job.name}", self._holder, job.overlaps)
                self._begin(lease.keep)
            kept = self._jobs[job.name] = SupervisedJob(job, self._node_id, lease, self._clock())
            self._metrics.job_overdue.register(partial(self._is_overdue, kept), job.name)
            self._metrics.job_failing.register(partial(self._failing_runs, kept), job.name)
            for outcome in JobOutcome:
                self._metrics.job_runs.labels(job.name, outcome)
            self._begin(partial(self._repeat, kept))
        self._begin(self._report)

    async def stop(self) -> None:
        """Cancel what runs, and leave the jobs of the cluster to other nodes at once."""
        pending = set(self._tasks)
        for _ in range(CANCELS_MAX):
            for task in pending:
                task.cancel()
            if pending:
                # A library may turn a cancellation into an error of its own, and the call goes on.
                _, pending = await asyncio.wait(pending, timeout=CANCEL_AGAIN_SECONDS)
        leases = [kept.lease for kept in self._jobs.values() if kept.lease is not None and kept.lease.may_run]
        cluster = [kept.record() for kept in self._jobs.values() if kept.lease in leases]
        own = [kept.record().key for kept in self._jobs.values() if kept.lease is None]
        with contextlib.suppress(TimeoutError):  # both run out by themselves
            async with asyncio.timeout(RELEASE_SECONDS_MAX):
                await asyncio.gather(self._records.put(cluster), self._records.remove(own))
                await asyncio.gather(*(lease.release() for lease in leases))
        self._jobs = {}

    async def records(self) -> list[JobRecord]:
        """What is known of every job on every node; of this node's jobs only, if others cannot be asked."""
        found = {record.key: record for record in await self._records.all() or ()}
        own = [kept.record() for kept in self._jobs.values() if kept.is_here]
        found |= {record.key: record for record in own}
        return [record for _, record in sorted(found.items())]

    def last_runs(self) -> dict[str, list[EndedRun]]:
        """The last runs of each job on this node, the newest first."""
        return {name: list(reversed(kept.last_runs)) for name, kept in self._jobs.items() if kept.is_here}

    def run_soon(self, name: str) -> Refusal | None:
        """Do not wait until the next run is due; after a run that is under way, begin another one."""
        kept = self._jobs.get(name)
        if kept is None or not kept.is_here:
            return NO_SUCH_JOB
        if kept.job.is_endless:
            return RUNS_FOR_EVER
        if kept.is_resting:
            return BUSY.because(NO_LEASE)
        kept.wanted.set()
        return None

    def _failing_runs(self, kept: SupervisedJob) -> int:
        return kept.streak if kept.is_here else 0

    def _is_overdue(self, kept: SupervisedJob) -> bool:
        return kept.is_overdue(self._clock())

    def _begin(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        self._tasks.append(asyncio.create_task(self._for_ever(work)))

    async def _for_ever(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """The supervisor itself goes on too, whatever an engine of leases or records raises."""
        while True:
            try:
                await work()
            except Exception:
                log.exception("the supervision of a job failed, and goes on")
            await asyncio.sleep(REPORT_SECONDS)

    async def _report(self) -> None:
        while True:
            here = [kept.record() for kept in self._jobs.values() if kept.is_here and not kept.is_resting]
            if here:
                await self._records.put(here)
            if any(kept.lease is not None for kept in self._jobs.values()):
                known = {record.key: record for record in await self._records.all() or ()}
                for kept in self._jobs.values():
                    kept.elsewhere = known.get(kept.job.name, kept.elsewhere)
            await asyncio.sleep(REPORT_SECONDS)

    # One job

    async def _repeat(self, kept: SupervisedJob) -> None:
        while True:
            if kept.lease is not None and not kept.lease.may_run:
                await self._take_over(kept, kept.lease)
            await self._until_due(kept)
            if kept.lease is None or kept.lease.may_run:
                await self._run(kept)

    async def _take_over(self, kept: SupervisedJob, lease: JobLease) -> None:
        """Wait for the lease, then go on where the last runner stopped."""
        kept.next_run_ms = None
        self._forget_success(kept)
        await lease.until_may_run()
        last = {record.key: record for record in await self._records.all() or ()}.get(kept.job.name)
        kept.good_ms = self._clock()
        kept.wait_seconds = kept.job.wait_after(last, self._clock())
        if kept.outcome is not None or last is not None:
            log.info("job taken over", job=kept.job.name, before=last.node_id if last is not None else None)

    def _forget_success(self, kept: SupervisedJob) -> None:
        """Another node may run it now: this one's last success says nothing any more."""
        with contextlib.suppress(KeyError):  # it never succeeded here
            self._metrics.job_last_success.remove(kept.job.name)

    async def _until_due(self, kept: SupervisedJob) -> None:
        job, wait_seconds = kept.job, kept.wait_seconds
        if wait_seconds is not None:
            kept.next_run_ms = self._clock() + round(wait_seconds * MS_PER_SECOND)
        reasons: list[asyncio.Future[object]] = [asyncio.ensure_future(kept.wanted.wait())]
        if job.until_woken is None or kept.streak:
            wait_seconds = wait_seconds or 0.0
        else:
            reasons.append(asyncio.ensure_future(job.until_woken()))
        try:
            await asyncio.wait(reasons, timeout=wait_seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for reason in reasons:
                reason.cancel()
        kept.wanted.clear()

    async def _run(self, kept: SupervisedJob) -> None:
        kept.began(self._clock())
        outcome = JobOutcome.OK
        error: Exception | None = None
        try:
            await self._within_limits(kept)
        except LeaseLost:
            outcome = JobOutcome.LEASE_LOST
        except RunTimedOut as late:
            outcome, error = JobOutcome.TIMED_OUT, late
        except asyncio.CancelledError as cancelled:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Something that the run waited for was cancelled: that must not end the job.
            outcome, error = JobOutcome.FAILED, RunEnded(f"it was cancelled from within: {cancelled!r}")
        except Exception as failure:
            outcome, error = JobOutcome.FAILED, failure
        said = None if error is None else _one_line(error)
        before = kept.streak
        kept.ended(outcome, said, self._clock(), self._chance())
        self._metrics.job_runs.labels(kept.job.name, outcome).inc()
        self._tell(kept, before, error)

    async def _within_limits(self, kept: SupervisedJob) -> None:
        seconds, lease = kept.job.timeout_seconds, kept.lease
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                if lease is None:
                    await kept.job.run()
                else:
                    with lease.bounding(limit):
                        await kept.job.run()
        except TimeoutError:
            if not limit.expired():
                raise
            if lease is not None and lease.ended(limit):
                raise LeaseLost from None
            raise RunTimedOut(f"it took longer than {seconds:g} s and was cancelled") from None
        if kept.job.is_endless:
            raise RunEnded(ENDED)

    def _tell(self, kept: SupervisedJob, streak_before: int, error: Exception | None) -> None:
        """A line when a job begins to fail, and one when it works again."""
        name = kept.job.name
        if kept.outcome is JobOutcome.OK:
            self._metrics.job_last_success.labels(name).set(kept.good_ms / MS_PER_SECOND)
            if streak_before:
                log.info("job works again", job=name, failures=streak_before)
        elif kept.outcome is JobOutcome.LEASE_LOST:
            log.warning("job stopped: its lease ran out", job=name)
        elif kept.streak == 1:
            expected = isinstance(error, ParleyError | JobEnd)
            trace = None if expected else error
            log.warning("job failed, and is tried again", job=name, error=kept.error, exc_info=trace)


class JobEnd(Exception):
    """Why the supervisor ended a run, or does not accept its end."""


class LeaseLost(JobEnd):
    """Another node may run the job now."""


class RunTimedOut(JobEnd):
    """The run took too long."""


class RunEnded(JobEnd):
    """A run that should last for ever did not."""


def _one_line(error: Exception) -> str:
    text = f"{type(error).__name__}: {error}" if not isinstance(error, JobEnd | ParleyError) else str(error)
    return " ".join(text.split())[:ERROR_CHARS_MAX]
