"""Restores of a backup to a data folder: built beside its place, checked, and named as the last step."""

from __future__ import annotations

import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from parley.backup.backups import Backups
from parley.backup.manifests import Backup
from parley.checks.check import Checked, check
from parley.clock import Clock
from parley.errors import ConfigError, ParleyError
from parley.store.backup import RestoreTarget
from parley.store.folder import DATABASE_NAME, lock_folder
from parley.store.invariants import Findings

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


class NewStore(RestoreTarget, Protocol):
    """A store of one folder while it is built."""

    def finish(self, now_ms: int, *, ends_sessions: bool) -> None:
        """It has all parts: every chat gets a new epoch."""
        ...

    def close(self) -> None: ...


class StoreFolders(Protocol):
    """Stores in folders."""

    def build(self, folder: Path, schema_version: int) -> NewStore: ...

    def inspect(self, folder: Path) -> AbstractContextManager[Checked]: ...

    def put(self, built: Path, folder: Path) -> None:
        """The store has its name from one instant on, and keeps it after a power cut."""
        ...


async def restore_backup(
    backups: Backups,
    backup: Backup,
    folder: Path,
    stores: StoreFolders,
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
        target = stores.build(built, backup.schema_version)
        try:
            await backups.rebuild(backup, target, puts_files=puts_files)
            target.finish(clock(), ends_sessions=ends_sessions)
        finally:
            target.close()
        with stores.inspect(built) as built_store:
            findings = await check(built_store, accounts=False)
        if not findings.is_clean:
            raise BrokenBackup(backup, findings)
        stores.put(built, folder)
        return Restored(backup, findings)
    finally:
        shutil.rmtree(built, ignore_errors=True)
        lock.close()
