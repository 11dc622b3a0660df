"""Moves old entries to the cold tier: upload, verify by reading back, record, trim, in this order.

Each step may be repeated, and the process may die between any two:

    uploaded, not recorded     an object that nobody names; swept after a day
    recorded, not trimmed      the entries are in both tiers; the next run verifies again, and trims
    trimmed, not swept         what was replaced is left behind; swept later

Two archivers at once are harmless: each upload has its own name, and of two new manifests one is recorded.
An entry is trimmed only when every consumer has it, and the newest entry of a chat stays: overviews show it.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256

import msgspec
import structlog
from msgspec import Struct

from parley.archive.manifest import (
    SEGMENT_ENTRIES_MAX,
    SEGMENT_RAW_BYTES_MAX,
    SEGMENT_SUFFIX,
    ArchiveManifest,
    SegmentEntry,
    encode_manifest,
    folder_of,
    listed,
    manifest_name,
    merged_from,
)
from parley.archive.reader import ArchiveReader
from parley.archive.segment import (
    CHAIN_START,
    ArchivedEntry,
    SegmentDamaged,
    SegmentIndex,
    check_segment,
    encode_segment,
)
from parley.archive.tiers import rows_of
from parley.clock import MS_PER_DAY, Clock, from_iso
from parley.errors import StoreError
from parley.objects.ports import ObjectExists, ObjectMissing, Objects, StoredObject
from parley.store.maintenance import Inspection
from parley.store.ports import Entries, Log
from parley.store.rows import ArchiveMark
from parley.telemetry import Metrics
from parley.wire.limits import PAGE_ENTRIES_MAX

UPLOAD_ID_BYTES = 4
ORPHAN_MS_MIN = MS_PER_DAY
"""An object that no manifest names may be of an archiver that is still at work, until it is this old."""
log = structlog.get_logger("parley.archive")


class ArchiveProgress(Struct):
    """What a run has done so far. `failed`: the chats that it could not archive, and why."""

    chats: int = 0
    archived_chats: int = 0
    entries: int = 0
    bytes: int = 0
    trimmed: int = 0
    failed: dict[str, str] = msgspec.field(default_factory=dict)


class CreatedAt(Struct, gc=False):
    created_at: str


decode_created_at = msgspec.json.Decoder(CreatedAt).decode
OnProgress = Callable[[ArchiveProgress], None]
NeededFrom = Callable[[str], Awaitable[int]]
"""The lowest position of a chat that consumers have not done, as `Entries.needed_from`."""


def nothing_told(_: ArchiveProgress) -> None:
    """For a run without a display."""


class Archiver:
    """`log` is the engine's own: what it has is what must be archived.

    `consumers`: those of which the engine does not know, because their offsets are elsewhere.
    """

    def __init__(
        self,
        log_of_engine: Log,
        tier: Entries,
        inspection: Inspection,
        objects: Objects,
        reader: ArchiveReader,
        *,
        clock: Clock,
        metrics: Metrics,
        after_days: int,
        consumers: Sequence[NeededFrom] = (),
        fault_point: Callable[[str], None] = lambda _: None,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._random_bytes = random_bytes
        self._log = log_of_engine
        self._tier = tier
        self._inspection = inspection
        self._objects = objects
        self._reader = reader
        self._clock = clock
        self._metrics = metrics
        self._after_ms = after_days * MS_PER_DAY
        self._consumers = consumers
        self._fault_point = fault_point
        self._replaced: list[str] = []
        """Objects that a newer manifest no longer names, to be deleted."""

    async def run(
        self, chat_ids: Sequence[str] | None = None, tell: OnProgress = nothing_told
    ) -> ArchiveProgress:
        """Archive what is old enough, of every chat or of these. A chat that fails delays no other."""
        progress = ArchiveProgress()
        async for page in self._inspection.chats(chat_ids):
            for chat in page:
                try:
                    await self.archive_chat(chat.chat_id, progress)
                except StoreError as error:
                    progress.failed[chat.chat_id] = str(error)
                    self._metrics.archive_failures.inc()
                    now = asyncio.get_running_loop().time()
                    if (more := self._metrics.lines.admit("archive", now)) is not None:
                        log.error(
                            "a chat could not be archived", chat_id=chat.chat_id, reason=str(error), **more
                        )
                progress.chats += 1
                tell(progress)
        return progress

    async def archive_chat(self, chat_id: str, progress: ArchiveProgress) -> None:
        mark = (await self._tier.marks([chat_id])).get(chat_id)
        if mark is None:
            return
        await self._trim(chat_id, mark, progress)
        is_new = False
        while entries := await self._eligible(chat_id, mark.archived_through):
            new = await self._write(chat_id, mark, entries)
            if new is None:
                return  # another archiver was faster: the rest is its
            progress.entries += len(entries)
            self._metrics.archived_entries.inc(len(entries))
            await self._trim(chat_id, new, progress)
            is_new, mark = True, (await self._tier.marks([chat_id]))[chat_id]
        if is_new:
            progress.archived_chats += 1
            progress.bytes += await self.sweep(chat_id)
            self._fault_point("archive_after_sweep")

    # What is old enough

    async def _eligible(self, chat_id: str, after: int) -> list[ArchivedEntry]:
        """The next entries for one segment: old enough, and not the newest of the chat."""
        oldest_kept_ms = self._clock() - self._after_ms
        found: list[ArchivedEntry] = []
        raw_bytes, is_followed = 0, False
        while len(found) < SEGMENT_ENTRIES_MAX and raw_bytes < SEGMENT_RAW_BYTES_MAX and not is_followed:
            page = await self._log.read(chat_id, after + len(found), PAGE_ENTRIES_MAX)
            rows = rows_of(page)
            if not rows:
                break
            for sequence, wire in rows:
                if wire is not None and from_iso(decode_created_at(wire).created_at) > oldest_kept_ms:
                    is_followed = True
                    break
                found.append(ArchivedEntry(sequence, wire))
                raw_bytes += len(wire or b"")
            await asyncio.sleep(0)
        if not is_followed:
            newest = max((place for place, one in enumerate(found) if one.wire is not None), default=0)
            found = found[:newest]
        return found[:SEGMENT_ENTRIES_MAX]

    # Upload, verify, record

    async def _write(
        self, chat_id: str, mark: ArchiveMark, entries: list[ArchivedEntry]
    ) -> ArchiveMark | None:
        """The new mark; None if another archiver has changed the archive meanwhile."""
        try:
            manifest = await self._reader.manifest(chat_id, mark)
            merged = merged_from(manifest, len(entries), sum(len(one.wire or b"") for one in entries))
            kept = manifest.segments[: len(manifest.segments) - merged]
            before = [await self.segment(one) for one in manifest.segments[len(kept) :]]
        except ObjectMissing:
            if await self._is_overtaken(chat_id, mark):
                return None
            raise
        together = [entry for part in before for entry in part] + entries
        segment = await self.upload(chat_id, together, kept)
        new = await self.record(chat_id, mark, manifest, [*kept, segment])
        if new is None:  # it may hold what was erased meanwhile
            await self._objects.delete(segment.name)
        return new

    async def _is_overtaken(self, chat_id: str, mark: ArchiveMark) -> bool:
        now = (await self._tier.marks([chat_id])).get(chat_id, ArchiveMark())
        return now.version != mark.version

    async def segment(self, segment: SegmentEntry) -> list[ArchivedEntry]:
        """All of a segment, every byte checked."""
        return await asyncio.to_thread(checked, segment, await self._objects.read(segment.name))

    async def upload(
        self, chat_id: str, entries: list[ArchivedEntry], before: Sequence[SegmentEntry]
    ) -> SegmentEntry:
        """Write a segment behind these, and read it back."""
        previous = bytes.fromhex(before[-1].chain) if before else CHAIN_START
        encoded = await asyncio.to_thread(encode_segment, chat_id, entries, previous)
        segment = listed(encoded, self._random_bytes(UPLOAD_ID_BYTES).hex())
        self._fault_point("archive_before_upload")
        await self._create(segment.name, encoded.data)
        self._fault_point("archive_after_upload")
        self._metrics.archived_bytes.inc(segment.bytes)
        return segment

    async def _create(self, name: str, data: bytes) -> None:
        """An object with this content, as reading it back shows. A damaged one of this name is replaced."""
        with contextlib.suppress(ObjectExists):
            await self._objects.create(name, data)
        if await self._objects.read(name) == data:
            return
        await self._objects.delete(name)
        await self._objects.create(name, data)
        if await self._objects.read(name) != data:
            raise SegmentDamaged(f"{name} is not what was written: the cold store cannot be trusted")

    async def record(
        self, chat_id: str, mark: ArchiveMark, manifest: ArchiveManifest, segments: list[SegmentEntry]
    ) -> ArchiveMark | None:
        """Make these the segments of the chat; None if another archiver was faster."""
        version = mark.version + 1
        new = ArchiveManifest(chat_id=chat_id, version=version, segments=segments, previous=mark.manifest)
        data, digest = encode_manifest(new)
        await self._create(manifest_name(chat_id, version, digest), data)
        self._fault_point("archive_before_record")
        recorded = ArchiveMark(
            archived_through=new.through,
            trimmed_through=mark.trimmed_through,
            version=version,
            manifest=digest,
        )
        if not await self._tier.record(chat_id, recorded):
            return None
        self._reader.forget(chat_id)
        self._fault_point("archive_after_record")
        names = {one.name for one in segments}
        self._replaced += [one.name for one in manifest.segments if one.name not in names]
        if mark.version:
            self._replaced.append(manifest_name(chat_id, mark.version, mark.manifest))
        return recorded

    # Trim

    async def _trim(self, chat_id: str, mark: ArchiveMark, progress: ArchiveProgress) -> None:
        """Remove from the engine what is archived and every consumer has. Reads it back once more before.

        Only now is it certain that no sweep has taken a segment for an orphan: it is named by a manifest.
        """
        if mark.is_trimming:
            await self._tier.trim(chat_id, mark.trimmed_through)
        needed_from = [self._tier.needed_from, *self._consumers]
        through = mark.archived_through
        for look in needed_from:  # the engine first: what it has published is there for those that follow
            if through > mark.trimmed_through:
                through = min(through, await look(chat_id) - 1)
        if through <= mark.trimmed_through:
            return
        manifest = await self._reader.manifest(chat_id, mark)
        for segment in manifest.spanning(mark.trimmed_through + 1, through):
            await self.segment(segment)
        self._fault_point("archive_before_trim")
        await self._tier.trim(chat_id, through)
        self._fault_point("archive_after_trim")
        progress.trimmed += through - mark.trimmed_through

    # Sweep

    async def manifest(self, chat_id: str, mark: ArchiveMark) -> ArchiveManifest:
        """The manifest that a mark names."""
        return await self._reader.manifest(chat_id, mark)

    async def index(self, segment: SegmentEntry) -> SegmentIndex:
        """The index of a segment."""
        return await self._reader.index(segment)

    async def discard(self, segments: Sequence[SegmentEntry]) -> None:
        """What was uploaded and not recorded: it may hold what another node has removed meanwhile."""
        for segment in segments:
            await self._objects.delete(segment.name)

    async def sweep(
        self, chat_id: str, must_go: Callable[[list[ArchivedEntry]], bool] = lambda _: False
    ) -> int:
        """Delete what was replaced, and orphans that are old enough. Returns the bytes that are left.

        Readers that had the older manifest find an object missing, and look for the newer one. `must_go`:
        which orphans are deleted however young they are.
        """
        replaced, self._replaced = set(self._replaced), []
        mark = (await self._tier.marks([chat_id]))[chat_id]
        manifest = await self._reader.manifest(chat_id, mark)
        named = {one.name for one in manifest.segments}
        named.add(manifest_name(chat_id, mark.version, mark.manifest))
        left = 0
        for stored in await self._objects.find(f"{folder_of(chat_id)}/"):
            is_old = stored.modified_ms <= self._clock() - ORPHAN_MS_MIN
            is_orphan = stored.key not in named
            if is_orphan and (is_old or stored.key in replaced or await self._is_chosen(stored, must_go)):
                await self._objects.delete(stored.key)
            else:
                left += stored.size_bytes
        return left

    async def _is_chosen(self, stored: StoredObject, must_go: Callable[[list[ArchivedEntry]], bool]) -> bool:
        """Whether an orphan is a segment with what must go; one that cannot be read goes, too."""
        if not stored.key.endswith(SEGMENT_SUFFIX):
            return False
        try:
            _, _, entries = check_segment(await self._objects.read(stored.key))
        except (SegmentDamaged, ObjectMissing):
            return True
        return must_go(entries)


def checked(segment: SegmentEntry, data: bytes) -> list[ArchivedEntry]:
    """The entries of a segment, if it is the one that its manifest names; SegmentDamaged otherwise."""
    if len(data) < segment.bytes:
        raise SegmentDamaged(f"{segment.name} is cut off: {len(data)} of {segment.bytes} bytes")
    try:
        header, index, entries = check_segment(data)
    except SegmentDamaged as error:
        raise SegmentDamaged(f"{segment.name}: {error}") from error
    if sha256(data).hexdigest() != segment.digest or index.chain != segment.chain:
        raise SegmentDamaged(
            f"{segment.name} was swapped: it holds {header.first} to {header.last} of {header.chat_id}"
        )
    return entries
