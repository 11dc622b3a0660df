"""Jobs under supervision: whatever a run does, the job goes on, and its state says how it went."""

import asyncio

import structlog

from parley.core.jobs import OVERDUE_SECONDS_MIN, Job
from parley.ephemeral.local import LocalEphemeral
from parley.model import JobOutcome
from tests.harness.clock import VirtualClock, run_virtual
from tests.harness.jobs import supervised
from tests.unit.jobs.world import INTERVAL_SECONDS, TIMEOUT_SECONDS, JobNode, Work


def test_a_job_that_fails_runs_again_at_growing_waits_and_then_regularly() -> None:
    """Three failures: waits of 1, 2 and 4 seconds; then the interval again."""

    async def scenario(clock: VirtualClock) -> None:
        work = Work(clock, fails=lambda run: run <= 3)
        async with supervised(clock, work.job()):
            await asyncio.sleep(40)
        assert work.began == [10, 11, 13, 17, 27, 37]

    run_virtual(scenario)


def test_a_wait_is_never_longer_than_it_may_be() -> None:
    """A job that always fails is tried at least once an interval, or every minute."""

    async def scenario(clock: VirtualClock) -> None:
        work = Work(clock, fails=lambda _: True)
        async with supervised(clock, work.job()):
            await asyncio.sleep(200)
        waits = [b - a for a, b in zip(work.began, work.began[1:], strict=False)]
        assert waits[:5] == [1, 2, 4, 8, 10]
        assert max(waits) == INTERVAL_SECONDS

    run_virtual(scenario)


def test_a_job_that_hangs_is_cut_off() -> None:
    """At its timeout, counted as a failure, and it is begun again."""

    async def scenario(clock: VirtualClock) -> None:
        work = Work(clock, takes_seconds=1e6)
        async with supervised(clock, work.job()) as supervisor:
            await asyncio.sleep(INTERVAL_SECONDS + TIMEOUT_SECONDS + 0.5)
            (record,) = await supervisor.records()
            assert (record.last_outcome, record.failures) == (JobOutcome.TIMED_OUT, 1)
            assert record.last_error == "it took longer than 60 s and was cancelled"
            assert work.at_once == 0
            await asyncio.sleep(1)
            assert work.at_once == 1

    run_virtual(scenario)


def test_a_job_that_is_cancelled_from_within_goes_on() -> None:
    """A run that waits for something that is cancelled fails like any other: the job does not end."""

    async def scenario(clock: VirtualClock) -> None:
        runs = 0

        async def run() -> None:
            nonlocal runs
            runs += 1
            gone = asyncio.get_running_loop().create_future()
            gone.cancel()
            await gone

        async with supervised(
            clock, Job(name="work", run=run, interval_seconds=10.0, timeout_seconds=1.0)
        ) as supervisor:
            await asyncio.sleep(30)
            (record,) = await supervisor.records()
        assert runs >= 3
        assert record.failures == runs

    run_virtual(scenario)


def test_a_job_that_runs_for_ever_is_begun_again() -> None:
    """Its end is a failure, however it ended; after a steady time the waits begin anew."""

    async def scenario(clock: VirtualClock) -> None:
        work = Work(clock, takes_seconds=100.0, fails=lambda run: run == 1)
        endless = Job(name="work", run=work.run, interval_seconds=None, timeout_seconds=None)
        async with supervised(clock, endless) as supervisor:
            await asyncio.sleep(250)
            (record,) = await supervisor.records()
        assert work.began == [0, 101, 202]
        assert (record.failures, record.last_error) == (2, "it ended, although it should run for ever")

    run_virtual(scenario)


def test_a_job_that_is_woken_runs_at_once() -> None:
    """And then after its interval, as after any run."""

    async def scenario(clock: VirtualClock) -> None:
        work, woken = Work(clock), asyncio.Event()

        async def run() -> None:
            woken.clear()
            await work.run()

        job = Job(name="work", run=run, interval_seconds=10.0, timeout_seconds=1.0, until_woken=woken.wait)
        async with supervised(clock, job):
            await asyncio.sleep(13)
            woken.set()
            await asyncio.sleep(12)
        assert work.began == [10, 13, 23]

    run_virtual(scenario)


def test_a_streak_of_failures_is_logged_once() -> None:
    """One line when it begins, with its error, and one when it ends, with how many there were."""

    async def scenario(clock: VirtualClock) -> None:
        work = Work(clock, fails=lambda run: run in (1, 2, 3, 5))
        with structlog.testing.capture_logs() as lines:
            async with supervised(clock, work.job()):
                await asyncio.sleep(60)
        told = [(line["event"], line.get("failures")) for line in lines]
        failed, works = ("job failed, and is tried again", None), "job works again"
        assert told == [failed, (works, 3), failed, (works, 1)]
        assert lines[0]["error"] == "Broken: as planned"

    run_virtual(scenario)


def test_runs_are_counted_and_the_last_success_is_told() -> None:
    """By outcome; a job that has not succeeded for several intervals is overdue, until it does."""

    async def scenario(clock: VirtualClock) -> None:
        node = JobNode(clock, "a", LocalEphemeral(clock))
        broken = True
        work = Work(clock, fails=lambda _: broken)
        node.supervisor.start([work.job()])
        patience = OVERDUE_SECONDS_MIN + TIMEOUT_SECONDS + 3 * INTERVAL_SECONDS
        await asyncio.sleep(patience - 1)
        assert node.told("parley_job_overdue", job="work") == 0
        await asyncio.sleep(2)
        assert node.told("parley_job_overdue", job="work") == 1
        assert node.told("parley_job_last_success_timestamp_seconds", job="work") is None
        failures = node.told("parley_job_runs_total", job="work", outcome="failed")
        assert failures == len(work.began)
        broken = False
        await asyncio.sleep(INTERVAL_SECONDS)
        assert node.told("parley_job_overdue", job="work") == 0
        assert node.told("parley_job_runs_total", job="work", outcome="ok") == 1
        done = node.told("parley_job_last_success_timestamp_seconds", job="work")
        assert done is not None
        assert 0 <= clock() / 1000 - done <= INTERVAL_SECONDS
        await node.supervisor.stop()

    run_virtual(scenario)


def test_a_record_says_what_happened_and_what_comes() -> None:
    """Between two runs: when the last one was, how it ended, and when the next one is due."""

    async def scenario(clock: VirtualClock) -> None:
        start_ms = clock()
        work = Work(clock, takes_seconds=2.0)
        async with supervised(clock, work.job()) as supervisor:
            await asyncio.sleep(15)
            (record,) = await supervisor.records()
        assert (record.last_started_ms, record.last_finished_ms) == (start_ms + 10_000, start_ms + 12_000)
        assert (record.last_outcome, record.last_error) == (JobOutcome.OK, None)
        assert (record.next_run_ms, record.runs, record.failures) == (start_ms + 22_000, 1, 0)

    run_virtual(scenario)


def test_a_stop_is_not_lost_in_a_call_that_swallows_it() -> None:
    """A library turned the cancellation into an error of its own: the supervisor cancels again, and ends."""

    async def scenario(clock: VirtualClock) -> None:
        swallowed = 0

        async def run() -> None:
            nonlocal swallowed
            try:
                await asyncio.sleep(1e6)
            except asyncio.CancelledError as error:
                swallowed += 1
                raise ConnectionError("no answer") from error

        job = Job(name="work", run=run, interval_seconds=10.0, timeout_seconds=None)
        async with supervised(clock, job) as supervisor:
            await asyncio.sleep(11)
            async with asyncio.timeout(1):
                await supervisor.stop()
        assert swallowed == 1

    run_virtual(scenario)


def test_a_job_that_an_operator_wants_runs_at_once() -> None:
    """Not when it is due, and it goes on as before; one that runs for ever, or is not here, is refused."""

    async def scenario(clock: VirtualClock) -> None:
        work = Work(clock)
        endless = Job(name="endless", run=asyncio.Event().wait, interval_seconds=None, timeout_seconds=None)
        async with supervised(clock, work.job(), endless) as supervisor:
            await asyncio.sleep(3)
            assert supervisor.run_soon(work.job().name) is None
            await asyncio.sleep(INTERVAL_SECONDS + 1)
            refused = [supervisor.run_soon(name) for name in ("endless", "nothing")]
            assert [one.code if one is not None else "" for one in refused] == ["bad_request", "not_found"]
        assert work.began == [3, 3 + INTERVAL_SECONDS]

    run_virtual(scenario)


def test_a_job_that_is_wanted_while_it_runs_runs_once_more() -> None:
    """What came after its beginning may not have been seen; two wishes are one run."""

    async def scenario(clock: VirtualClock) -> None:
        work = Work(clock, takes_seconds=5)
        async with supervised(clock, work.job()) as supervisor:
            await asyncio.sleep(INTERVAL_SECONDS + 1)
            assert supervisor.run_soon(work.job().name) is None
            assert supervisor.run_soon(work.job().name) is None
            await asyncio.sleep(9)
        assert work.began == [INTERVAL_SECONDS, INTERVAL_SECONDS + 5]

    run_virtual(scenario)
