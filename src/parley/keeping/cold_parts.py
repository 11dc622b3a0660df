"""The cold tier in a backup: every object that the store's marks name. Each is copied once: none changes.

A restored store owns its archive. An archive that it shared with the old server would be swept by both, and
after the next run of the archiver it would no longer hold what an older backup needs.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import Callable, Iterable, Mapping

import msgspec

from parley.archive.archiver import checked
from parley.archive.manifest import decode_manifest, manifest_name
from parley.errors import ConfigError
from parley.keeping.manifests import ARCHIVES, COLD, BackupDamaged, Part, check_part
from parley.objects.ports import ObjectExists, ObjectMissing, Objects
from parley.store.rows import ArchiveMark

NO_ARCHIVE = (
    "this store has archived entries, and the configuration does not say where: set archive.target, so that"
    " the backup holds them, too"
)
NO_PLACE = "the backup holds archived entries: set archive.target to where they shall be restored"

Say = Callable[[str], None]
decode_list = msgspec.json.Decoder(list[Part]).decode


def archive_key(backup_id: str) -> str:
    return f"{ARCHIVES}{backup_id}.json.gz"


def packed_list(parts: Iterable[Part]) -> bytes:
    return gzip.compress(msgspec.json.encode(list(parts)), mtime=0)


def unpacked_list(part: Part, data: bytes) -> list[Part]:
    """BackupDamaged unless it is a list of objects of the cold tier."""
    try:
        found = decode_list(gzip.decompress(data))
    except (OSError, EOFError, msgspec.DecodeError) as error:
        raise BackupDamaged(f"{part.key} cannot be read: {error}") from error
    for one in found:
        if not one.key.startswith(COLD):
            raise BackupDamaged(f"{part.key} names {one.key}, which is no object of the cold tier")
    return found


class ColdParts:
    """`kept`: where backups are. `cold`: the cold tier of the store, None if it has none."""

    def __init__(self, kept: Objects, cold: Objects | None, say: Say) -> None:
        self._kept = kept
        self._cold = cold
        self._say = say

    async def keep(self, marks: Mapping[str, ArchiveMark]) -> list[Part]:
        """Copy what these marks name and is not there yet; each object is checked, and read back.

        ObjectMissing if one is gone: the archive was rewritten after the marks were read. SegmentDamaged if
        one is not what it was.
        """
        if marks and self._cold is None:
            raise ConfigError(NO_ARCHIVE)
        there = {stored.key: stored.size_bytes for stored in await self._kept.find(COLD)} if marks else {}
        parts: list[Part] = []
        for chat_id, mark in marks.items():
            parts += await self._keep_chat(chat_id, mark, there)
        return parts

    async def _keep_chat(self, chat_id: str, mark: ArchiveMark, there: Mapping[str, int]) -> list[Part]:
        assert self._cold is not None
        name = manifest_name(chat_id, mark.version, mark.manifest)
        data = await self._cold.read(name)
        manifest = decode_manifest(data, mark)
        parts = [Part(key=COLD + name, size_bytes=len(data), sha256=mark.manifest)]
        await self._copy(parts[0], data, there)
        for segment in manifest.segments:
            part = Part(key=COLD + segment.name, size_bytes=segment.bytes, sha256=segment.digest)
            if there.get(part.key) != part.size_bytes:
                data = await self._cold.read(segment.name)
                await asyncio.to_thread(checked, segment, data)
                await self._copy(part, data, there)
                self._say(f"{part.key}: {segment.entries:,} archived entries, {part.size_bytes:,} bytes")
            parts.append(part)
        return parts

    async def _copy(self, part: Part, data: bytes, there: Mapping[str, int]) -> None:
        if there.get(part.key) != part.size_bytes:
            await _create(self._kept, part, part.key, data)

    def require_place(self) -> Objects:
        if self._cold is None:
            raise ConfigError(NO_PLACE)
        return self._cold

    async def put_back(self, parts: Iterable[Part]) -> int:
        """Write the objects to the cold tier, each checked and read back; returns how many. May be repeated.

        BackupDamaged if one of this name is there, and is another.
        """
        count = 0
        for part in parts:
            cold = self.require_place()
            await _create(cold, part, part.key.removeprefix(COLD), await self.read(part))
            count += 1
        return count

    async def read(self, part: Part) -> bytes:
        try:
            data = await self._kept.read(part.key)
        except ObjectMissing as error:
            raise BackupDamaged(str(error)) from error
        check_part(part, data)
        return data


async def _create(objects: Objects, part: Part, key: str, data: bytes) -> None:
    with contextlib.suppress(ObjectExists):  # of an earlier attempt; what it is, is looked at now
        await objects.create(key, data)
    check_part(part, await objects.read(key))
