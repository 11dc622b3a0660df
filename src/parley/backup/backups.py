"""Backups of a store to an object store, and the way back.

Nothing that a backup refers to is ever changed, and its manifest is written last. So a crash at any point
leaves the backups before it as they were, and of two at the same time each is whole.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Mapping, Sequence

from parley.backup.cold_parts import ColdParts, archive_key
from parley.backup.copied_objects import packed_list, put_back, read_part, unpacked_list
from parley.backup.file_copies import FileCopies, FilesInBackup, files_key
from parley.backup.manifests import (
    COLD,
    FILES,
    FORMAT,
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
    runs,
)
from parley.errors import ParleyError, StoreUnavailable
from parley.objects.ports import ObjectExists, ObjectMissing, Objects
from parley.store.backup import BackupSource, EntryRange, RestoreTarget, SnapshotParts

COMPRESSION_LEVEL = 3
"""Nearly as small as 6, in a third of the time."""
POSITION_DIGITS = 19
KEY_DIGEST_CHARS = 16
SNAPSHOTS_MAX = 5
"""An archive that was rewritten since the snapshot needs a newer one; so often at most."""

Say = Callable[[str], None]


class NoBackup(ParleyError):
    """There is no backup here, or not the one that was asked for."""


class Backups:
    """The backups in one object store. `cold`: the cold tier of the store that is backed up or restored.

    `files`: where it has the bytes of attachments.
    """

    def __init__(
        self, objects: Objects, say: Say, cold: Objects | None = None, files: Objects | None = None
    ) -> None:
        self._objects = objects
        self._say = say
        self._cold = ColdParts(objects, cold, say)
        self._files = files
        self._copies = FileCopies(objects, files, say)

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
        self,
        source: BackupSource,
        backup_id: str,
        made_at: str,
        parley: str,
        *,
        is_full: bool,
        has_files: bool = True,
    ) -> Backup:
        """Write what is new since the last backup of the same store, and verify it by reading it back.

        `has_files`: with the bytes of attachments. ConfigError if they are not where the configuration says.
        """
        number = source.last_rewrite()
        base = None if is_full or number is None else await self._base(source)
        rewrites = number or 0
        segments = await self._current(source, base) if base is not None else []
        while (full := await asyncio.to_thread(source.entries, _end_of(segments))) is not None:
            segments.append(await self._keep_segment(*full))
        copied = {} if is_full or not has_files else await self._copied()
        rest, archived, files = await self._rest(
            source, _end_of(segments), rewrites, copied if has_files else None
        )
        if rest.entries.entries:
            segments.append(await self._keep_segment(rest.entries, rest.entries_part))
        state, packed = rest.state, await asyncio.to_thread(_packed, rest.state_part)
        part = await self._keep(f"{STATES}{backup_id}.db.gz", packed)
        listed = await self._keep(archive_key(backup_id), packed_list(archived)) if archived else None
        has_parts = bool(files.parts)
        file_list = await self._keep(files_key(backup_id), packed_list(files.parts)) if has_parts else None
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
            rewrites=rewrites,
            archive=listed,
            archived_entries=sum(mark.trimmed_through for mark in state.marks.values()),
            archive_bytes=sum(one.size_bytes for one in archived),
            files=file_list,
            file_count=files.count,
            file_bytes=files.size_bytes,
            files_lacking=len(files.lacking),
        )
        await self._keep(manifest_key(backup_id), encode_manifest(backup))
        return backup

    async def _rest(
        self, source: BackupSource, after: int, since: int, copied: Mapping[str, Part] | None
    ) -> tuple[SnapshotParts, list[Part], FilesInBackup]:
        """A snapshot, and the archive and the files that belong to it.

        A file that is gone was removed after the snapshot, which a newer one tells, or is lost. `copied`:
        what an earlier backup has of them; None for a backup without their bytes.
        """
        gone, lacking = "", frozenset[str]()
        for attempt in range(SNAPSHOTS_MAX):
            rest = await asyncio.to_thread(source.rest, after, since)
            known = rest.state.files
            try:
                archived = await self._cold.keep(rest.state.marks)
            except ObjectMissing as missing:
                gone = str(missing)
                continue
            if copied is None:
                return rest, archived, FilesInBackup([], 0, frozenset(file.attachment_id for file in known))
            files = await self._copies.keep(known, copied)
            if files.lacking <= lacking or attempt == SNAPSHOTS_MAX - 1:
                self._copies.refuse_wrong_place(files)
                return rest, archived, files
            lacking = files.lacking
            copied = {**copied, **{part.key: part for part in files.parts}}
        raise StoreUnavailable(f"the archive is not what the store says, or is being rewritten: {gone}")

    async def _copied(self) -> dict[str, Part]:
        """The parts of files that the newest backup with files has, by key."""
        for backup in reversed(await self.all()):
            try:
                if backup.files is not None:
                    return {part.key: part for part in await self._listed(backup.files, FILES)}
            except BackupDamaged as damage:
                self._say(f"every file is compared: {damage}")
        return {}

    async def _current(self, source: BackupSource, base: Backup) -> list[Segment]:
        """The segments of a base, those written anew in which entries were changed or removed since."""
        changed = source.rewritten(base.rewrites)
        segments: list[Segment] = []
        for run in runs(base.segments, changed):
            if run.is_current:
                segments += run.segments
                continue
            after, through = run.segments[0].after, run.segments[-1].through
            while after < through:
                entries, part = await asyncio.to_thread(source.stretch, after, through)
                segments.append(await self._keep_segment(entries, part))
                after = entries.through
        return segments

    async def _base(self, source: BackupSource) -> Backup | None:
        """The newest backup that the store continues: it has the same entries where that one ended."""
        found = [(stored.key, stored.size_bytes) for stored in await self._objects.find(SEGMENTS)]
        for backup in reversed(await self.all()):
            if backup.format < FORMAT or not backup.segments or not has_all(backup, found):
                continue
            if source.tail(backup.through) == backup.tail:
                return backup
        return None

    async def _keep_segment(self, entries: EntryRange, part_data: bytes) -> Segment:
        data = await asyncio.to_thread(_packed, part_data)
        place = f"{entries.after:0{POSITION_DIGITS}}-{entries.through:0{POSITION_DIGITS}}"
        part = await self._keep(f"{SEGMENTS}{place}-{digest(data)[:KEY_DIGEST_CHARS]}.db.gz", data)
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
        for part in await self.every_part(backup):
            await self._read(part)

    async def every_part(self, backup: Backup) -> list[Part]:
        """Each object of a backup but its manifest, with those of the cold tier and of files."""
        archived = await self._listed(backup.archive, COLD)
        return [*backup.parts, *archived, *await self._listed(backup.files, FILES)]

    async def rebuild(self, backup: Backup, target: RestoreTarget, *, puts_files: bool = True) -> None:
        """Build a store from a backup. Each part is checked before it is used.

        ConfigError if there is no place for its archive. `puts_files`: with the bytes of attachments, if
        there is a place for them.
        """
        if backup.archive is not None:
            self._cold.require_place()
        for segment in backup.segments:
            count = await asyncio.to_thread(target.add_entries, await self._unpacked(segment))
            if count != segment.entries:
                raise BackupDamaged(f"{segment.key} has {count} entries, {segment.entries} were written")
            self._say(f"{segment.key}: {count:,} entries")
        await asyncio.to_thread(target.set_rest, await self._unpacked(backup.state))
        if backup.archive is not None:
            restored = await self._cold.put_back(await self._listed(backup.archive, COLD))
            self._say(f"{restored:,} objects of the cold tier")
        if backup.files is not None and puts_files and self._files is not None:
            parts = await self._listed(backup.files, FILES)
            restored = await put_back(self._objects, parts, FILES, self._files)
            self._say(f"{restored:,} parts of {backup.file_count:,} files")

    async def _listed(self, part: Part | None, prefix: str) -> list[Part]:
        return unpacked_list(part, await self._read(part), prefix) if part is not None else []

    async def _unpacked(self, part: Part) -> bytes:
        return await asyncio.to_thread(gzip.decompress, await self._read(part))

    async def _read(self, part: Part) -> bytes:
        return await read_part(self._objects, part)


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
