"""Backups, restores and copies: which engines they work on."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from parley import __version__
from parley.app.archive import archived_rows, cold_objects
from parley.app.engines import make_engine
from parley.app.files import file_objects
from parley.archive.tiers import TieredEngine
from parley.clock import Clock, iso
from parley.config import Config
from parley.delivery.webhooks import WEBHOOK_DELIVERIES
from parley.errors import ConfigError, ParleyError
from parley.ids import AUDIT, RANDOM_BITS, Ids, ulid
from parley.keeping.backups import Backups, Say
from parley.keeping.copies import CopyRefused, CopyReport, OnProgress, StoreCopy
from parley.keeping.imports import ImportReport, WorkspaceImport
from parley.keeping.manifests import Backup
from parley.keeping.workspaces import Workspace
from parley.model import AuditRecord
from parley.objects.ports import Objects
from parley.push.channel import PUSH_DELIVERIES
from parley.store.check import check
from parley.store.folder import DATABASE_NAME, lock_folder
from parley.store.invariants import Findings
from parley.store.ports import Engine
from parley.store.sqlite.inspection import SqliteInspection
from parley.store.sqlite.parts import SqliteParts, SqliteRebuild, move_into_place
from parley.store.transfer import require_transfer
from parley.telemetry import Metrics

BACKUP = "backup_"
"""The prefix of a backup's id, which sorts by time."""
GROUPS = [WEBHOOK_DELIVERIES.group, PUSH_DELIVERIES.group]
"""The workers of a server. What was copied is nothing new to them."""
BUILT = "store.restoring"
"""Where a store is built, in its data folder, until it is whole. What a crash leaves there is made anew."""


class BrokenBackup(ParleyError):
    """A backup was read as it was written, and the store that it holds is not sound."""

    def __init__(self, backup: Backup, findings: Findings) -> None:
        first = findings.breaches[0]
        super().__init__(
            f"{backup.backup_id} holds a store that is not sound ({first.invariant}: {first.says}):"
            " restore an older backup (--backup), and run parley check on the server's own store"
        )


class Restored(Struct):
    """What was restored, and what `parley check` found in it before it got its name."""

    backup: Backup
    findings: Findings


def backups_at(objects: Objects, config: Config | None, environment: Mapping[str, str], say: Say) -> Backups:
    """The backups in an object store. `config`: of the store, which may have a cold tier and files."""
    cold = cold_objects(config, environment) if config is not None and config.archive.target else None
    files = file_objects(config, environment) if config is not None else None
    return Backups(objects, say, cold, files)


async def make_backup(
    backups: Backups, config: Config, clock: Clock, ids: Ids, *, is_full: bool, has_files: bool = True
) -> Backup:
    """ConfigError for a store that is not in a folder: those have their own backups.

    `has_files`: with the bytes of attachments.
    """
    if config.store.engine != "sqlite":
        raise ConfigError(
            f"parley backup is for the embedded store; {config.store.engine} has backups of its own:"
            " see docs/keeping.md"
        )
    now_ms = clock()
    source = SqliteParts(Path(config.server.data))
    backup_id = ids.next(BACKUP, now_ms)
    return await backups.make(
        source, backup_id, iso(now_ms), __version__, is_full=is_full, has_files=has_files
    )


async def restore_backup(
    backups: Backups,
    backup: Backup,
    folder: Path,
    clock: Clock,
    *,
    ends_sessions: bool,
    puts_files: bool = True,
) -> Restored:
    """Build the store beside its place, check it, and give it its name as the last step.

    ConfigError if the folder has a store. Until the last step there is none, so it may be repeated.
    `puts_files`: with the bytes of attachments.
    """
    if (folder / DATABASE_NAME).exists():
        raise ConfigError(f"there is a store in {folder}, which stays as it is: restore to another folder")
    lock = lock_folder(folder)
    built = folder / BUILT
    try:
        if (folder / DATABASE_NAME).exists():
            raise ConfigError(f"another restore has just put a store into {folder}")
        shutil.rmtree(built, ignore_errors=True)
        findings = await _build(
            backups, backup, built, clock, ends_sessions=ends_sessions, puts_files=puts_files
        )
        if not findings.is_clean:
            raise BrokenBackup(backup, findings)
        move_into_place(built, folder)
        return Restored(backup, findings)
    finally:
        shutil.rmtree(built, ignore_errors=True)
        lock.close()


async def _build(
    backups: Backups, backup: Backup, built: Path, clock: Clock, *, ends_sessions: bool, puts_files: bool
) -> Findings:
    target = SqliteRebuild(built, backup.schema_version)
    try:
        await backups.rebuild(backup, target, puts_files=puts_files)
        target.finish(clock(), ends_sessions=ends_sessions)
    finally:
        target.close()
    inspection = SqliteInspection(built)
    try:
        return await check(inspection)
    finally:
        inspection.close()


# Copies


class CopySide(Struct):
    """A store that is copied, or copied to: its engine, and how to name it."""

    config: Config
    engine: Engine
    name: str


def copy_side(config: Config, clock: Clock, ids: Ids, environment: Mapping[str, str]) -> CopySide:
    engine = make_engine(
        config, clock=clock, ids=ids, metrics=Metrics(clock), environment=environment, beside=True
    )
    return CopySide(config, engine, _name_of(config))


def _name_of(config: Config) -> str:
    """What tells this store from any other."""
    if config.store.engine == "sqlite":
        return f"sqlite in {Path(config.server.data).absolute()}"
    if config.store.engine == "cassandra":
        return f"cassandra at {','.join(config.cassandra.contact_points)} {config.cassandra.keyspace}"
    where = config.dynamodb
    return f"{config.store.engine} at {where.endpoint or 'AWS'} {where.region} {where.prefix}".rstrip()


async def copy_store(
    source: CopySide, target: CopySide, clock: Clock, on_progress: OnProgress, *, checks: bool
) -> CopyReport:
    """Check the source, copy it, compare, and check the target.

    StoreBusy if a server runs on a folder of either. CopyRefused if the source is not sound: a copy would
    make its holes look like voids.
    """
    if source.name == target.name:
        raise CopyRefused("source and target are the same store")
    with ExitStack() as locks:
        for side in (source, target):
            if side.config.store.engine == "sqlite":
                locks.enter_context(lock_folder(Path(side.config.server.data)))
        try:
            theirs = require_transfer(source.engine.transfer, source.name)
            ours = require_transfer(_hot(target.engine).transfer, target.name)
            await target.engine.create(lambda _: None)
            await _refuse_trimmed(source)
            if checks:
                await _check_side(source)
            copy = StoreCopy(theirs, ours, source.name, GROUPS, clock, on_progress)
            report = await copy.run()
            if checks:
                await _check_side(target)
            return report
        finally:
            await source.engine.close()
            await target.engine.close()


def _hot(engine: Engine) -> Engine:
    """A copy is written to the engine: its own archiver moves what is old."""
    return engine.hot if isinstance(engine, TieredEngine) else engine


async def _refuse_trimmed(side: CopySide) -> None:
    """Entries that were moved elsewhere are not in the engine: as holes they would become voids."""
    if isinstance(side.engine, TieredEngine):
        return
    async for chats in side.engine.inspection.chats(None):
        for chat in chats:
            if chat.trimmed_through:
                raise CopyRefused(
                    f"{chat.chat_id} has archived entries: set archive.target in the configuration of the"
                    " source, and they are copied, too"
                )


async def _check_side(side: CopySide) -> None:
    findings = await check(side.engine.inspection, archived=archived_rows(side.engine))
    if not findings.is_clean:
        first = findings.breaches[0]
        raise CopyRefused(f"{side.name} is not sound ({first.invariant}: {first.says}): run parley check")


# Imports


async def import_workspace(
    workspace: Workspace,
    engine: Engine,
    clock: Clock,
    actor: str,
    *,
    matches_names: bool,
    on_progress: Callable[[ImportReport], None],
) -> ImportReport:
    """Bring in an export, and see to it that nobody is told of it as of something new.

    ConfigError if workers still have something to do: what is marked as done would include that.
    """
    transfer = require_transfer(engine.transfer)
    lags = await engine.feed.lags() if engine.feed is not None else {}
    if any(lags.get(group) for group in GROUPS):
        raise ConfigError("deliveries are under way: let the server run until they are done, then stop it")
    now_ms = clock()
    audit_id = f"{AUDIT}{ulid(now_ms, secrets.randbits(RANDOM_BITS))}"
    record = AuditRecord(
        audit_id=audit_id, at=iso(now_ms), actor=actor, action="store.import", target_id=workspace.source
    )
    await engine.audit.record(record)
    job = WorkspaceImport(workspace, engine, clock, matches_names=matches_names, on_progress=on_progress)
    report = await job.run()
    if engine.outbox is not None:
        await engine.outbox.flush()
    await transfer.settle(GROUPS, clock())
    await engine.audit.record(replace(record, outcome="done"))
    return report
