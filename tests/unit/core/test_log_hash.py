"""The hash of a log: the same whoever computes it, and another one after any change."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import UNSET

from parley.core import log_hash
from parley.wire.frames import Entry
from tests.harness.log_replay import as_fields, replayed
from tests.wire_vectors import write

CHAT = "chat_01JHV3Z8M4QK7N5X2R9T6WBCDE"
FIXED = ("kind", "message_id", "sender_id", "client_message_id", "created_at", "display_time")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@st.composite
def entries(draw: st.DrawFn, sequence: int = 0) -> Entry:
    created_at = draw(TEXTS)
    return Entry(
        chat_id=CHAT,
        sequence=sequence,
        epoch=draw(st.integers(1, 3)),
        kind=draw(st.sampled_from(["message", "member", "chat"])),
        message_id=draw(TEXTS),
        sender_id=draw(TEXTS),
        client_message_id=draw(st.none() | TEXTS),
        content=draw(TEXTS),
        content_type=draw(TEXTS),
        created_at=created_at,
        server_timestamp=created_at,
        display_time=draw(st.none() | TEXTS),
        mentions=draw(st.lists(TEXTS, min_size=1, max_size=2)) if draw(st.booleans()) else UNSET,
    )


@st.composite
def logs(draw: st.DrawFn, min_size: int = 0) -> list[Entry | None]:
    """Every position of a log; None is a void."""
    size = draw(st.integers(min_size, 8))
    return [draw(st.none() | entries(sequence)) for sequence in range(1, size + 1)]


def numbered(positions: list[Entry | None]) -> list[Entry | None]:
    """The same entries as a log would hold them at these places."""
    return [
        None if entry is None else msgspec.structs.replace(entry, sequence=sequence)
        for sequence, entry in enumerate(positions, 1)
    ]


def hashed(positions: list[Entry | None]) -> list[bytes]:
    """The hashes of a log, from the one at 0, by the functions of the core."""
    stored = [msgspec.json.encode(entry) for entry in positions if entry is not None]
    voids = [sequence for sequence, entry in enumerate(positions, 1) if entry is None]
    start = log_hash.empty_log(CHAT)
    return [start, *log_hash.following(start, 0, stored, voids)]


@given(logs())
def test_it_is_what_the_protocol_defines(positions: list[Entry | None]) -> None:
    """A second implementation, which knows only docs/PROTOCOL.md, gets the same at every position."""
    assert hashed(positions) == replayed(CHAT, [as_fields(entry) for entry in positions])


@given(logs(), st.data())
def test_it_goes_on_from_any_position(positions: list[Entry | None], data: st.DataObject) -> None:
    """Whoever holds the hash at a position needs only what comes after it."""
    whole = hashed(positions)
    after = data.draw(st.integers(0, len(positions)))
    rest = positions[after:]
    stored = [msgspec.json.encode(entry) for entry in rest if entry is not None]
    voids = [after + at for at, entry in enumerate(rest, 1) if entry is None]
    assert log_hash.following(whole[after], after, stored, voids) == whole[after + 1 :]


@given(logs(min_size=1), st.data())
def test_any_other_log_has_another_hash(positions: list[Entry | None], data: st.DataObject) -> None:
    """An entry that is lost, added, replaced or moved changes the hash at the end."""
    other = list(positions)
    at = data.draw(st.integers(0, len(other) - 1))
    match data.draw(st.sampled_from(["remove", "insert", "replace", "swap", "void"])):
        case "remove":
            del other[at]
        case "insert":
            other.insert(at, data.draw(st.none() | entries()))
        case "replace":
            other[at] = data.draw(st.none() | entries())
        case "swap":
            with_ = data.draw(st.integers(0, len(other) - 1))
            other[at], other[with_] = other[with_], other[at]
        case "void":
            other[at] = None
    other = numbered(other)
    kept = [_comparable(entry) for entry in positions]
    assume([_comparable(entry) for entry in other] != kept)
    assert hashed(other)[-1] != hashed(positions)[-1]


def _comparable(entry: Entry | None) -> object:
    """An entry without what the hash leaves out."""
    return None if entry is None else msgspec.structs.replace(entry, epoch=0, server_timestamp="")


@pytest.mark.parametrize("field", [*FIXED, "content", "content_type", "mentions", "sequence"])
@given(entries(1), TEXTS)
def test_every_field_counts(field: str, entry: Entry, text: str) -> None:
    """A change of one field changes the hash."""
    value: Any = {"mentions": [text], "sequence": 2}.get(field, text)
    changed = msgspec.structs.replace(entry, **{field: value})
    assume(changed != entry)
    start = log_hash.empty_log(CHAT)
    assert log_hash.after_entry(start, changed) != log_hash.after_entry(start, entry)


@given(entries(1))
def test_a_removed_body_keeps_the_hash(entry: Entry) -> None:
    """The digest that stays stands for the body; a second removal changes nothing."""
    start = log_hash.empty_log(CHAT)
    removed = log_hash.without_body(entry)
    assert (removed.content, removed.mentions) == ("", UNSET)
    assert log_hash.after_entry(start, removed) == log_hash.after_entry(start, entry)
    assert log_hash.without_body(removed) == removed


@given(entries(1), st.sampled_from(FIXED), TEXTS)
def test_the_rest_of_a_removed_entry_still_counts(entry: Entry, field: str, text: str) -> None:
    """Without its body, an entry cannot be given to another sender or time."""
    removed = log_hash.without_body(entry)
    changed = msgspec.structs.replace(removed, **{field: text})
    assume(changed != removed)
    start = log_hash.empty_log(CHAT)
    assert log_hash.after_entry(start, changed) != log_hash.after_entry(start, removed)


def test_chats_differ_from_the_start() -> None:
    """The log of one chat cannot be taken for that of another."""
    assert log_hash.empty_log("chat_a") != log_hash.empty_log("chat_b")


@pytest.mark.parametrize("text", ["2:" + "0" * 64, "", "sha1:00"])
def test_another_version_is_not_compared(text: str) -> None:
    """A newer server may hash in another way: an older client cannot say that it is wrong."""
    assert log_hash.read_shown(text) is None


def test_it_travels_as_text() -> None:
    """What one side shows the other reads."""
    value = log_hash.empty_log(CHAT)
    assert log_hash.shown(value) == f"1:{value.hex()}"
    assert log_hash.read_shown(log_hash.shown(value)) == value


def test_the_vectors_are_what_their_script_writes() -> None:
    """Other SDKs check themselves by this file."""
    written = (write.FOLDER / write.HASH_FILE).read_text(encoding="ascii")
    assert written == write.hash_vectors(), "python -m tests.wire_vectors.write, then look at what changed"


def test_the_vectors_follow_from_the_protocol() -> None:
    """The second implementation agrees with the file, position by position."""
    vectors = json.loads((write.FOLDER / write.HASH_FILE).read_text(encoding="ascii"))
    expected = replayed(vectors["chat_id"], [position["entry"] for position in vectors["positions"]])
    found = [vectors["empty"], *(position["log_hash"] for position in vectors["positions"])]
    assert found == [f"1:{value.hex()}" for value in expected]
