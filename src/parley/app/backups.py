"""Backups and restores of a store in a folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from msgspec import Struct

from parley import __version__
from parley.app.archive import cold_objects
from parley.app.files import file_objects
from parley.backup.backups import Backups, Say
from parley.backup.manifests import Backup, FoundBackups
from parley.backup.restores import NewStore
from parley.checks.check import Checked
from parley.clock import Clock, iso
from parley.config import Config
from parley.errors import ConfigError
from parley.ids import Ids
from parley.objects.ports import Objects
from parley.objects.targets import S3_SCHEME, objects_at
from parley.store.sqlite.inspection import SqliteInspection
from parley.store.sqlite.parts import SqliteParts, SqliteRebuild, move_into_place
from parley.store.sqlite.records import SqliteScans

BACKUP = "backup_"
"""The prefix of a backup's id, which sorts by time."""


def backups_at(objects: Objects, config: Config | None, environment: Mapping[str, str], say: Say) -> Backups:
    """The backups in an object store. `config`: of the store, which may have a cold tier and files."""
    cold = cold_objects(config, environment) if config is not None and config.archive.target else None
    files = file_objects(config, environment) if config is not None else None
    return Backups(objects, say, cold, files)


async def configured_backups(config: Config, environment: Mapping[str, str]) -> FoundBackups:
    """Those at `backup.target`; none without it."""
    target = config.backup.target
    if not target:
        return FoundBackups([], [])
    if S3_SCHEME not in target:
        target = str(Path(config.server.data, target))
    damaged: list[str] = []
    found = await Backups(objects_at(target, environment), damaged.append, None, None).all()
    return FoundBackups(found, damaged)


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


class BuiltStore(Struct, frozen=True):
    """What of a store in a folder is checked before it gets its name."""

    inspection: SqliteInspection
    records: SqliteScans


class SqliteFolders:
    """The stores of the embedded engine, as a restore builds them."""

    def build(self, folder: Path, schema_version: int) -> NewStore:
        return SqliteRebuild(folder, schema_version)

    @contextmanager
    def inspect(self, folder: Path) -> Iterator[Checked]:
        with closing(SqliteInspection(folder)) as inspection:
            yield BuiltStore(inspection, SqliteScans(folder))

    def put(self, built: Path, folder: Path) -> None:
        move_into_place(built, folder)
