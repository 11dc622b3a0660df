"""The one way to make a storage engine: `make_engine`. No other module says which engine it wants."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path

from parley.clock import Clock
from parley.config import Config
from parley.errors import StoreError
from parley.ids import Ids
from parley.model import Persisted
from parley.store.ports import AccountAdmin, Engine, Log
from parley.telemetry import Metrics
from parley.testing import faults

SEAL_SECONDS = 0.5
EXPIRED_FIRST_SECONDS = 60.0
EXPIRED_SECONDS = 6 * 3600.0
"""Each look reads every session of a shared store, on every node that delivers."""


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

    `beside`: this is a command, and a server may be at work on the same store.
    """
    if config.store.engine == "dynamodb":
        from parley.app.dynamodb import make_dynamo_store

        return make_dynamo_store(config, clock, ids, metrics, environment, beside=beside)
    from parley.store.sqlite.store import SqliteStore

    injected = {} if beside else environment
    return SqliteStore(
        Path(config.server.data),
        clock=clock,
        ids=ids,
        metrics=metrics,
        sequencing=config.store.sequencing,
        vfs=faults.vfs_from(injected),
        reach=faults.reach_from(injected),
        hold=faults.hold_from(injected),
        beside=beside,
    )


async def seal_regularly(log: Log, publish: Callable[[list[Persisted]], None]) -> None:
    """Numbers that were taken and abandoned become voids, and readers go on."""
    while True:
        await asyncio.sleep(SEAL_SECONDS)
        with contextlib.suppress(StoreError):  # the store has said it, and it is tried again
            sealed = await log.seal()
            if sealed:
                publish(sealed)


async def end_expired_sessions(admin: AccountAdmin, clock: Clock) -> None:
    """Delete sessions that were not used for 30 days."""
    pause = EXPIRED_FIRST_SECONDS
    while True:
        await asyncio.sleep(pause)
        pause = EXPIRED_SECONDS
        with contextlib.suppress(StoreError):  # it is tried again
            await admin.end_expired_sessions(clock())
