"""Records of `messages.persisted`: what goes in comes out, byte for byte."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley import ids
from parley.bus import events
from parley.model import Action, Change, Kind, Persisted, Role, StoredEntry
from parley.wire.frames import Entry
from parley.wire.limits import MESSAGE_BYTES_MAX, PAGE_BYTES_MAX, SEQUENCE_MAX

NOW_MS = 1_767_225_600_000
letters = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
sequences = st.integers(1, SEQUENCE_MAX)


def entry(content: str = "hi", sequence: int = 7, **fields: object) -> Entry:
    made: dict[str, object] = {
        "chat_id": "chat_1",
        "sequence": sequence,
        "epoch": 1,
        "kind": "message",
        "message_id": "msg_" + ids.ulid(NOW_MS, sequence),
        "sender_id": "user_1",
        "client_message_id": None,
        "content": content,
        "content_type": "text/plain",
        "created_at": "2026-01-01T00:00:00.000Z",
        "server_timestamp": "2026-01-01T00:00:00.000Z",
        "display_time": None,
    }
    return msgspec.convert(made | fields, Entry)


entries = st.builds(
    Entry,
    chat_id=letters,
    sequence=sequences,
    epoch=sequences,
    kind=st.sampled_from(["message", "of the future"]),
    message_id=st.builds(lambda n: "msg_" + ids.ulid(n >> 80, n), st.integers(0, 2**128 - 1)),
    sender_id=letters,
    client_message_id=st.none() | letters,
    content=letters,
    content_type=letters,
    created_at=letters,
    server_timestamp=letters,
    display_time=st.none() | letters,
)


@given(entry=entries)
def test_an_entry_comes_back_as_the_same_bytes(entry: Entry) -> None:
    """Whoever reads the record passes on exactly what the log holds."""
    wire = msgspec.json.encode(entry)
    record = events.encode(entry.chat_id, entry.epoch, StoredEntry(entry.sequence, wire), "node", NOW_MS)
    assert events.decode(record.value) == (entry.chat_id, entry.epoch, StoredEntry(entry.sequence, wire), "")


@given(chat_id=letters, epoch=sequences, sequence=sequences)
def test_a_void_comes_back_as_a_void(chat_id: str, epoch: int, sequence: int) -> None:
    """A position without an entry travels too."""
    record = events.encode(chat_id, epoch, StoredEntry(sequence, None), None, NOW_MS)
    assert events.decode(record.value) == (chat_id, epoch, StoredEntry(sequence, None), "")


def test_a_change_comes_back_and_says_so_outside() -> None:
    """An entry that changes the members is known from its headers, and its change is read back."""
    change = Change(Action.JOINED, "user_2", Role.ADMIN)
    content = msgspec.json.encode({"action": "joined", "user_id": "user_2", "role": "admin"}).decode()
    stored = StoredEntry(7, msgspec.json.encode(entry(content, kind=Kind.MEMBER.value)), change)
    record = events.encode("chat_1", 1, stored, None, NOW_MS)
    assert record.headers == [(events.CHANGE, b"1")]
    assert events.decode(record.value) == ("chat_1", 1, stored, "")


def test_a_request_id_travels_beside_the_event() -> None:
    """It is a header, so that the event keeps the fields that the documents give."""
    stored = StoredEntry(7, msgspec.json.encode(entry()), request_id="conn_7.42")
    record = events.encode("chat_1", 1, stored, None, NOW_MS)
    assert b"conn_7.42" not in record.value
    assert events.decode(record.value, record.headers) == ("chat_1", 1, stored, "")


@pytest.mark.parametrize("headers", [[], [(events.NODE, b"n1")], [(events.REQUEST, b"\xff" * 1_000)]])
def test_a_record_without_a_usable_request_id_is_read(headers: events.Headers) -> None:
    """One of an older version has none, and a stranger's is cut to a bounded text."""
    stored = StoredEntry(7, msgspec.json.encode(entry()))
    record = events.encode("chat_1", 1, stored, None, NOW_MS)
    told = events.decode(record.value, headers)
    assert told is not None
    assert (told.stored.wire, len(told.stored.request_id) <= 128) == (stored.wire, True)


def test_the_event_is_the_one_of_the_source_documents() -> None:
    """Envelope and payload have the names that the documents give, and the key is the chat."""
    wire = msgspec.json.encode(entry("hello"))
    record = events.encode("chat_1", 1, StoredEntry(7, wire), "node", NOW_MS)
    event = msgspec.json.decode(record.value)
    payload = event.pop("payload")
    assert event == {
        "event_type": "MessagePersisted",
        "event_id": "evt_" + ids.ulid(NOW_MS, 7),
        "event_time": "2026-01-01T00:00:00.000Z",
        "partition_key": "chat_1",
    }
    named = ("message_id", "chat_id", "sequence", "sender_id", "content", "content_type", "created_at")
    assert [payload[name] for name in named] == [
        "msg_" + ids.ulid(NOW_MS, 7),
        "chat_1",
        7,
        "user_1",
        "hello",
        "text/plain",
        "2026-01-01T00:00:00.000Z",
    ]
    assert (record.key, record.headers) == (b"chat_1", [(events.NODE, b"node")])


@pytest.mark.parametrize("wire", [msgspec.json.encode(entry()), None])
def test_an_event_published_again_has_the_same_id(wire: bytes | None) -> None:
    """Whenever and by whomever a position is published, its event is the same one."""
    first = events.encode("chat_1", 1, StoredEntry(7, wire), "one", NOW_MS)
    again = events.encode("chat_1", 1, StoredEntry(7, wire), None, NOW_MS + 5_000)
    other = events.encode("chat_1", 1, StoredEntry(8, None), "one", NOW_MS)
    event_ids = [msgspec.json.decode(record.value)["event_id"] for record in (first, again, other)]
    assert event_ids[0] == event_ids[1] != event_ids[2]
    assert ids.ulid_to_bytes(event_ids[0].removeprefix(ids.EVENT))


def test_an_event_of_another_kind_is_passed_over() -> None:
    """A newer node may publish what this one does not know."""
    unknown = msgspec.json.encode(events.Event("Later", "evt_1", "", "chat_1", msgspec.Raw(b"{}")))
    assert events.decode(unknown) is None


def test_positions_of_one_chat_gather() -> None:
    """What belongs to one chat comes together in its order, whatever comes between."""
    told = [
        events.PositionEvent("a", 1, StoredEntry(1, b"1")),
        events.PositionEvent("b", 1, StoredEntry(9, b"9")),
        events.PositionEvent("a", 1, StoredEntry(2, None)),
        events.PositionEvent("a", 2, StoredEntry(1, b"1")),
    ]
    assert events.gather(told) == [
        Persisted("a", 1, [StoredEntry(1, b"1"), StoredEntry(2, None)]),
        Persisted("b", 1, [StoredEntry(9, b"9")]),
        Persisted("a", 2, [StoredEntry(1, b"1")]),
    ]


def test_a_gathering_is_bounded() -> None:
    """A flood in one chat is told in pieces, each within a page and one message more."""
    wire = b"x" * MESSAGE_BYTES_MAX
    told = [events.PositionEvent("a", 1, StoredEntry(n, wire)) for n in range(100)]
    gathered = events.gather(told)
    sizes = [sum(len(stored.wire or b"") for stored in news.positions) for news in gathered]
    assert max(sizes) <= PAGE_BYTES_MAX + MESSAGE_BYTES_MAX
    assert [stored.sequence for news in gathered for stored in news.positions] == list(range(100))


def test_who_has_told_its_own_clients_is_read_back() -> None:
    """The node in the header: an entry is not routed to it, and is not gathered with those of others."""
    told = []
    for sequence, node in ((1, "n1"), (2, "n1"), (3, "n2"), (4, "n1"), (5, None)):
        stored = StoredEntry(sequence, msgspec.json.encode(entry(sequence=sequence)))
        record = events.encode("chat_1", 1, stored, node, NOW_MS)
        told.append(events.decode(record.value, record.headers))
    gathered = events.gather(filter(None, told))
    assert [(one.told_by, [stored.sequence for stored in one.positions]) for one in gathered] == [
        ("n1", [1, 2]),
        ("n2", [3]),
        ("n1", [4]),
        ("", [5]),
    ]
