"""A supervisor with jobs, without a node around it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from parley.clock import Clock
from parley.core.jobs import Job
from parley.ephemeral.local import LocalEphemeral
from parley.ephemeral.ports import Ephemeral, Leases
from parley.jobs.supervisor import Supervisor
from parley.telemetry import Metrics


def supervisor_on(
    clock: Clock,
    node_id: str = "a",
    shared: Ephemeral | None = None,
    metrics: Metrics | None = None,
    leases: Leases | None = None,
) -> Supervisor:
    """The supervisor of one process; nodes that share an engine see each other's leases."""
    engine = shared or LocalEphemeral(clock)
    return Supervisor(
        node_id=node_id,
        holder=f"{node_id}.1",
        leases=leases or engine.leases,
        records=engine.job_records,
        metrics=metrics or Metrics(clock),
        clock=clock,
        chance=lambda: 0.0,
    )


@asynccontextmanager
async def supervised(clock: Clock, *jobs: Job) -> AsyncIterator[Supervisor]:
    """These jobs run until the end of the block."""
    supervisor = supervisor_on(clock)
    supervisor.start(jobs)
    await asyncio.sleep(0)
    try:
        yield supervisor
    finally:
        await supervisor.stop()
