"""The client's codecs against the same vectors that pin the server's."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from parley.wire.codec import CLIENT_CODECS, NotAFrame
from parley.wire.frames import Messages, Request
from tests.model_server.server import make_entry

VECTORS = Path(__file__).parents[2] / "wire_vectors"


def vectors(sender: str) -> list[dict[str, Any]]:
    files = sorted(VECTORS.glob(f"{sender}.*.json"))
    return [vector for file in files for vector in json.loads(file.read_text())["vectors"]]


@pytest.mark.parametrize("vector", vectors("client"), ids=lambda vector: vector["name"])
def test_requests_are_encoded_as_pinned(vector: dict[str, Any]) -> None:
    """Every request has exactly the bytes of its vector in both codecs."""
    request: Request = msgspec.json.decode(vector["json"], type=Request)
    assert CLIENT_CODECS["json"].encode(request).decode() == vector["json"]
    assert CLIENT_CODECS["msgpack"].encode(request).hex() == vector["msgpack"]


@pytest.mark.parametrize("vector", vectors("server"), ids=lambda vector: vector["name"])
def test_answers_are_understood_in_both_codecs(vector: dict[str, Any]) -> None:
    """Every frame of the server is decoded to its value, entries included."""
    for name, data in (("json", vector["json"]), ("msgpack", bytes.fromhex(vector["msgpack"]))):
        codec = CLIENT_CODECS[name]
        frame = codec.decode(data)
        value = dict(vector["value"])
        if "entries" in value:
            entries = [codec.entry(raw) for raw in getattr(frame, "entries")]  # noqa: B009 - of two types
            assert [msgspec.to_builtins(entry) for entry in entries] == value.pop("entries")
        assert {key: msgspec.to_builtins(getattr(frame, key)) for key in value if key != "type"} == {
            key: value[key] for key in value if key != "type"
        }


@pytest.mark.parametrize("name", ["json", "msgpack"])
def test_an_unknown_type_is_passed_over(name: str) -> None:
    """A frame that a newer server may send is no error."""
    encode = msgspec.json.encode if name == "json" else msgspec.msgpack.encode
    assert CLIENT_CODECS[name].decode(encode({"type": "hologram", "chat_id": "c"})) is None


@pytest.mark.parametrize("name", ["json", "msgpack"])
@pytest.mark.parametrize(
    "value", [[], "x", {}, {"type": 1}, {"type": "ack"}, {"type": "messages", "chat_id": 1}]
)
def test_nonsense_is_told_as_such(name: str, value: object) -> None:
    """What is no frame of the contract raises NotAFrame and nothing else."""
    encode = msgspec.json.encode if name == "json" else msgspec.msgpack.encode
    with pytest.raises(NotAFrame):
        CLIENT_CODECS[name].decode(encode(value))


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"\xc1"])
@pytest.mark.parametrize("name", ["json", "msgpack"])
def test_broken_bytes_are_told_as_such(name: str, data: bytes) -> None:
    """Bytes that are no encoding at all raise NotAFrame."""
    with pytest.raises(NotAFrame):
        CLIENT_CODECS[name].decode(data)


def test_text_on_a_binary_connection_is_nonsense() -> None:
    """MessagePack never comes as text."""
    with pytest.raises(NotAFrame):
        CLIENT_CODECS["msgpack"].decode("{}")


@pytest.mark.parametrize("name", ["json", "msgpack"])
def test_an_entry_without_its_fields_is_nonsense(name: str) -> None:
    """An entry is decoded when it is looked at, and then strictly."""
    encode = msgspec.json.encode if name == "json" else msgspec.msgpack.encode
    data = encode({"type": "messages", "chat_id": "c", "epoch": 1, "entries": [{"sequence": 1}]})
    frame = CLIENT_CODECS[name].decode(data)
    assert isinstance(frame, Messages)
    with pytest.raises(NotAFrame):
        CLIENT_CODECS[name].entry(frame.entries[0])


def test_an_entry_is_read_from_its_raw_form() -> None:
    """An entry comes out as it went in."""
    entry = make_entry("chat_1", 3)
    assert CLIENT_CODECS["msgpack"].entry(Raw(msgspec.msgpack.encode(entry))) == entry
