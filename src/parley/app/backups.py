"""Backups and restores of a store in a folder."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from parley import __version__
from parley.app.archive import cold_objects
from parley.app.files import file_objects
from parley.backup.backups import Backups, Say
from parley.backup.manifests import Backup
from parley.clock import Clock, iso
from parley.config import Config
from parley.errors import ConfigError, ParleyError
from parley.ids import Ids
from parley.objects.ports import Objects
from parley.store.check import check
from parley.store.folder import DATABASE_NAME, lock_folder
from parley.store.invariants import Findings
from parley.store.sqlite.inspection import SqliteInspection
from parley.store.sqlite.parts import SqliteParts, SqliteRebuild, move_into_place

BACKUP = "backup_"
"""The prefix of a backup's id, which sorts by time."""
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
    if config.store.is_shared:
        raise ConfigError(
            f"parley backup is for the embedded store; {config.store.engine} has backups of its own:"
            " see docs/backup-and-migration.md"
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
