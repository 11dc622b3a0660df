"""The bytes of attachments in a backup: every part of every file that its snapshot has.

They lie there under the names that they have at their own place, below a prefix: whoever wants to put them
elsewhere copies the folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256

from msgspec import Struct

from parley.backup.copied_objects import create_part, sizes_at
from parley.backup.manifests import FILE_LISTS, FILES, Part, digest
from parley.core.attachments import part_key, part_sizes
from parley.errors import ConfigError, ParleyError
from parley.objects.ports import ObjectMissing, Objects
from parley.store.backup import StoredFile

NO_TARGET = (
    "this store has files, and the configuration does not say where their bytes are: set attachments.target"
    " as the server has it, or leave them out with --no-files"
)

Say = Callable[[str], None]


def files_key(backup_id: str) -> str:
    return f"{FILE_LISTS}{backup_id}.json.gz"


class FileDamaged(ParleyError):
    """The bytes of a file are not those that were uploaded."""


class FilesInBackup(Struct, frozen=True):
    """What a backup holds of files. `lacking`: those that it should have, and whose bytes were not found."""

    parts: list[Part]
    count: int
    lacking: frozenset[str]

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts)


class FileCopies:
    """`kept`: where backups are. `files`: where the bytes of attachments are, None if nobody said it."""

    def __init__(self, kept: Objects, files: Objects | None, say: Say) -> None:
        self._kept = kept
        self._files = files
        self._say = say

    async def keep(self, files: Sequence[StoredFile], copied: Mapping[str, Part]) -> FilesInBackup:
        """Copy what is not there yet; each file is checked, and each part read back.

        `copied`: parts that an earlier backup has, by key. A file whose bytes are lost, or are not those that
        were uploaded, is left out. One that is being removed may have lost them already.
        """
        there = await sizes_at(self._kept, FILES) if files else {}
        parts: list[Part] = []
        count, lacking = 0, set()
        for file in files:
            try:
                parts += _known(file, copied, there) or await self._copy(file)
                count += 1
            except (ObjectMissing, FileDamaged) as problem:
                if not file.is_going:
                    lacking.add(file.attachment_id)
                    self._say(f"left out: {problem}")
        return FilesInBackup(parts, count, frozenset(lacking))

    async def _copy(self, file: StoredFile) -> list[Part]:
        """Read it first: a part that was written stays, so it must be right."""
        place = self._place
        parts, whole = [], sha256()
        for number in range(len(part_sizes(file.size))):
            data = await place.read(part_key(file.attachment_id, number))
            whole.update(data)
            key = FILES + part_key(file.attachment_id, number)
            parts.append(Part(key=key, size_bytes=len(data), sha256=digest(data)))
        if whole.hexdigest() != file.sha256:
            raise FileDamaged(f"{place.where} has other bytes of {file.attachment_id} than were uploaded")
        for part in parts:
            await create_part(self._kept, part, part.key, await place.read(part.key.removeprefix(FILES)))
        self._say(f"{FILES}{file.attachment_id}: {file.size:,} bytes")
        return parts

    @property
    def _place(self) -> Objects:
        if self._files is None:
            raise ConfigError(NO_TARGET)
        return self._files

    def refuse_wrong_place(self, kept: FilesInBackup) -> None:
        """ConfigError if it has none of the files: this is not where the server keeps them."""
        if kept.lacking and not kept.count:
            raise ConfigError(
                f"{self._place.where} has none of the {len(kept.lacking):,} files of this store: set"
                " attachments.target as the server has it, or leave them out with --no-files"
            )


def _known(file: StoredFile, copied: Mapping[str, Part], there: Mapping[str, int]) -> list[Part]:
    """The parts of a file that an earlier backup has whole; none if it has not."""
    parts = []
    for number, size in enumerate(part_sizes(file.size)):
        part = copied.get(FILES + part_key(file.attachment_id, number))
        if part is None or part.size_bytes != size or there.get(part.key) != size:
            return []
        parts.append(part)
    return parts
