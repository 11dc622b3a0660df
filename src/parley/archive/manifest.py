"""The manifest of a chat's archive: which segments hold which entries, in which order. Pure.

A manifest is an object that never changes. Its name has its number and its digest, and the engine's mark of
the chat (`ArchiveMark`) names the newest: that mark is replaced under a condition, so of two archivers one
wins, and an older manifest that is put back is not taken for the newest.
"""

from __future__ import annotations

from hashlib import sha256

import msgspec
from msgspec import Struct

from parley.archive.segment import CHAIN_START, EncodedSegment, SegmentDamaged
from parley.store.rows import ArchiveMark

FORMAT = 1
SEGMENT_ENTRIES_MAX = 65_536
SEGMENT_RAW_BYTES_MAX = 32 * 1024 * 1024
"""Of entries in one segment, before compression: what an archiver has in memory."""
SEGMENT_SUFFIX = ".seg"
NAME_DIGITS = 12
DIGEST_CHARS = 16
"""Of a digest in a name."""


class SegmentEntry(Struct, frozen=True, kw_only=True):
    """A segment as its manifest lists it. `digest`: of the whole object. `chain`: behind its last entry.

    `bodies`, `oldest_at`: as in its index.
    """

    name: str
    first: int
    last: int
    bytes: int
    raw_bytes: int
    index_offset: int
    digest: str
    chain: str
    bodies: int = 0
    oldest_at: str = ""

    @property
    def entries(self) -> int:
        return self.last - self.first + 1


class ArchiveManifest(Struct, frozen=True, kw_only=True):
    """`version` counts from 1; 0 is that of a chat without an archive, which is no object."""

    chat_id: str
    version: int = 0
    segments: list[SegmentEntry] = []
    previous: str = ""
    """The digest of the manifest before, in hex."""
    format: int = FORMAT

    @property
    def through(self) -> int:
        return self.segments[-1].last if self.segments else 0

    @property
    def chain(self) -> bytes:
        """Behind the last entry."""
        return bytes.fromhex(self.segments[-1].chain) if self.segments else CHAIN_START

    def spanning(self, first: int, last: int) -> list[SegmentEntry]:
        """The segments with these positions, in order."""
        return [one for one in self.segments if one.last >= first and one.first <= last]


_decode = msgspec.json.Decoder(ArchiveManifest).decode
_encode = msgspec.json.Encoder().encode


def encode_manifest(manifest: ArchiveManifest) -> tuple[bytes, str]:
    """The object, and its digest in hex."""
    data = _encode(manifest)
    return data, sha256(data).hexdigest()


def decode_manifest(data: bytes, mark: ArchiveMark) -> ArchiveManifest:
    """SegmentDamaged unless it is the manifest that the mark names, and its segments follow each other."""
    if sha256(data).hexdigest() != mark.manifest:
        raise SegmentDamaged(f"manifest {mark.version} is not the one that was recorded")
    try:
        manifest = _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SegmentDamaged(f"manifest {mark.version} cannot be read") from error
    if manifest.format != FORMAT:
        raise SegmentDamaged(f"manifest {mark.version} has format {manifest.format}: use a newer Parley")
    expected = 1
    for segment in manifest.segments:
        if segment.first != expected:
            raise SegmentDamaged(f"manifest {mark.version} has no segment with {expected}")
        expected = segment.last + 1
    return manifest


def folder_of(chat_id: str) -> str:
    """Below which everything of a chat is."""
    return f"chats/{chat_id}"


def manifest_name(chat_id: str, version: int, digest: str) -> str:
    return f"{folder_of(chat_id)}/manifest-{version:0{NAME_DIGITS}}-{digest[:DIGEST_CHARS]}.json"


def listed(segment: EncodedSegment, upload_id: str) -> SegmentEntry:
    """A segment as a manifest lists it. Each upload has a name of its own, so its archiver may delete it."""
    header = segment.header
    span = f"{header.first:0{NAME_DIGITS}}-{header.last:0{NAME_DIGITS}}"
    return SegmentEntry(
        name=f"{folder_of(header.chat_id)}/{span}-{segment.digest[:DIGEST_CHARS]}-{upload_id}{SEGMENT_SUFFIX}",
        first=header.first,
        last=header.last,
        bytes=len(segment.data),
        raw_bytes=segment.index.raw_bytes,
        index_offset=segment.index_offset,
        digest=segment.digest,
        chain=segment.index.chain,
        bodies=segment.index.bodies,
        oldest_at=segment.index.oldest_at,
    )


def merged_from(manifest: ArchiveManifest, new_entries: int, new_bytes: int) -> int:
    """How many of the last segments the new entries are written together with.

    As in a binary counter: a segment is written again only with at least half as many new entries, so a
    chat has few segments, and each entry is written again a few times at most.
    """
    entries, raw_bytes, merged = new_entries, new_bytes, 0
    for segment in reversed(manifest.segments):
        entries, raw_bytes, before = entries + segment.entries, raw_bytes + segment.raw_bytes, entries
        is_full = entries > SEGMENT_ENTRIES_MAX or raw_bytes > SEGMENT_RAW_BYTES_MAX
        if is_full or segment.entries >= 2 * before:
            break
        merged += 1
    return merged
