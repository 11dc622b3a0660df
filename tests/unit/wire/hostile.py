"""What a hostile client may send: nonsense, near misses and valid frames with something broken in them."""

import json
from typing import Any

import msgspec
from hypothesis import strategies as st

from tests.wire_vectors.examples import REQUESTS

HUGE_NUMBERS = [2**53, 2**63, 2**64, 2**70, -(2**63) - 1, 10**400, 1e308, -0.0, 0.5]
AWKWARD_TEXTS = ["", "\x00", "\ud800", "\udfff\ud800", "\u2028", "a" * 70_000, "‮", "\U0010ffff"]
NONSENSE_TEXTS = [
    "",
    " ",
    "null",
    "[]",
    "{}",
    "{",
    '"text"',
    "NaN",
    '{"type":NaN}',
    '{"type":"heartbeat"',
    '{"type":"heartbeat"}{}',
    '{"type":"heartbeat","type":"hello"}',
    '{"type":"heartbeat","id":1e999}',
    '{"type":"heartbeat","id":' + "1" * 5_000 + "}",
    '{"type":"hello","token":"\\ud800","device_id":"x"}',
    "[" * 100_000,
    '{"type":"heartbeat","x":' + "[" * 60_000 + "]" * 60_000 + "}",
    '{"a":' * 20_000,
    "\ufeff{}",
    "\ud800",
]
NONSENSE_BYTES = [
    b"",
    b"\xc1",
    b"\xff",
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\xdb\xff\xff\xff\xffx",
    b"\x91" * 100_000,
    b"\x81\xa1a" * 20_000,
    b"\x81\x91\x01\x01",
    b"\x81\xdd\xff\xff\xff\xff",
    b"\x82\xa4type\xa1x\xa1y" + b"\xdd\x0f\xff\xff\xff" * 1_000,
    b"\x81\xa4type\xa2\xff\xfe",
    b"\x82\xa4type\xa9heartbeat\xa2id\xd6\xff\x00\x00\x00\x00",
    b"\x82\xa4type\xa9heartbeat\xa2id\xc7\x0c\xff" + b"\xff" * 12,
    b"\x82\xa4type\xa9heartbeat\xa2id\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",
    b"\x83\xa4type\xa9heartbeat\xa2id\x01\xa2id\x02",
]

plain_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(HUGE_NUMBERS)
    | st.floats()
    | st.text()
    | st.sampled_from(AWKWARD_TEXTS),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
valid_objects: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [json.loads(msgspec.json.encode(request)) for request in REQUESTS.values()]
)


@st.composite
def mutated_objects(draw: st.DrawFn) -> dict[str, Any]:
    """A valid request in which one field has another value, is gone, or is new."""
    mutated = dict(draw(valid_objects))
    field = draw(st.sampled_from([*mutated, "extra", "id", "type", "limit", "chat_id"]))
    if draw(st.booleans()):
        mutated[field] = draw(plain_values)
    else:
        mutated.pop(field, None)
    return mutated


def as_json(value: object) -> str:
    """As a sloppy client writes it: NaN, Infinity and lone surrogates included."""
    return json.dumps(value)


def as_msgpack(value: object) -> bytes:
    """MessagePack has no room for numbers beyond 64 bits or lone surrogates: those become something else."""
    return msgspec.msgpack.encode(_narrowed(value))


def _narrowed(value: object) -> object:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case bool():
            return value
        case int():
            return value if -(2**63) <= value < 2**64 else str(value)
        case list():
            return [_narrowed(item) for item in value]
        case dict():
            return {_narrowed(key): _narrowed(item) for key, item in value.items()}
    return value
