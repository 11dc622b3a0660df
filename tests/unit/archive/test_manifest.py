"""The manifest, and which segments are written again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.archive.manifest import (
    SEGMENT_ENTRIES_MAX,
    ArchiveManifest,
    SegmentEntry,
    decode_manifest,
    encode_manifest,
    merged_from,
)
from parley.archive.segment import SegmentDamaged
from parley.store.rows import ArchiveMark


def segment(first: int, count: int) -> SegmentEntry:
    return SegmentEntry(
        name=f"{first}",
        first=first,
        last=first + count - 1,
        bytes=count,
        raw_bytes=count,
        index_offset=0,
        digest="",
        chain="",
    )


def manifest(*counts: int) -> ArchiveManifest:
    segments: list[SegmentEntry] = []
    for count in counts:
        segments.append(segment(segments[-1].last + 1 if segments else 1, count))
    return ArchiveManifest(chat_id="chat_1", version=len(counts), segments=segments)


def mark_of(written: ArchiveManifest) -> tuple[bytes, ArchiveMark]:
    data, digest = encode_manifest(written)
    return data, ArchiveMark(archived_through=written.through, version=written.version, manifest=digest)


def test_a_manifest_is_read_back() -> None:
    """What was written under a mark is what is read."""
    written = manifest(3, 4)
    data, mark = mark_of(written)
    assert decode_manifest(data, mark) == written


def test_an_older_manifest_is_not_taken_for_the_newest() -> None:
    """The mark names one manifest by its digest."""
    older, _ = mark_of(manifest(3))
    _, mark = mark_of(manifest(3, 4))
    with pytest.raises(SegmentDamaged, match="not the one that was recorded"):
        decode_manifest(older, mark)


def test_a_manifest_with_a_hole_is_refused() -> None:
    """Its segments follow each other without a gap."""
    data, mark = mark_of(
        ArchiveManifest(chat_id="chat_1", version=1, segments=[segment(1, 3), segment(5, 2)])
    )
    with pytest.raises(SegmentDamaged, match="no segment with 4"):
        decode_manifest(data, mark)


@given(st.lists(st.integers(1, 50), max_size=200))
def test_a_chat_has_few_segments(runs: list[int]) -> None:
    """However small the runs are, segments are few, and nothing is written again too often."""
    counts: list[int] = []
    written = 0
    for count in runs:
        merged = merged_from(manifest(*counts), count, count)
        together = sum(counts[len(counts) - merged :]) + count
        counts = [*counts[: len(counts) - merged], together]
        written += together
    total = sum(runs)
    assert sum(counts) == total
    assert len(counts) <= 2 + max(1, total).bit_length()
    assert written <= total * (2 + 2 * max(1, total).bit_length())


def test_a_full_segment_stays() -> None:
    """A segment never grows beyond what an archiver holds in memory."""
    assert merged_from(manifest(SEGMENT_ENTRIES_MAX - 1), SEGMENT_ENTRIES_MAX, 1) == 0
