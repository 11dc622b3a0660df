"""`parley archive verify`: reads every object of an archive, and names each that is not what it was."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec
from msgspec import Struct

from parley.archive.archiver import checked
from parley.archive.manifest import SegmentEntry, decode_manifest, folder_of, manifest_name
from parley.archive.segment import CHAIN_START, ArchivedEntry, SegmentDamaged, header_of
from parley.archive.tiers import rows_of
from parley.objects.ports import ObjectMissing, Objects
from parley.store.maintenance import Inspection
from parley.store.ports import Entries, Log
from parley.store.rows import ArchiveMark
from parley.wire.limits import PAGE_ENTRIES_MAX


class ArchiveFault(Struct, frozen=True):
    """What is wrong with one object of a chat's archive."""

    chat_id: str
    name: str
    says: str


class Verification(Struct):
    """What was read, and what is wrong with it."""

    chats: int = 0
    segments: int = 0
    entries: int = 0
    erased: int = 0
    bytes: int = 0
    faults: list[ArchiveFault] = msgspec.field(default_factory=list)


class ArchiveVerifier:
    """Changes nothing. `hot` is the engine's own log: what is in both tiers must be the same."""

    def __init__(self, hot: Log, tier: Entries, inspection: Inspection, objects: Objects) -> None:
        self._hot = hot
        self._tier = tier
        self._inspection = inspection
        self._objects = objects

    async def run(
        self, chat_ids: Sequence[str] | None = None, tell: Callable[[Verification], None] = lambda _: None
    ) -> Verification:
        """Verify every archive, or those of these chats."""
        found = Verification()
        async for page in self._inspection.chats(chat_ids):
            marks = await self._tier.marks([chat.chat_id for chat in page])
            for chat_id, mark in marks.items():
                if mark.version:
                    async for fault in self._verify(chat_id, mark, found):
                        found.faults.append(fault)
                    found.chats += 1
                    tell(found)
        return found

    async def _verify(
        self, chat_id: str, mark: ArchiveMark, found: Verification
    ) -> AsyncIterator[ArchiveFault]:
        name = manifest_name(chat_id, mark.version, mark.manifest)
        try:
            manifest = decode_manifest(await self._objects.read(name), mark)
        except ObjectMissing:
            yield ArchiveFault(chat_id, name, await self._why_missing(chat_id, mark))
            return
        except SegmentDamaged as error:
            yield ArchiveFault(chat_id, name, str(error))
            return
        if not mark.trimmed_through <= mark.archived_through == manifest.through:
            says = f"it ends at {manifest.through}, but the store says {mark.archived_through}"
            yield ArchiveFault(chat_id, name, says)
        chain = CHAIN_START
        for segment in manifest.segments:
            try:
                entries = await self._segment(segment, chain)
            except SegmentDamaged as error:
                yield ArchiveFault(chat_id, segment.name, str(error))
            else:
                found.entries += len(entries)
                found.erased += sum(entry.erased is not None for entry in entries)
                if (differs := await self._differing(chat_id, mark, entries)) is not None:
                    yield ArchiveFault(
                        chat_id, segment.name, f"the entry at {differs} is another in the store"
                    )
            chain = bytes.fromhex(segment.chain)
            found.segments += 1
            found.bytes += segment.bytes

    async def _why_missing(self, chat_id: str, mark: ArchiveMark) -> str:
        """A manifest that is older than the recorded one is not read, and is worth to be told."""
        versions = [0]
        for stored in await self._objects.find(f"{folder_of(chat_id)}/"):
            label, _, rest = stored.key.rpartition("/")[2].partition("-")
            if label == "manifest":
                versions.append(int(rest.partition("-")[0]))
        if max(versions):
            return (
                f"manifest {mark.version} is missing; the newest there is {max(versions)}:"
                " an old state of the cold store was put back"
            )
        return f"manifest {mark.version} is missing, and there is no other"

    async def _segment(self, segment: SegmentEntry, previous: bytes) -> list[ArchivedEntry]:
        try:
            data = await self._objects.read(segment.name)
        except ObjectMissing as error:
            raise SegmentDamaged(f"it is missing: {segment.first} to {segment.last} are lost") from error
        entries = await asyncio.to_thread(checked, segment, data)
        if header_of(data).previous != previous.hex():
            raise SegmentDamaged("its chain does not continue that of the segment before")
        return entries

    async def _differing(self, chat_id: str, mark: ArchiveMark, entries: list[ArchivedEntry]) -> int | None:
        """The first entry that is in both tiers, and is not the same there."""
        both = {one.sequence: one.wire for one in entries if one.sequence > mark.trimmed_through}
        after = min(both, default=1) - 1
        while both and after < max(both):
            page = await self._hot.read(chat_id, after, PAGE_ENTRIES_MAX)
            for sequence, wire in rows_of(page):
                if sequence in both and both[sequence] != wire:
                    return sequence
            if page.to_sequence == after:
                return after + 1
            after = page.to_sequence
        return None
