"""What a backup is made of, as a document that says how to check each part of it. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

import msgspec
from msgspec import Struct

from parley.errors import ParleyError

FORMAT = 1
MANIFESTS = "backups/"
SEGMENTS = "segments/"
STATES = "states/"
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
    store. `based_on`: the backup whose segments it shares, if any.
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
    format: int = FORMAT

    @property
    def through(self) -> int:
        return self.segments[-1].through if self.segments else 0

    @property
    def entries(self) -> int:
        return sum(segment.entries for segment in self.segments)

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts)

    @property
    def parts(self) -> tuple[Part, ...]:
        return (*self.segments, self.state)


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
    if backup.format != FORMAT:
        raise BackupDamaged(f"{key} has format {backup.format}, this Parley knows {FORMAT}")
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
