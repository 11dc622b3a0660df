"""The format of segments: what is written is read back, and no change of it goes unnoticed."""

from hashlib import sha256

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.archive.segment import (
    BLOCK_BYTES,
    CHAIN_START,
    SENDERS_LISTED_MAX,
    ArchivedEntry,
    EncodedSegment,
    SegmentDamaged,
    chained,
    check_segment,
    decode_block,
    decode_index,
    encode_segment,
)

CHAT = "chat_1"


def wire(content: str, sender: str = "user_1") -> bytes:
    return msgspec.json.encode({"sender_id": sender, "content": content})


def entry(sequence: int, content: str | None, is_erased: bool) -> ArchivedEntry:
    if content is None:
        return ArchivedEntry(sequence, None)
    digest = sha256(content.encode()).digest() if is_erased else None
    return ArchivedEntry(sequence, wire("" if is_erased else content), digest)


@st.composite
def logs(draw: st.DrawFn) -> list[ArchivedEntry]:
    """Entries, voids and erased entries, of all sizes."""
    first = draw(st.integers(1, 2**40))
    contents = st.none() | st.text(max_size=20) | st.sampled_from(["x" * 30_000, "é\x00" * 9_000])
    drawn = draw(st.lists(st.tuples(contents, st.booleans()), min_size=1, max_size=30))
    return [entry(first + place, *one) for place, one in enumerate(drawn)]


def read_range(segment: EncodedSegment, first: int, last: int) -> list[ArchivedEntry]:
    """What a reader does: the index, then the blocks with these positions."""
    index = decode_index(segment.data[segment.index_offset :], segment.index_offset)
    return [
        one
        for place in index.spanning(first, last)
        for one in decode_block(place, segment.data[place.offset : place.offset + place.length])
        if first <= one.sequence <= last
    ]


@given(logs())
def test_a_segment_holds_what_was_written(entries: list[ArchivedEntry]) -> None:
    """Entries, voids and erased entries come back byte for byte, with their chain."""
    header, index, found = check_segment(encode_segment(CHAT, entries, CHAIN_START).data)
    assert found == entries
    assert (header.chat_id, header.first, header.last) == (CHAT, entries[0].sequence, entries[-1].sequence)
    assert index.chain == chained(CHAIN_START, entries).hex()


@given(logs(), st.data())
def test_any_range_is_the_slice(entries: list[ArchivedEntry], data: st.DataObject) -> None:
    """Reading only the blocks of a range gives exactly its entries."""
    low = data.draw(st.integers(0, len(entries) - 1))
    high = data.draw(st.integers(low, len(entries) - 1))
    segment = encode_segment(CHAT, entries, CHAIN_START)
    found = read_range(segment, entries[low].sequence, entries[high].sequence)
    assert found == entries[low : high + 1]


@given(logs(), st.data())
def test_any_change_of_one_byte_is_noticed(entries: list[ArchivedEntry], data: st.DataObject) -> None:
    """Wherever a byte is changed, the check of the segment fails."""
    whole = bytearray(encode_segment(CHAT, entries, CHAIN_START).data)
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(SegmentDamaged):
        check_segment(bytes(whole))


def test_every_byte_of_a_small_segment_is_covered() -> None:
    """Not only the drawn places: each byte of a segment is protected."""
    whole = encode_segment(CHAT, [entry(1, "hello", False), entry(2, None, False)], CHAIN_START).data
    for place in range(len(whole)):
        changed = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        with pytest.raises(SegmentDamaged):
            check_segment(changed)


def test_every_byte_of_a_block_is_covered() -> None:
    """A reader of one block does not need the rest of the segment to notice a change in it."""
    segment = encode_segment(CHAT, [entry(1, "hello", False), entry(2, None, False)], CHAIN_START)
    (place,) = segment.index.blocks
    block = segment.data[place.offset : place.offset + place.length]
    assert decode_block(place, block)[0].wire == wire("hello")
    for at in range(len(block)):
        with pytest.raises(SegmentDamaged):
            decode_block(place, block[:at] + bytes([block[at] ^ 1]) + block[at + 1 :])


@given(logs(), st.data())
def test_a_cut_segment_is_noticed(entries: list[ArchivedEntry], data: st.DataObject) -> None:
    """An upload that ended early, wherever it did, is no segment."""
    whole = encode_segment(CHAT, entries, CHAIN_START).data
    end = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(SegmentDamaged):
        check_segment(whole[:end])


@given(logs(), st.data())
def test_a_range_read_notices_a_changed_block(entries: list[ArchivedEntry], data: st.DataObject) -> None:
    """A reader of a few blocks checks those that it reads: each has its checksum."""
    segment = encode_segment(CHAT, entries, CHAIN_START)
    place = data.draw(st.sampled_from(segment.index.blocks))
    block = bytearray(segment.data[place.offset : place.offset + place.length])
    block[data.draw(st.integers(0, len(block) - 1))] ^= 255
    with pytest.raises(SegmentDamaged):
        decode_block(place, bytes(block))


def test_erasing_a_body_keeps_the_chain() -> None:
    """The chain is over digests of what was archived first: what is rewritten fits between its neighbours."""
    before = [ArchivedEntry(number, wire(f"secret {number}")) for number in range(1, 6)]
    after = list(before)
    after[2] = ArchivedEntry(3, wire(""), before[2].digest)
    one, other = (encode_segment(CHAT, entries, CHAIN_START) for entries in (before, after))
    assert one.index.chain == other.index.chain
    assert one.digest != other.digest
    assert b"secret 3" not in b"".join(one.wire or b"" for one in check_segment(other.data)[2])


def test_many_people_are_not_listed() -> None:
    """A segment lists who wrote, so that an erasure skips it, unless they are too many."""
    few = [ArchivedEntry(1, wire("a", "user_2")), ArchivedEntry(2, wire("b", "user_1"))]
    many = [ArchivedEntry(at, wire("a", f"user_{at}")) for at in range(1, SENDERS_LISTED_MAX + 2)]
    assert encode_segment(CHAT, few, CHAIN_START).index.senders == ["user_1", "user_2"]
    assert encode_segment(CHAT, many, CHAIN_START).index.senders is None


def test_a_large_log_has_several_blocks() -> None:
    """One message costs one block to read, not the segment."""
    entries = [ArchivedEntry(at, wire("x" * 1_000)) for at in range(1, 301)]
    blocks = encode_segment(CHAT, entries, CHAIN_START).index.blocks
    assert len(blocks) >= 300 * 1_000 // BLOCK_BYTES
    assert max(block.count for block in blocks) * 1_000 <= BLOCK_BYTES
