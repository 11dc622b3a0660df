"""Nothing a client sends makes a codec raise anything but NotAFrame, and what is wrong is said."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.errors import BAD_REQUEST, RATE_LIMITED
from parley.wire.codec import CODECS, JSON, KNOWN_TYPES, MSGPACK, Codec, InvalidFrame, NotAFrame
from parley.wire.frames import (
    Entry,
    Heartbeat,
    HeartbeatAck,
    Hello,
    Request,
    SendMessage,
    answer_to,
    refused,
)
from tests.unit.wire.hostile import (
    AWKWARD_TEXTS,
    NONSENSE_BYTES,
    NONSENSE_TEXTS,
    as_json,
    as_msgpack,
    mutated_objects,
    plain_values,
    valid_objects,
)
from tests.wire_vectors.examples import AWKWARD, AWKWARD_ENTRY, CHAT, CLIENT_ID, MEMBER_ENTRY


def outcome(codec: Codec, data: bytes | str) -> Request | InvalidFrame | None:
    """What came of a payload; None when it is no frame. Whatever is owed for it can be written."""
    try:
        read = codec.decode(data)
    except NotAFrame:
        return None
    if isinstance(read, InvalidFrame):
        assert codec.encode(refused(read.refusal, read.request_id))
        return read
    assert isinstance(read, Request)
    assert codec.encode(HeartbeatAck(re=answer_to(read.id), server_time=""))
    return read


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_survived(data: bytes) -> None:
    """Bytes of any kind give a request, a misreading or NotAFrame, in both codecs."""
    for codec in CODECS.values():
        outcome(codec, data)


@given(st.text(max_size=200))
def test_arbitrary_text_is_survived(text: str) -> None:
    """Text of any kind gives a request, a misreading or NotAFrame, in both codecs."""
    for codec in CODECS.values():
        outcome(codec, text)


@pytest.mark.parametrize("text", NONSENSE_TEXTS, ids=lambda text: ascii(text[:24]))
def test_chosen_nonsense_in_json_is_survived(text: str) -> None:
    """Known traps of JSON give a misreading or NotAFrame and no request."""
    assert not isinstance(outcome(JSON, text), Request)


@pytest.mark.parametrize("data", NONSENSE_BYTES, ids=lambda data: data[:12].hex())
def test_chosen_nonsense_in_messagepack_is_survived(data: bytes) -> None:
    """Known traps of MessagePack are survived, claims of sizes that do not follow included."""
    outcome(MSGPACK, data)


@given(plain_values)
def test_arbitrary_values_are_survived(value: object) -> None:
    """A value that is no object is NotAFrame, and an object is a request or a misreading."""
    for codec, data in ((JSON, as_json(value)), (MSGPACK, as_msgpack(value))):
        assert (outcome(codec, data) is None) == (not isinstance(value, dict))


@given(mutated_objects())
def test_a_frame_with_one_thing_broken_is_read_or_misread(value: dict[str, Any]) -> None:
    """A request with one field changed, gone or new is never taken for no frame at all."""
    assert outcome(JSON, as_json(value)) is not None
    assert outcome(MSGPACK, as_msgpack(value)) is not None


@given(valid_objects, st.data())
def test_a_frame_with_a_byte_changed_is_survived(value: dict[str, Any], data: st.DataObject) -> None:
    """A valid frame with any one byte replaced gives one of the three outcomes."""
    for codec, valid in ((JSON, as_json(value).encode()), (MSGPACK, as_msgpack(value))):
        place = data.draw(st.integers(0, len(valid) - 1))
        changed = valid[:place] + bytes([data.draw(st.integers(0, 255))]) + valid[place + 1 :]
        outcome(codec, changed)


@given(valid_objects, st.data())
def test_a_frame_that_breaks_off_is_no_frame(value: dict[str, Any], data: st.DataObject) -> None:
    """A valid frame that ends too early is NotAFrame."""
    for codec, valid in ((JSON, as_json(value).encode()), (MSGPACK, as_msgpack(value))):
        end = data.draw(st.integers(0, len(valid) - 1))
        assert outcome(codec, valid[:end]) is None


WRONG = [None, True, 7, 0.5, "text", "", -1, 2**70, [], {}, ["a"], {"a": 1}]
FIELDS = [
    pytest.param(kind, field.name, id=f"{kind.__struct_config__.tag}.{field.name}")
    for kind in Request.__args__
    for field in msgspec.structs.fields(kind)
]


@pytest.mark.parametrize(("kind", "field"), FIELDS)
def test_wrong_types_in_each_field_are_bad_requests(kind: type[Any], field: str) -> None:
    """A value of a wrong type in any field is refused as bad_request under the request's own id."""
    required = {each.name: "1" for each in msgspec.structs.fields(kind) if each.required}
    base = {"type": kind.__struct_config__.tag, "id": 7, **required}
    misread = 0
    for wrong in WRONG:
        for codec, data in (
            (JSON, as_json({**base, field: wrong})),
            (MSGPACK, as_msgpack({**base, field: wrong})),
        ):
            read = outcome(codec, data)
            assert read is not None
            if isinstance(read, InvalidFrame):
                misread += 1
                assert read.refusal.code == BAD_REQUEST.code
                assert field == "id" or read.request_id == 7
    assert misread >= len(WRONG)


NEED_NOTHING = {"heartbeat", "sync_overview"}
NEED_A_CHAT = {"typing_start", "typing_stop"}


@pytest.mark.parametrize("kind", sorted(KNOWN_TYPES - NEED_NOTHING - NEED_A_CHAT))
def test_missing_fields_are_bad_requests(kind: str) -> None:
    """A frame without the fields that its type needs is refused with what is missing."""
    read = JSON.decode(f'{{"type":"{kind}","id":3}}')
    assert isinstance(read, InvalidFrame)
    assert (read.refusal.code, read.request_id) == ("bad_request", 3)
    assert "missing required field" in read.refusal.reason


@pytest.mark.parametrize(
    "text",
    [
        '{"id":5}',
        '{"type":"nonsense","id":5}',
        '{"type":7,"id":5}',
        '{"type":null,"id":5}',
        '{"type":[],"id":5}',
    ],
)
def test_an_unknown_type_is_refused_under_its_id(text: str) -> None:
    """An object without a known type is refused as unknown_type, with the id it carried."""
    read = JSON.decode(text)
    assert isinstance(read, InvalidFrame)
    assert (read.refusal.code, read.refusal.temporary, read.request_id) == ("unknown_type", False, 5)


def test_a_long_unknown_type_is_not_repeated_in_full() -> None:
    """A refusal never grows with what was sent."""
    read = JSON.decode('{"type":"' + "x" * 100_000 + '"}')
    assert isinstance(read, InvalidFrame)
    assert len(read.refusal.reason) < 100


@pytest.mark.parametrize("number", ["true", '"7"', "[7]", "1e999", "9" * 400], ids=lambda text: text[:6])
def test_an_id_that_is_no_number_is_not_answered_with(number: str) -> None:
    """A misreading names no id when what was sent as one cannot be one."""
    read = JSON.decode(f'{{"type":"nonsense","id":{number}}}')
    assert isinstance(read, InvalidFrame)
    assert read.request_id is None


def test_unknown_fields_pass() -> None:
    """A field that this version does not know changes nothing."""
    assert JSON.decode('{"type":"heartbeat","id":1,"mood":"good","x":{"y":[1]}}') == Heartbeat(id=1)


@pytest.mark.parametrize("name", ["chat_id", "conversation_id", "conv_id"])
def test_a_chat_has_three_names(name: str) -> None:
    """Each name of the chat is accepted in each request about one."""
    for kind in ("ack", "sync_request"):
        read = JSON.decode(f'{{"type":"{kind}","{name}":"{CHAT}","last_acked_sequence":1}}')
        assert getattr(read, "chat", None) == CHAT


@pytest.mark.parametrize(
    ("field", "value"),
    [("last_acked_sequence", "-1"), ("last_acked_sequence", str(2**53)), ("epoch", "0"), ("limit", "0")],
)
def test_numbers_out_of_range_are_bad_requests(field: str, value: str) -> None:
    """Positions and limits outside the contract are refused, not bent."""
    base = {"type": '"sync_request"', "chat_id": '"c"', "last_acked_sequence": "0", field: value}
    read = JSON.decode("{" + ",".join(f'"{key}":{text}' for key, text in base.items()) + "}")
    assert isinstance(read, InvalidFrame)
    assert read.refusal.code == "bad_request"


def test_a_limit_too_high_is_for_the_reader_to_lower() -> None:
    """A huge limit is a valid request: it is lowered where it is used."""
    read = JSON.decode('{"type":"sync_request","chat_id":"c","last_acked_sequence":0,"limit":1000000}')
    assert getattr(read, "limit", None) == 1_000_000


@pytest.mark.parametrize("text", [text for text in AWKWARD_TEXTS if text.isprintable() or text == "\x00"])
def test_awkward_text_arrives_unchanged(text: str) -> None:
    """Content with NUL and other unusual letters is read as it was written, in both codecs."""
    sent = SendMessage(chat_id=CHAT, client_message_id=CLIENT_ID, content=text + AWKWARD)
    assert JSON.decode(msgspec.json.encode(sent)) == sent == MSGPACK.decode(msgspec.msgpack.encode(sent))


def test_lone_surrogates_are_refused() -> None:
    """A lone surrogate is no text: bad_request, with the id, and the connection goes on."""
    read = JSON.decode(
        f'{{"type":"send_message","id":9,"chat_id":"{CHAT}",'
        f'"client_message_id":"{CLIENT_ID}","content":"\\ud800"}}'
    )
    assert isinstance(read, InvalidFrame)
    assert (read.refusal.code, read.request_id) == ("bad_request", 9)


def test_text_is_no_messagepack() -> None:
    """A text frame on a MessagePack connection is NotAFrame, even if it is fine JSON."""
    with pytest.raises(NotAFrame):
        MSGPACK.decode('{"type":"heartbeat"}')


@pytest.mark.parametrize("entry", [AWKWARD_ENTRY, MEMBER_ENTRY], ids=["awkward", "member"])
def test_a_stored_entry_means_the_same_in_both_codecs(entry: Entry) -> None:
    """An entry that is stored as JSON is embedded untouched in JSON and transcoded to MessagePack."""
    stored = msgspec.json.encode(entry)
    assert [bytes(raw) for raw in JSON.entries([stored])] == [stored]
    (packed,) = MSGPACK.entries([stored])
    assert msgspec.msgpack.decode(packed, type=Entry) == entry


@given(st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False))
def test_an_id_comes_back_as_it_was(number: float) -> None:
    """Any number that a client picks as id is read and written back unchanged."""
    for codec, encoded in (
        (JSON, msgspec.json.encode({"type": "heartbeat", "id": number})),
        (MSGPACK, msgspec.msgpack.encode({"type": "heartbeat", "id": number})),
    ):
        if codec is JSON and not math.isfinite(number):
            continue
        read = codec.decode(encoded)
        assert isinstance(read, Heartbeat)
        answer = codec.encode(HeartbeatAck(re=answer_to(read.id), server_time=""))
        decode = msgspec.json.decode if codec is JSON else msgspec.msgpack.decode
        assert decode(answer)["re"] == number


def test_a_refusal_becomes_a_frame() -> None:
    """A refusal's words and times travel, and times only if there are any."""
    limited = msgspec.json.decode(JSON.encode(refused(RATE_LIMITED.after(250), 4)))
    assert limited == {
        "type": "refused",
        "re": 4,
        "code": "rate_limited",
        "reason": RATE_LIMITED.reason,
        "temporary": True,
        "retry_after_ms": 250,
    }
    assert "retry_after_ms" not in msgspec.json.decode(JSON.encode(refused(BAD_REQUEST, None)))


def test_a_hello_reads_its_fields() -> None:
    """The first frame carries the token, the device and whether live messages are wanted."""
    read = JSON.decode('{"type":"hello","id":1,"token":"t","device_id":"d","live":false}')
    assert read == Hello(id=1, token="t", device_id="d", live=False)
