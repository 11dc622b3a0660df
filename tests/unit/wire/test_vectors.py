"""Every frame of the contract has vectors, and both codecs agree with them to the byte."""

import json
from typing import Any

import msgspec
import pytest

from parley.wire.codec import JSON, MSGPACK
from parley.wire.frames import MessageBatch, Messages, Request, ServerFrames
from tests.wire_vectors import write

VECTOR_FILES = sorted(write.FOLDER.glob("*.json"))


def vectors_from(sender: str) -> list[Any]:
    """The vectors of one direction, as pytest parameters."""
    found = []
    for file in VECTOR_FILES:
        group = json.loads(file.read_text(encoding="ascii"))
        if group["from"] == sender:
            found += [pytest.param(vector, id=vector["name"]) for vector in group["vectors"]]
    return found


def types_of(union: Any) -> set[str]:
    return {kind.__struct_config__.tag for kind in union.__args__}


def types_pinned_from(sender: str) -> set[str]:
    groups = [json.loads(file.read_text(encoding="ascii")) for file in VECTOR_FILES]
    return {group["type"] for group in groups if group["from"] == sender}


def test_every_request_has_a_vector() -> None:
    """No frame of a client is left without a vector, and no vector is of a frame that is gone."""
    assert types_pinned_from("client") == types_of(Request)


def test_every_server_frame_has_a_vector() -> None:
    """No frame of the server is left without a vector, and no vector is of a frame that is gone."""
    assert types_pinned_from("server") == types_of(ServerFrames)


def test_the_files_are_what_their_script_writes() -> None:
    """A change of a frame shows in the files, and nobody edits them by hand."""
    written = {file.name: file.read_text(encoding="ascii") for file in VECTOR_FILES}
    assert written == write.files(), "python -m tests.wire_vectors.write, then look at what changed"


@pytest.mark.parametrize("vector", vectors_from("client"))
def test_the_server_reads_a_request_alike_in_both_codecs(vector: dict[str, Any]) -> None:
    """A request means the same in JSON text, JSON bytes and MessagePack."""
    as_text = JSON.decode(vector["json"])
    assert as_text == JSON.decode(vector["json"].encode()) == MSGPACK.decode(bytes.fromhex(vector["msgpack"]))
    assert isinstance(as_text, Request)
    assert msgspec.to_builtins(as_text) == vector["value"]


@pytest.mark.parametrize("vector", vectors_from("client"))
def test_a_request_is_written_to_the_byte(vector: dict[str, Any]) -> None:
    """What a client writes for a request is the vector, in both codecs."""
    request = JSON.decode(vector["json"])
    assert msgspec.json.encode(request).decode() == vector["json"]
    assert msgspec.msgpack.encode(request).hex() == vector["msgpack"]


@pytest.mark.parametrize("vector", vectors_from("server"))
def test_an_answer_is_written_to_the_byte(vector: dict[str, Any]) -> None:
    """What the server writes for a frame is the vector, in both codecs, entries included."""
    frame: Any = msgspec.json.decode(vector["json"], type=ServerFrames)
    assert JSON.encode(frame).decode() == vector["json"]
    if isinstance(frame, MessageBatch | Messages):
        frame.entries = MSGPACK.entries([bytes(raw) for raw in frame.entries])
    assert MSGPACK.encode(frame).hex() == vector["msgpack"]


@pytest.mark.parametrize("vector", vectors_from("server"))
def test_both_codecs_say_the_same(vector: dict[str, Any]) -> None:
    """Read by somebody else's decoder, JSON and MessagePack hold the same value."""
    assert json.loads(vector["json"]) == vector["value"]
    assert msgspec.msgpack.decode(bytes.fromhex(vector["msgpack"])) == vector["value"]
