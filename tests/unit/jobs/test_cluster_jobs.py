"""Jobs of a cluster: one node at a time runs them, and another one takes over when it is gone."""

import asyncio

from parley.ephemeral.local import LocalEphemeral
from parley.ephemeral.ports import JOB_LEASE_SECONDS, JOB_RENEW_SECONDS
from parley.jobs.supervisor import NO_LEASE, REPORT_SECONDS
from parley.model import JobOutcome, JobScope
from tests.harness.clock import VirtualClock, run_virtual
from tests.unit.jobs.world import INTERVAL_SECONDS, JobNode, Work

TAKEN_OVER_SECONDS = JOB_LEASE_SECONDS + JOB_RENEW_SECONDS
MANY_RUNS_SECONDS = 20 * INTERVAL_SECONDS


class Pair:
    """Two nodes with the same job. `works` says which of them ran it; `both` whether ever two at once."""

    def __init__(self, clock: VirtualClock, *, takes_seconds: float = 1.0, overlaps: bool = True) -> None:
        shared = LocalEphemeral(clock)
        self.one, self.two = JobNode(clock, "one", shared), JobNode(clock, "two", shared)
        self.works = [Work(clock, takes_seconds), Work(clock, takes_seconds)]
        self.nodes = [self.one, self.two]
        for node, work in zip(self.nodes, self.works, strict=True):
            node.supervisor.start([work.job(JobScope.CLUSTER, overlaps)])

    @property
    def runs(self) -> tuple[int, int]:
        return len(self.works[0].began), len(self.works[1].began)

    async def stop(self) -> None:
        for node in self.nodes:
            await node.supervisor.stop()


def test_one_of_two_nodes_runs_a_job_of_the_cluster() -> None:
    """However long they run, only the first one does, as often as alone."""

    async def scenario(clock: VirtualClock) -> None:
        pair = Pair(clock)
        await asyncio.sleep(MANY_RUNS_SECONDS)
        assert pair.runs == (18, 0)
        await pair.stop()

    run_virtual(scenario)


def test_another_node_takes_over_from_one_that_was_killed() -> None:
    """Within the lease and a renewal it has the job, and it runs it when it would have been due."""

    async def scenario(clock: VirtualClock) -> None:
        pair = Pair(clock)
        await asyncio.sleep(15)
        assert pair.runs == (1, 0)
        pair.one.kill()
        await asyncio.sleep(TAKEN_OVER_SECONDS)
        (record,) = await pair.two.supervisor.records()
        assert record.node_id == "two"
        await asyncio.sleep(1)
        assert pair.runs == (1, 1)
        assert 21 <= pair.works[1].began[0] <= 15 + TAKEN_OVER_SECONDS
        await pair.two.supervisor.stop()

    run_virtual(scenario)


def test_a_node_that_stops_leaves_its_jobs_at_once() -> None:
    """Nobody waits for the lease of a node that says goodbye; the schedule goes on."""

    async def scenario(clock: VirtualClock) -> None:
        pair = Pair(clock)
        await asyncio.sleep(15)
        await pair.one.supervisor.stop()
        await asyncio.sleep(JOB_RENEW_SECONDS)
        (record,) = await pair.two.supervisor.records()
        assert record.node_id == "two"
        await asyncio.sleep(10)
        assert pair.works[1].began == [21]
        await pair.two.supervisor.stop()

    run_virtual(scenario)


def test_a_node_that_lost_its_lease_stops_its_run() -> None:
    """It cannot renew while it runs a long job: it stops before another one may begin."""

    async def scenario(clock: VirtualClock) -> None:
        pair = Pair(clock, takes_seconds=50.0, overlaps=False)
        await asyncio.sleep(15)
        assert [work.at_once for work in pair.works] == [1, 0]
        pair.one.line.is_away = True
        for _ in range(300):
            await asyncio.sleep(0.1)
            assert sum(work.at_once for work in pair.works) <= 1
        assert [work.at_once for work in pair.works] == [0, 1]
        assert pair.one.told("parley_job_runs_total", job="work", outcome=JobOutcome.LEASE_LOST) == 1
        await pair.stop()

    run_virtual(scenario)


def test_what_must_not_run_twice_rests_while_no_lease_can_be_had() -> None:
    """Redis is away for all: no node runs it, each says why, it becomes overdue; one goes on afterwards."""

    async def scenario(clock: VirtualClock) -> None:
        pair = Pair(clock, overlaps=False)
        for node in pair.nodes:
            node.line.is_away = True
        await asyncio.sleep(MANY_RUNS_SECONDS)
        assert pair.runs == (0, 0)
        for node in pair.nodes:
            assert [record.last_error for record in await node.supervisor.records()] == [NO_LEASE]
            assert node.told("parley_job_overdue", job="work") == 1
            node.line.is_away = False
        await asyncio.sleep(MANY_RUNS_SECONDS)
        assert sorted(map(bool, pair.runs)) == [False, True]
        assert [node.told("parley_job_overdue", job="work") for node in pair.nodes] == [0, 0]
        await pair.stop()

    run_virtual(scenario)


def test_what_may_run_twice_goes_on_without_leases() -> None:
    """Redis is away for all: each node runs it, and when Redis is back only one does."""

    async def scenario(clock: VirtualClock) -> None:
        pair = Pair(clock)
        await asyncio.sleep(15)
        for node in pair.nodes:
            node.line.is_away = True
        await asyncio.sleep(MANY_RUNS_SECONDS)
        assert min(pair.runs) >= 15
        for node in pair.nodes:
            node.line.is_away = False
        await asyncio.sleep(TAKEN_OVER_SECONDS + INTERVAL_SECONDS)
        before = pair.runs
        await asyncio.sleep(MANY_RUNS_SECONDS)
        assert min(now - then for now, then in zip(pair.runs, before, strict=True)) == 0
        await pair.stop()

    run_virtual(scenario)


def test_each_node_answers_for_all() -> None:
    """What one node knows of its job, the other one tells some seconds later, and not its own silence."""

    async def scenario(clock: VirtualClock) -> None:
        pair = Pair(clock)
        await asyncio.sleep(INTERVAL_SECONDS + 1 + REPORT_SECONDS)
        (told,) = await pair.two.supervisor.records()
        assert (told.node_id, told.runs, told.last_outcome) == ("one", 1, JobOutcome.OK)
        await pair.stop()

    run_virtual(scenario)


def test_a_job_that_nobody_runs_is_overdue_on_every_node() -> None:
    """Somebody has its lease and does nothing: nodes that could run it tell, by what was last said of it."""

    async def scenario(clock: VirtualClock) -> None:
        pair = Pair(clock)
        await asyncio.sleep(15)
        await pair.one.supervisor.stop()
        assert await pair.one.line.hold("job:work", "somebody", 1e6) is True
        await asyncio.sleep(MANY_RUNS_SECONDS)
        assert pair.runs == (1, 0)
        assert pair.two.told("parley_job_overdue", job="work") == 1
        await pair.two.supervisor.stop()

    run_virtual(scenario)


def test_a_success_on_another_node_is_not_told_as_ones_own() -> None:
    """A node that no longer has the job shows no last success: an alert on it would be wrong."""

    async def scenario(clock: VirtualClock) -> None:
        pair = Pair(clock, overlaps=False)
        await asyncio.sleep(15)
        name = "parley_job_last_success_timestamp_seconds"
        assert pair.one.told(name, job="work") is not None
        pair.one.line.is_away = True
        await asyncio.sleep(3 * TAKEN_OVER_SECONDS)
        assert pair.one.told(name, job="work") is None
        assert pair.two.told(name, job="work") is not None
        await pair.stop()

    run_virtual(scenario)
