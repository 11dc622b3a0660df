"""The format of a segment: successive entries of one chat in one immutable object. Pure.

    magic      8 bytes, "PRLYSEG1"
    header     length (4), JSON: chat, first and last number, the chain before the first entry
    blocks     zstd frames, each of about 64 KiB of records
    index      JSON: where each block is and its checksum, who wrote, the chain behind the last entry
    trailer    offset (8) and length (4) of the index, its SHA-256, then the SHA-256 of everything before

A block has a kind (1 byte) for each of its entries, then a length (4) for each, then the SHA-256 of what each
erased entry was, then the JSON of each, byte for byte as the hot store had it. A void has the length 0.
Numbers are big-endian, and sequences follow from the block. docs/cold-tier.md explains why.

The chain runs over the digests of the entries as they were first archived: erasing a body changes the segment
and not the chain, so neighbours need not be written again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b, sha256
from itertools import accumulate, pairwise
from typing import TypeVar

import msgspec
from msgspec import Struct

from parley.core.message_actions import BODIED_KINDS
from parley.errors import StoreError

T = TypeVar("T")

MAGIC = b"PRLYSEG1"
LEVEL = 9
"""Of zstd: entries are compressed once and read for years."""
BLOCK_BYTES = 64 * 1024
"""Of records in a block, before compression: what one message costs to read."""
BLOCK_BYTES_MAX = 2 * 1024 * 1024
"""No block is larger: one message is at most 64 KiB of text, which JSON may write with six bytes a char."""
SENDERS_LISTED_MAX = 1_000
"""A segment with more people does not list them, and an erasure reads all of it."""
CHAIN_START = bytes(32)
"""The chain before the first entry of a chat."""
DIGEST_BYTES = 32
CHECKSUM_BYTES = 8
VOID, ENTRY, ERASED = 0, 1, 2
"""Kinds of records."""
LENGTH = struct.Struct(">I")
RECORD_BYTES_MAX_BESIDE = 1 + LENGTH.size + DIGEST_BYTES
"""What an entry takes in a block beside its JSON, at most."""
TRAILER = struct.Struct(f">QI{DIGEST_BYTES}s{DIGEST_BYTES}s")
NUMBERED = struct.Struct(">Q")


class SegmentDamaged(StoreError):
    """A segment is not what it was when it was written; the message says how."""


class SegmentMissing(SegmentDamaged):
    """An object is not where it was: lost, or the disk that it is on is not mounted now."""


class ArchivedEntry(Struct, frozen=True, gc=False):
    """A position of a log. `wire` is the JSON of its entry; None is a void.

    `erased`: the digest of what the entry was before its body was erased.
    """

    sequence: int
    wire: bytes | None
    erased: bytes | None = None

    @property
    def record_kind(self) -> int:
        if self.wire is None:
            return VOID
        return ENTRY if self.erased is None else ERASED

    @property
    def digest(self) -> bytes:
        """Of the entry as it was first archived."""
        if self.erased is not None:
            return self.erased
        return bytes(DIGEST_BYTES) if self.wire is None else sha256(self.wire).digest()


class SegmentHeader(Struct, frozen=True):
    """`previous`: the chain before the first entry, in hex."""

    version: int
    chat_id: str
    first: int
    last: int
    previous: str


class BlockPlace(Struct, frozen=True, array_like=True):
    """Where a block is, and what it holds."""

    first: int
    count: int
    offset: int
    length: int
    checksum: str

    @property
    def last(self) -> int:
        return self.first + self.count - 1


class SegmentIndex(Struct, frozen=True):
    """`senders`: who wrote the entries; None if they are too many. `chain`: behind the last entry, in hex.

    `bodies`: how many entries have a body that may be removed; `oldest_at`: when the first of them was made.
    """

    blocks: list[BlockPlace]
    chain: str
    raw_bytes: int
    senders: list[str] | None = None
    bodies: int = 0
    oldest_at: str = ""

    def spanning(self, first: int, last: int) -> list[BlockPlace]:
        """The blocks with these positions, in order."""
        return [block for block in self.blocks if block.last >= first and block.first <= last]


class EncodedSegment(Struct, frozen=True):
    """A segment, ready to be stored."""

    header: SegmentHeader
    index: SegmentIndex
    index_offset: int
    data: bytes
    digest: str

    @property
    def entries(self) -> int:
        return self.header.last - self.header.first + 1


class EntryFacts(Struct, gc=False):
    """What the index of a segment sums up."""

    sender_id: str
    kind: str = ""
    created_at: str = ""
    deleted: bool = False

    @property
    def has_body(self) -> bool:
        return self.kind in BODIED_KINDS and not self.deleted


decode_facts = msgspec.json.Decoder(EntryFacts).decode
_decode_header = msgspec.json.Decoder(SegmentHeader).decode
_decode_index = msgspec.json.Decoder(SegmentIndex).decode
_encode = msgspec.json.Encoder().encode


def chained(chain: bytes, entries: Sequence[ArchivedEntry]) -> bytes:
    """The chain behind these entries."""
    for entry in entries:
        chain = sha256(chain + NUMBERED.pack(entry.sequence) + entry.digest).digest()
    return chain


# Writing


def encode_segment(chat_id: str, entries: Sequence[ArchivedEntry], previous: bytes) -> EncodedSegment:
    """These entries, which follow each other, as one segment. `previous`: the chain before them."""
    import zstandard

    assert entries
    assert all(after.sequence == before.sequence + 1 for before, after in pairwise(entries))
    header = SegmentHeader(1, chat_id, entries[0].sequence, entries[-1].sequence, previous.hex())
    head = _encode(header)
    parts = [MAGIC, LENGTH.pack(len(head)), head]
    offset = sum(map(len, parts))
    blocks: list[BlockPlace] = []
    raw_bytes = 0
    compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=False, write_content_size=True)
    for first, count, raw in _raw_blocks(entries):
        data = compressor.compress(raw)
        blocks.append(BlockPlace(first, count, offset, len(data), _checksum(data)))
        parts.append(data)
        offset += len(data)
        raw_bytes += len(raw)
    facts = [decode_facts(entry.wire) for entry in entries if entry.wire is not None]
    bodied = [one.created_at for one in facts if one.has_body]
    senders = {one.sender_id for one in facts}
    index = SegmentIndex(
        blocks,
        chained(previous, entries).hex(),
        raw_bytes,
        sorted(senders) if len(senders) <= SENDERS_LISTED_MAX else None,
        len(bodied),
        min(bodied, default=""),
    )
    tail = _encode(index)
    parts.append(tail)
    body = b"".join(parts)
    sealed = sha256(body + _index_place(offset, tail)).digest()
    data = body + _index_place(offset, tail) + sealed
    return EncodedSegment(header, index, offset, data, sha256(data).hexdigest())


def _index_place(offset: int, tail: bytes) -> bytes:
    return struct.pack(f">QI{DIGEST_BYTES}s", offset, len(tail), sha256(tail).digest())


def _raw_blocks(entries: Sequence[ArchivedEntry]) -> Iterator[tuple[int, int, bytes]]:
    """The first number, the count and the records of each block."""
    start, size = 0, 0
    for place, entry in enumerate(entries):
        room = RECORD_BYTES_MAX_BESIDE + len(entry.wire or b"")
        if place > start and size + room > BLOCK_BYTES:
            yield entries[start].sequence, place - start, _raw_block(entries[start:place])
            start, size = place, 0
        size += room
    yield entries[start].sequence, len(entries) - start, _raw_block(entries[start:])


def _raw_block(entries: Sequence[ArchivedEntry]) -> bytes:
    wires = [entry.wire or b"" for entry in entries]
    kinds = bytes(entry.record_kind for entry in entries)
    lengths = struct.pack(f">{len(wires)}I", *map(len, wires))
    return b"".join([kinds, lengths, *(entry.erased for entry in entries if entry.erased), *wires])


def _checksum(data: bytes) -> str:
    return blake2b(data, digest_size=CHECKSUM_BYTES).hexdigest()


# Reading


def decode_index(tail: bytes, index_offset: int) -> SegmentIndex:
    """The index, from the bytes of a segment from `index_offset` to its end."""
    if len(tail) < TRAILER.size:
        raise SegmentDamaged("it ends before its index: it was cut off")
    offset, length, digest, _ = TRAILER.unpack(tail[-TRAILER.size :])
    body = tail[: -TRAILER.size]
    if (offset, length) != (index_offset, len(body)) or sha256(body).digest() != digest:
        raise SegmentDamaged("its index is not the one that was written")
    return _decoded(_decode_index, body, "its index")


def decode_wires(place: BlockPlace, data: bytes) -> list[bytes | None]:
    """The JSON of the entries of one block, in order; None for a void."""
    return _decoded_block(place, data)[0]


def decode_block(place: BlockPlace, data: bytes) -> list[ArchivedEntry]:
    """The entries of one block."""
    wires, erased = _decoded_block(place, data)
    return [
        ArchivedEntry(place.first + at, wire, erased.get(at) if erased else None)
        for at, wire in enumerate(wires)
    ]


def _decoded_block(place: BlockPlace, data: bytes) -> tuple[list[bytes | None], dict[int, bytes]]:
    """The JSON of each entry, and the digests of those that were erased, by their place in the block."""
    import zstandard

    if len(data) != place.length or _checksum(data) != place.checksum:
        raise SegmentDamaged(f"the block with {place.first} to {place.last} is not the one that was written")
    try:
        raw = zstandard.ZstdDecompressor().decompress(data, max_output_size=BLOCK_BYTES_MAX)
        count = place.count
        kinds, lengths = raw[:count], struct.unpack_from(f">{count}I", raw, count)
    except (zstandard.ZstdError, struct.error) as error:
        raise SegmentDamaged(f"the block with {place.first} to {place.last} cannot be read") from error
    at = count * (1 + LENGTH.size)
    erased = [number for number, kind in enumerate(kinds) if kind == ERASED] if ERASED in kinds else []
    digests = {number: raw[at + DIGEST_BYTES * n :][:DIGEST_BYTES] for n, number in enumerate(erased)}
    ends = list(accumulate(lengths, initial=at + DIGEST_BYTES * len(erased)))
    if ends[-1] != len(raw):
        raise SegmentDamaged(f"the block with {place.first} to {place.last} has another length")
    wires: list[bytes | None] = [raw[start:end] for start, end in pairwise(ends)]
    if VOID in kinds:
        for number, kind in enumerate(kinds):
            if kind == VOID:
                wires[number] = None
    return wires, digests


def check_segment(data: bytes) -> tuple[SegmentHeader, SegmentIndex, list[ArchivedEntry]]:
    """Everything in a segment, if every byte of it is as it was written; SegmentDamaged otherwise."""
    if len(data) < len(MAGIC) + TRAILER.size:
        raise SegmentDamaged("it is too short to be a segment: it was cut off")
    if not data.startswith(MAGIC):
        raise SegmentDamaged("it is no segment of a format that this Parley knows")
    offset, length, _, sealed = TRAILER.unpack(data[-TRAILER.size :])
    if offset + length + TRAILER.size != len(data):
        raise SegmentDamaged("it was cut off, or something was added to it")
    if sha256(data[:-DIGEST_BYTES]).digest() != sealed:
        raise SegmentDamaged("its bytes are not those that were written")
    header = header_of(data)
    index = decode_index(data[offset:], offset)
    entries = [
        entry
        for place in index.blocks
        for entry in decode_block(place, data[place.offset : place.offset + place.length])
    ]
    numbers = [entry.sequence for entry in entries]
    if numbers != list(range(header.first, header.last + 1)):
        raise SegmentDamaged(f"it does not hold every number from {header.first} to {header.last}")
    if chained(bytes.fromhex(header.previous), entries).hex() != index.chain:
        raise SegmentDamaged("its chain does not follow from its entries")
    return header, index, entries


def header_of(data: bytes) -> SegmentHeader:
    """Which part of which chat a segment says that it is."""
    (length,) = LENGTH.unpack_from(data, len(MAGIC))
    start = len(MAGIC) + LENGTH.size
    return _decoded(_decode_header, data[start : start + length], "its header")


def _decoded(decode: Callable[[bytes], T], body: bytes, what: str) -> T:
    try:
        return decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SegmentDamaged(f"{what} cannot be read") from error
