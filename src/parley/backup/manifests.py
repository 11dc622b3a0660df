"""What a backup is made of, as a document that says how to check each part of it. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from itertools import groupby

import msgspec
from msgspec import Struct

from parley.errors import ParleyError

FORMAT = 2
FORMATS_READ = (1, 2)
"""A backup of format 1 knows nothing of archives, and is never the base of another."""
MANIFESTS = "backups/"
SEGMENTS = "segments/"
STATES = "states/"
ARCHIVES = "archives/"
COLD = "cold/"
FILE_LISTS = "file_lists/"
FILES = "files/"
"""Where each kind of object is in a target."""


class BackupDamaged(ParleyError):
    """An object of a backup is missing, or is not what was written."""


class Part(Struct, frozen=True, kw_only=True):
    """An object of a backup. `sha256`: of its bytes, as they are in the object store."""

    key: str
    size_bytes: int
    sha256: str


class Segment(Part, frozen=True, kw_only=True):
    """Entries in commit order: those after one position, up to another."""

    after: int
    through: int
    entries: int


class Backup(Struct, frozen=True, kw_only=True):
    """One backup, whole by itself: its segments may be shared with earlier ones.

    `tail`: a digest of the store's last entries up to `through`, by which a later backup recognises the same
    store. `based_on`: the backup whose segments it shares, if any. `rewrites`: the number of the store's last
    change of older entries that its segments have. `archive`: the list of the objects of the cold tier.
    `files`: that of the parts of attachments. `files_lacking`: attachments that the store knows, and whose
    bytes the backup has not.
    """

    backup_id: str
    made_at: str
    parley: str
    schema_version: int
    chats: int
    people: int
    tail: str
    segments: tuple[Segment, ...]
    state: Part
    based_on: str = ""
    rewrites: int = 0
    archive: Part | None = None
    archived_entries: int = 0
    archive_bytes: int = 0
    files: Part | None = None
    file_count: int = 0
    file_bytes: int = 0
    files_lacking: int = 0
    format: int = FORMAT

    @property
    def through(self) -> int:
        return self.segments[-1].through if self.segments else 0

    @property
    def entries(self) -> int:
        return sum(segment.entries for segment in self.segments)

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts) + self.archive_bytes + self.file_bytes

    @property
    def parts(self) -> tuple[Part, ...]:
        lists = [one for one in (self.archive, self.files) if one is not None]
        return (*self.segments, self.state, *lists)


class FoundBackups(Struct, frozen=True):
    """The backups at a target, the oldest first, and what is wrong with those that cannot be read."""

    backups: list[Backup]
    damaged: list[str]


class Manifest(Struct):
    """A backup as it is stored: its JSON, and the checksum of that."""

    sha256: str
    backup: msgspec.Raw


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def manifest_key(backup_id: str) -> str:
    return f"{MANIFESTS}{backup_id}.json"


def encode_manifest(backup: Backup) -> bytes:
    body = msgspec.json.encode(backup)
    return msgspec.json.encode(Manifest(digest(body), msgspec.Raw(body)))


def decode_manifest(key: str, data: bytes) -> Backup:
    """BackupDamaged unless it is as it was written, and its segments follow each other."""
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
        if digest(bytes(manifest.backup)) != manifest.sha256:
            raise BackupDamaged(f"{key} is damaged: its checksum is another")
        backup = msgspec.json.decode(manifest.backup, type=Backup)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BackupDamaged(f"{key} is damaged: {error}") from error
    if backup.format not in FORMATS_READ:
        raise BackupDamaged(f"{key} has format {backup.format}, this Parley knows {FORMAT}: use a newer one")
    reached = 0
    for segment in backup.segments:
        if segment.after != reached or segment.through < segment.after:
            raise BackupDamaged(f"{key}: no segment begins after position {reached}")
        reached = segment.through
    return backup


def check_part(part: Part, data: bytes) -> None:
    """BackupDamaged unless these are the bytes that were written."""
    if len(data) != part.size_bytes or digest(data) != part.sha256:
        raise BackupDamaged(
            f"{part.key} is damaged: {len(data):,} bytes with another checksum than the {part.size_bytes:,}"
            " that were written"
        )


def has_all(backup: Backup, there: Collection[tuple[str, int]]) -> bool:
    """Whether each segment is among these keys and sizes."""
    return all((segment.key, segment.size_bytes) in there for segment in backup.segments)


class Run(Struct, frozen=True):
    """Segments that follow each other. `is_current`: nothing in them was changed since they were written."""

    is_current: bool
    segments: tuple[Segment, ...]


def runs(segments: Sequence[Segment], changed: Sequence[tuple[int, int]]) -> list[Run]:
    """Segments as runs. `changed`: stretches of positions, each with its first and its last."""

    def is_current(segment: Segment) -> bool:
        return not any(first <= segment.through and last > segment.after for first, last in changed)

    return [Run(is_so, tuple(run)) for is_so, run in groupby(segments, is_current)]
