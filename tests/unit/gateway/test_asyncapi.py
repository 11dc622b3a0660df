"""The AsyncAPI document is complete and typed, and every frame that was ever written holds against it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from msgspec import Struct

from parley.gateway import asyncapi, scopes
from parley.gateway.asyncapi import ANSWERED_BY, ANSWERS, FRAME_FIELDS, REQUESTS, document
from parley.gateway.fields import FIELDS

VECTORS = Path(__file__).resolve().parents[2] / "wire_vectors"
DOCUMENT = document()
SCHEMAS = DOCUMENT["components"]["schemas"]


def vectors() -> Iterator[Any]:
    for file in sorted(VECTORS.glob("*.json")):
        read = json.loads(file.read_text(encoding="utf-8"))
        for vector in read["vectors"]:
            name = f"{read['from']}.{read['type']}"
            yield pytest.param(name, vector["value"], id=f"{read['from']}: {vector['name']}")


def check(message: str, value: Any) -> None:
    schema = {**resolved(f"#/components/messages/{message}")["payload"], "components": DOCUMENT["components"]}
    jsonschema.Draft202012Validator(schema).validate(value)


def resolved(reference: str) -> Any:
    found: Any = DOCUMENT
    for step in reference.removeprefix("#/").split("/"):
        found = found[step]
    return found


def references(part: Any) -> Iterator[str]:
    """Every reference within the document."""
    if isinstance(part, dict):
        yield from ([part["$ref"]] if "$ref" in part else [])
        for inner in part.values():
            yield from references(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from references(inner)


@pytest.mark.parametrize(("message", "value"), list(vectors()))
def test_every_vector_holds_against_its_schema(message: str, value: Any) -> None:
    """What is on the wire is what the document says, entries included."""
    check(message, value)


@pytest.mark.parametrize(
    ("message", "value"),
    [
        ("client.hello", {"type": "hello", "token": "t"}),
        ("client.hello", {"type": "refresh", "token": "t", "device_id": "d"}),
        ("client.typing_start", {"type": "typing_start"}),
        ("client.sync_request", {"type": "sync_request", "chat_id": "c", "last_acked_sequence": -1}),
        ("server.messages", {"type": "messages", "chat_id": "c", "epoch": 1, "entries": [{}]}),
        ("server.typing", {"type": "typing", "chat_id": "c", "user_id": None, "expires_in_ms": 1}),
    ],
)
def test_another_frame_does_not(message: str, value: Any) -> None:
    """A field that is missing, a frame of another type, a chat without a name, a number out of range."""
    with pytest.raises(jsonschema.ValidationError):
        check(message, value)


def test_schemas_and_references_are_sound() -> None:
    """Each schema is one, and each reference leads somewhere."""
    for schema in SCHEMAS.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    found = list(references(DOCUMENT))
    assert found
    assert all(resolved(reference) for reference in found)


def test_every_frame_is_a_message_of_an_operation() -> None:
    """Each request is received and has its answers; each other frame is an answer, or pushed."""
    operations = DOCUMENT["operations"]
    received = {name for one in operations.values() if one["action"] == "receive" for name in messages(one)}
    answers = {name for one in operations.values() if "reply" in one for name in messages(one["reply"])}
    assert received == {asyncapi.message_name(kind) for kind in REQUESTS}
    assert answers | messages(operations["push"]) == {asyncapi.message_name(kind) for kind in ANSWERS}
    assert messages(operations["push"]) == {asyncapi.message_name(kind) for kind in scopes.PUSHES}


def messages(part: dict[str, Any]) -> set[str]:
    return {one["$ref"].rpartition("/")[2] for one in part["messages"]}


def test_every_request_says_what_answers_it() -> None:
    """A new frame cannot be forgotten."""
    assert set(ANSWERED_BY) == set(REQUESTS)


def test_every_frame_says_what_it_is() -> None:
    """Each has words of its own."""

    def words(kind: type[Struct]) -> str | None:
        return vars(kind).get("__doc__")

    assert [kind.__name__ for kind in (*REQUESTS, *ANSWERS) if not words(kind)] == []


def test_every_field_is_described_and_no_description_is_left_over() -> None:
    """Each field has its words, in FRAME_FIELDS or as the field of a body; each of those is of a field."""
    used = set()
    for name, schema in SCHEMAS.items():
        for field, described in schema["properties"].items():
            used |= {f"{name}.{field}", field}
            assert described["description"], (name, field)
            for example in described.get("examples", []):
                check_value(example, described)
    assert set(FRAME_FIELDS) <= used


def check_value(value: Any, described: dict[str, Any]) -> None:
    rest = {name: part for name, part in described.items() if name != "examples"}
    jsonschema.Draft202012Validator({**rest, "components": DOCUMENT["components"]}).validate(value)


def test_no_field_is_described_twice() -> None:
    """What a field means everywhere stands in one place."""
    assert [name for name in FRAME_FIELDS if FIELDS.get(name) == FRAME_FIELDS[name]] == []
