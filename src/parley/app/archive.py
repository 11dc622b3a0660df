"""The cold tier of a store, if the configuration names one: what reads it, what fills it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from parley.archive.archiver import Archiver
from parley.archive.eraser import Eraser
from parley.archive.objects import S3_SCHEME, S3Settings, open_objects
from parley.archive.reader import ArchiveReader
from parley.archive.retention import Retention
from parley.archive.tiers import TieredEngine
from parley.archive.verification import ArchiveVerifier
from parley.clock import Clock
from parley.config import Config
from parley.core.jobs import Job
from parley.errors import ConfigError
from parley.model import JobScope
from parley.store.ports import Engine
from parley.telemetry import Metrics
from parley.testing import faults
from parley.wire.limits import MIB

FIRST_SECONDS = 60.0
RUN_SECONDS_MAX = 6 * 3600.0
"""A run may move a year of messages the first time; what it has done stays done when it is ended."""
RETENTION_SECONDS = 24 * 3600.0


def target_of(config: Config) -> str:
    """A folder as a path, or the address of a bucket."""
    target = config.archive.target
    return target if target.startswith(S3_SCHEME) else str(Path(config.server.data) / target)


def with_cold_tier(engine: Engine, config: Config, metrics: Metrics) -> TieredEngine:
    """ConfigError if the target can never be used, or the engine cannot let go of entries."""
    tier, archive = engine.cold_tier, config.archive
    if tier is None:
        raise ConfigError(f"archive.target: entries cannot be archived from {config.store.engine}")
    s3 = S3Settings(
        endpoint=archive.endpoint,
        region=archive.region,
        access_key_id=archive.access_key_id,
        secret_access_key=archive.secret_access_key,
    )
    objects = open_objects(target_of(config), s3)
    reader = ArchiveReader(tier, objects, metrics, archive.cache_mb * MIB)
    return TieredEngine(engine, tier, reader, objects)


def make_archiver(
    engine: TieredEngine, config: Config, clock: Clock, metrics: Metrics, environment: Mapping[str, str]
) -> Archiver:
    return Archiver(
        engine.hot.log,
        engine.tier,
        engine.inspection,
        engine.objects,
        engine.archive,
        clock=clock,
        metrics=metrics,
        after_days=config.archive.after_days,
        reach=faults.reach_from(environment),
    )


def make_verifier(engine: TieredEngine) -> ArchiveVerifier:
    return ArchiveVerifier(engine.hot.log, engine.tier, engine.inspection, engine.objects)


def make_retention(
    engine: Engine, config: Config, clock: Clock, metrics: Metrics, environment: Mapping[str, str]
) -> Retention:
    """ConfigError if the engine cannot remove bodies."""
    tier, hot, archiver = engine.cold_tier, engine, None
    if tier is None:
        raise ConfigError(f"bodies cannot be removed from {config.store.engine}")
    if isinstance(engine, TieredEngine):
        hot, archiver = engine.hot, make_archiver(engine, config, clock, metrics, environment)
    eraser = Eraser(hot.log, tier, archiver)
    return Retention(eraser, tier, engine.inspection, clock, metrics, config.retention.days)


def archive_jobs(
    engine: Engine, config: Config, clock: Clock, metrics: Metrics, environment: Mapping[str, str]
) -> list[Job]:
    """What a node with the role archiver does."""
    jobs: list[Job] = []
    if isinstance(engine, TieredEngine):
        archiver = make_archiver(engine, config, clock, metrics, environment)
        jobs.append(
            Job(
                name="archive",
                run=archiver.run,
                interval_seconds=config.archive.interval_seconds,
                timeout_seconds=RUN_SECONDS_MAX,
                first_seconds=min(FIRST_SECONDS, config.archive.interval_seconds),
                scope=JobScope.CLUSTER,
            )
        )
    if config.retention.is_automatic and engine.cold_tier is not None:
        retention = make_retention(engine, config, clock, metrics, environment)
        jobs.append(
            Job(
                name="retention",
                run=retention.apply,
                interval_seconds=RETENTION_SECONDS,
                timeout_seconds=RUN_SECONDS_MAX,
                first_seconds=FIRST_SECONDS,
                scope=JobScope.CLUSTER,
            )
        )
    return jobs
