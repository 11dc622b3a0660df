"""Backups of a store to an object store, and the way back.

Nothing that a backup refers to is ever changed, and its manifest is written last. So a crash at any point
leaves the backups before it as they were, and of two at the same time each is whole.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Sequence

from parley.errors import ParleyError
from parley.keeping.manifests import (
    MANIFESTS,
    SEGMENTS,
    STATES,
    Backup,
    BackupDamaged,
    Part,
    Segment,
    check_part,
    decode_manifest,
    digest,
    encode_manifest,
    has_all,
    manifest_key,
)
from parley.objects.ports import ObjectExists, ObjectMissing, Objects
from parley.store.backup import BackupSource, EntryRange, RestoreTarget

COMPRESSION_LEVEL = 3
"""Nearly as small as 6, in a third of the time."""
POSITION_DIGITS = 19
KEY_DIGEST_LETTERS = 16

Say = Callable[[str], None]


class NoBackup(ParleyError):
    """There is no backup here, or not the one that was asked for."""


class Backups:
    """The backups in one object store."""

    def __init__(self, objects: Objects, say: Say) -> None:
        self._objects = objects
        self._say = say

    # Which there are

    async def all(self) -> list[Backup]:
        """Those whose manifests can be read, the oldest first."""
        found: list[Backup] = []
        for stored in await self._objects.find(MANIFESTS):
            try:
                found.append(decode_manifest(stored.key, await self._objects.read(stored.key)))
            except BackupDamaged as damage:
                self._say(f"left out: {damage}")
        return found

    async def choose(self, backup_id: str | None) -> Backup:
        """This one, or the newest. One that is damaged is never silently replaced by an older one."""
        keys = [stored.key for stored in await self._objects.find(MANIFESTS)]
        wanted = [key for key in keys if backup_id is None or key == manifest_key(backup_id)]
        if not wanted:
            raise NoBackup(f"there is no backup {backup_id or ''}".rstrip() + f" in {self._objects.where}")
        return decode_manifest(wanted[-1], await self._objects.read(wanted[-1]))

    # Making one

    async def make(
        self, source: BackupSource, backup_id: str, made_at: str, parley: str, *, is_full: bool
    ) -> Backup:
        """Write what is new since the last backup of the same store, and verify it by reading it back."""
        base = None if is_full else await self._base(source)
        segments = list(base.segments) if base is not None else []
        while (full := await asyncio.to_thread(source.entries, _end_of(segments))) is not None:
            segments.append(await self._keep_segment(*full))
        rest = await asyncio.to_thread(source.rest, _end_of(segments))
        if rest.entries.entries:
            segments.append(await self._keep_segment(rest.entries, rest.entries_part))
        state, packed = rest.state, await asyncio.to_thread(_packed, rest.state_part)
        part = await self._keep(f"{STATES}{backup_id}.db.gz", packed)
        backup = Backup(
            backup_id=backup_id,
            made_at=made_at,
            parley=parley,
            schema_version=state.schema_version,
            chats=state.chats,
            people=state.people,
            tail=source.tail(_end_of(segments)) or "",
            segments=tuple(segments),
            state=part,
            based_on=base.backup_id if base is not None else "",
        )
        await self._keep(manifest_key(backup_id), encode_manifest(backup))
        return backup

    async def _base(self, source: BackupSource) -> Backup | None:
        """The newest backup that the store continues: it has the same entries where that one ended."""
        found = [(stored.key, stored.size_bytes) for stored in await self._objects.find(SEGMENTS)]
        for backup in reversed(await self.all()):
            if not backup.segments or not has_all(backup, found):
                continue
            if source.tail(backup.through) == backup.tail:
                return backup
        return None

    async def _keep_segment(self, entries: EntryRange, part_data: bytes) -> Segment:
        data = await asyncio.to_thread(_packed, part_data)
        place = f"{entries.after:0{POSITION_DIGITS}}-{entries.through:0{POSITION_DIGITS}}"
        part = await self._keep(f"{SEGMENTS}{place}-{digest(data)[:KEY_DIGEST_LETTERS]}.db.gz", data)
        self._say(f"{part.key}: {entries.entries:,} entries, {part.size_bytes:,} bytes")
        return Segment(
            key=part.key,
            size_bytes=part.size_bytes,
            sha256=part.sha256,
            after=entries.after,
            through=entries.through,
            entries=entries.entries,
        )

    async def _keep(self, key: str, data: bytes) -> Part:
        """Write an object and read it back. An earlier attempt, or another backup, may have written it."""
        part = Part(key=key, size_bytes=len(data), sha256=digest(data))
        try:
            await self._objects.create(key, data)
        except ObjectExists:
            self._say(f"{key}: is there already")
        check_part(part, await self._objects.read(key))
        return part

    # The way back

    async def verify(self, backup: Backup) -> None:
        """BackupDamaged unless every part is there, as it was written."""
        for part in backup.parts:
            await self._read(part)

    async def rebuild(self, backup: Backup, target: RestoreTarget) -> None:
        """Build a store from a backup. Each part is checked before it is used."""
        for segment in backup.segments:
            count = await asyncio.to_thread(target.add_entries, await self._unpacked(segment))
            if count != segment.entries:
                raise BackupDamaged(f"{segment.key} has {count} entries, {segment.entries} were written")
            self._say(f"{segment.key}: {count:,} entries")
        await asyncio.to_thread(target.set_rest, await self._unpacked(backup.state))

    async def _unpacked(self, part: Part) -> bytes:
        return await asyncio.to_thread(gzip.decompress, await self._read(part))

    async def _read(self, part: Part) -> bytes:
        try:
            data = await self._objects.read(part.key)
        except ObjectMissing as error:
            raise BackupDamaged(str(error)) from error
        check_part(part, data)
        return data


def _end_of(segments: Sequence[Segment]) -> int:
    return segments[-1].through if segments else 0


def _packed(part: bytes) -> bytes:
    """The same rows give the same bytes, so that a repeated backup finds its segments there."""
    return gzip.compress(part, COMPRESSION_LEVEL, mtime=0)


def described(backups: Sequence[Backup]) -> list[tuple[str, str, str, str, str]]:
    """A line for each, the newest first."""
    return [
        (one.backup_id, one.made_at, f"{one.chats:,}", f"{one.entries:,}", f"{one.size_bytes:,}")
        for one in reversed(backups)
    ]
