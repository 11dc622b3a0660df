"""The one way to make a storage engine: `make_engine`. No other module says which engine it wants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from parley.clock import Clock
from parley.config import Config
from parley.core.jobs import Job
from parley.ids import Ids
from parley.model import JobScope, Persisted
from parley.records.sessions import Sessions
from parley.store.ports import Engine, Log, Records
from parley.store.tables import PAGE_SESSIONS
from parley.telemetry import Metrics
from parley.testing import faults

SEAL_SECONDS = 0.5
SEAL_SECONDS_MAX = 60.0
EXPIRED_FIRST_SECONDS = 60.0
EXPIRED_SECONDS = 6 * 3600.0
EXPIRED_SECONDS_MAX = 900.0
"""Each look reads every session of a shared store, so one node of a cluster does it."""


def make_engine(
    config: Config,
    *,
    clock: Clock,
    ids: Ids,
    metrics: Metrics,
    environment: Mapping[str, str],
    beside: bool = False,
) -> Engine:
    """The engine that a configuration asks for, not opened. An engine that it does not name is not imported.

    `beside`: this is a command, and a server may be at work on the same store. With `archive.target`, its log
    reads what is archived, too.
    """
    engine = _make_engine(config, clock, ids, metrics, environment, beside=beside)
    if not config.archive.target:
        return engine
    from parley.app.archive import with_cold_tier

    return with_cold_tier(engine, config, metrics, environment)


def _make_engine(
    config: Config,
    clock: Clock,
    ids: Ids,
    metrics: Metrics,
    environment: Mapping[str, str],
    *,
    beside: bool,
) -> Engine:
    if config.store.engine == "dynamodb":
        from parley.app.dynamodb import make_dynamo_store

        return make_dynamo_store(config, clock, ids, metrics, environment, beside=beside)
    if config.store.engine == "cassandra":
        from parley.app.cassandra import make_cassandra_store

        return make_cassandra_store(config, clock, ids, metrics, environment, beside=beside)
    from parley.store.sqlite.store import SqliteStore

    injected = {} if beside else environment
    return SqliteStore(
        Path(config.server.data),
        clock=clock,
        ids=ids,
        metrics=metrics,
        sequencing=config.store.sequencing,
        vfs=faults.vfs_from(injected),
        fault_point=faults.fault_point_in_store(injected),
        beside=beside,
    )


def sealing(log: Log, publish: Callable[[list[Persisted]], None]) -> Job:
    """Numbers that were taken and abandoned become voids, and readers go on."""

    async def seal() -> None:
        if sealed := await log.seal():
            publish(sealed)

    return Job(
        name="sealing",
        does="turns numbers that were taken and abandoned into voids; until then readers of the chat wait",
        run=seal,
        interval_seconds=SEAL_SECONDS,
        timeout_seconds=SEAL_SECONDS_MAX,
    )


def expired_sessions(sessions: Sessions, records: Records, clock: Clock) -> Job:
    """Delete sessions that were not used for 30 days."""

    async def run() -> None:
        await sessions.end_expired(clock())
        await records.expire(PAGE_SESSIONS, clock())

    return Job(
        name="expired_sessions",
        does="deletes sessions that were long unused; their tokens are refused anyway",
        run=run,
        interval_seconds=EXPIRED_SECONDS,
        timeout_seconds=EXPIRED_SECONDS_MAX,
        first_seconds=EXPIRED_FIRST_SECONDS,
        scope=JobScope.CLUSTER,
    )
