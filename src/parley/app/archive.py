"""The cold tier of a store, if the configuration names one: what reads it, what fills it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from parley.app.files import make_removal
from parley.archive.archiver import Archiver, NeededFrom
from parley.archive.bulk import ArchivedLogs
from parley.archive.reader import ArchiveReader
from parley.archive.tiers import TieredEngine
from parley.archive.verification import ArchiveVerifier
from parley.audit import SERVER, AuditTrail, OperatorCall
from parley.bodies.retention import Retention
from parley.bodies.writer import EntryWriter, Told
from parley.bus.events import PERSISTED
from parley.clock import Clock
from parley.config import Config
from parley.core.jobs import Job
from parley.errors import ConfigError
from parley.model import JobScope
from parley.objects.folder import FOLDER_MODE
from parley.objects.ports import Objects, S3Settings
from parley.objects.targets import S3_SCHEME, objects_at
from parley.records.chat_settings import Retentions
from parley.store.ports import Engine
from parley.telemetry import Metrics
from parley.testing import faults
from parley.wire.limits import MIB

FIRST_SECONDS = 60.0
RUN_SECONDS_MAX = 6 * 3600.0
"""A run may move a year of messages the first time; what it has done stays done when it is ended."""
RETENTION_SECONDS = 24 * 3600.0
AUTOMATIC = "automatic"


def target_of(config: Config) -> str:
    """A folder as a path, or the address of a bucket."""
    target = config.archive.target
    return target if target.startswith(S3_SCHEME) else str(Path(config.server.data) / target)


def cold_objects(config: Config, environment: Mapping[str, str]) -> Objects:
    """Where the configuration says that archived entries are. ConfigError if that can never be used."""
    archive, target = config.archive, target_of(config)
    s3 = S3Settings(
        endpoint=archive.endpoint,
        region=archive.region,
        access_key_id=archive.access_key_id,
        secret_access_key=archive.secret_access_key,
    )
    try:
        if not target.startswith(S3_SCHEME):
            Path(target).mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
        return objects_at(target, environment, s3)
    except (ConfigError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"archive.target {target} cannot be used: {reason}") from error


def with_cold_tier(
    engine: Engine, config: Config, metrics: Metrics, environment: Mapping[str, str]
) -> TieredEngine:
    """ConfigError if the target can never be used."""
    objects = cold_objects(config, environment)
    reader = ArchiveReader(engine.entries, objects, metrics, config.archive.cache_mb * MIB)
    bulk = ArchivedLogs(engine.inspection, objects, metrics)
    return TieredEngine(engine, reader, objects, bulk)


def bus_consumers(config: Config) -> list[NeededFrom]:
    """Consumers whose offsets are on the bus: those of Kafka's groups, if there is Kafka."""
    if not config.kafka.brokers:
        return []
    from parley.bus.kafka.backlogs import KafkaBacklogs

    return [KafkaBacklogs(config.kafka, PERSISTED.name_in(config.kafka)).needed_from]


def make_archiver(
    engine: TieredEngine, config: Config, clock: Clock, metrics: Metrics, environment: Mapping[str, str]
) -> Archiver:
    return Archiver(
        engine.hot.log,
        engine.entries,
        engine.inspection,
        engine.objects,
        engine.archive,
        clock=clock,
        metrics=metrics,
        after_days=config.archive.after_days,
        consumers=bus_consumers(config),
        fault_point=faults.fault_point_from(environment),
    )


def make_verifier(engine: TieredEngine) -> ArchiveVerifier:
    return ArchiveVerifier(engine.hot.log, engine.entries, engine.inspection, engine.objects)


def make_entry_writer(
    engine: Engine,
    config: Config,
    clock: Clock,
    metrics: Metrics,
    environment: Mapping[str, str],
    told: Told | None = None,
) -> EntryWriter:
    hot, archiver = engine, None
    if isinstance(engine, TieredEngine):
        hot, archiver = engine.hot, make_archiver(engine, config, clock, metrics, environment)
    removal = make_removal(engine, config, clock, metrics, environment)
    return EntryWriter(hot.log, engine.entries, archiver, told, removal)


def make_retention(
    engine: Engine,
    config: Config,
    clock: Clock,
    metrics: Metrics,
    environment: Mapping[str, str],
    told: Told | None = None,
) -> Retention:
    writer = make_entry_writer(engine, config, clock, metrics, environment, told)
    return Retention(
        writer, Retentions(engine.records), engine.inspection, clock, metrics, config.retention.days
    )


def archive_jobs(
    engine: Engine,
    config: Config,
    clock: Clock,
    metrics: Metrics,
    environment: Mapping[str, str],
    trail: AuditTrail,
    told: Told | None = None,
) -> list[Job]:
    """What a node with the role archiver does. Automatic retention is audited as a command of it is."""
    jobs: list[Job] = []
    if isinstance(engine, TieredEngine):
        archiver = make_archiver(engine, config, clock, metrics, environment)
        jobs.append(
            Job(
                name="archive",
                does="every `archive.interval_seconds` moves old entries to the cold tier",
                run=archiver.run,
                interval_seconds=config.archive.interval_seconds,
                timeout_seconds=RUN_SECONDS_MAX,
                first_seconds=min(FIRST_SECONDS, config.archive.interval_seconds),
                scope=JobScope.CLUSTER,
            )
        )
    if config.retention.is_automatic:
        retention = make_retention(engine, config, clock, metrics, environment, told)

        async def retain() -> None:
            async with trail.audited(OperatorCall(SERVER), "retention.apply", "", AUTOMATIC):
                await retention.apply()

        jobs.append(
            Job(
                name="retention",
                does="removes bodies that are older than they are kept",
                run=retain,
                interval_seconds=RETENTION_SECONDS,
                timeout_seconds=RUN_SECONDS_MAX,
                first_seconds=FIRST_SECONDS,
                scope=JobScope.CLUSTER,
            )
        )
    return jobs
