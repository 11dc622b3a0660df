"""The cold tier in a backup: every object that the store's marks name. Each is copied once: none changes.

A restored store owns its archive. An archive that it shared with the old server would be swept by both, and
after the next run of the archiver it would no longer hold what an older backup needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from parley.archive.archiver import checked
from parley.archive.manifest import decode_manifest, manifest_name
from parley.backup.copied_objects import create_part, put_back, sizes_at
from parley.backup.manifests import ARCHIVES, COLD, Part
from parley.errors import ConfigError
from parley.objects.ports import Objects
from parley.store.rows import ArchiveMark

NO_ARCHIVE = (
    "this store has archived entries, and the configuration does not say where: set archive.target, so that"
    " the backup holds them, too"
)
NO_PLACE = "the backup holds archived entries: set archive.target to where they shall be restored"

Say = Callable[[str], None]


def archive_key(backup_id: str) -> str:
    return f"{ARCHIVES}{backup_id}.json.gz"


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
        there = await sizes_at(self._kept, COLD) if marks else {}
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
            await create_part(self._kept, part, part.key, data)

    def require_place(self) -> Objects:
        if self._cold is None:
            raise ConfigError(NO_PLACE)
        return self._cold

    async def put_back(self, parts: Iterable[Part]) -> int:
        """Write the objects to the cold tier; returns how many. May be repeated."""
        return await put_back(self._kept, parts, COLD, self.require_place())
