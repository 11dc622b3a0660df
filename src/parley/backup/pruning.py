"""Old backups are deleted: all but the newest, and the objects that no other backup needs."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from parley.backup.backups import Backups
from parley.backup.manifests import (
    ARCHIVES,
    COLD,
    FILE_LISTS,
    FILES,
    MANIFESTS,
    SEGMENTS,
    STATES,
    Backup,
    BackupDamaged,
    decode_manifest,
    manifest_key,
)
from parley.clock import MS_PER_DAY, Clock
from parley.objects.ports import Objects, StoredObject

ORPHAN_MS_MIN = MS_PER_DAY
"""An object that no manifest names may be of a backup that is being written, until it is this old."""


class Pruning(Struct):
    """What a pruning deletes: backups, and objects that no other backup names."""

    kept: list[Backup]
    deleted: list[Backup]
    objects: list[StoredObject]

    @property
    def freed_bytes(self) -> int:
        return sum(stored.size_bytes for stored in self.objects)


class Pruner:
    """Deletes all but the newest backups of an object store. Not while a backup is being written there."""

    def __init__(self, backups: Backups, objects: Objects, clock: Clock) -> None:
        self._backups = backups
        self._objects = objects
        self._clock = clock

    async def plan(self, keep: int) -> Pruning:
        """What would go. BackupDamaged if a manifest cannot be read: nobody knows what belongs to it."""
        backups = [
            decode_manifest(stored.key, await self._objects.read(stored.key))
            for stored in await self._objects.find(MANIFESTS)
        ]
        kept, deleted = backups[-keep:], backups[:-keep]
        named = await self._named(kept)
        doomed = await self._named(deleted)
        oldest_orphan_ms = self._clock() - ORPHAN_MS_MIN
        objects = [
            stored
            for stored in await self._objects.find("")
            if stored.key not in named
            and (stored.key in doomed or (_is_ours(stored.key) and stored.modified_ms <= oldest_orphan_ms))
        ]
        return Pruning(kept, deleted, objects)

    async def _named(self, backups: Sequence[Backup]) -> set[str]:
        found = {manifest_key(backup.backup_id) for backup in backups}
        for backup in backups:
            found |= {part.key for part in await self._backups.every_part(backup)}
        return found

    async def apply(self, pruning: Pruning) -> None:
        """Manifests first: what is cut off leaves no backup that lacks a part. Then looks at what is kept.

        BackupDamaged if a backup that is kept has not every part.
        """
        for stored in sorted(pruning.objects, key=lambda one: not one.key.startswith(MANIFESTS)):
            await self._objects.delete(stored.key)
        there = {stored.key: stored.size_bytes for stored in await self._objects.find("")}
        for backup in pruning.kept:
            for part in await self._backups.every_part(backup):
                if there.get(part.key) != part.size_bytes:
                    raise BackupDamaged(f"{backup.backup_id} has no {part.key} of {part.size_bytes:,} bytes")


def _is_ours(key: str) -> bool:
    return key.startswith((MANIFESTS, SEGMENTS, STATES, ARCHIVES, COLD, FILE_LISTS, FILES))
