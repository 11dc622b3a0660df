"""The OpenAPI document is valid, complete and typed, and its examples are what it says."""

from collections.abc import Iterator
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from parley.gateway import fields, system
from parley.gateway.api import ROUTES
from parley.gateway.openapi import TAGS, document
from parley.wire import limits

OPERATIONS = [*ROUTES, *system.OPERATIONS]
DOCUMENT = document(OPERATIONS)


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield f"{method} {path}", operation


def resolved(part: dict[str, Any]) -> dict[str, Any]:
    """What a reference within the document names."""
    while "$ref" in part:
        found: Any = DOCUMENT
        for step in part["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        part = found
    return part


def check(value: Any, schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator({**schema, "components": DOCUMENT["components"]}).validate(value)


def media_types() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, operation in operations():
        parts = [operation.get("requestBody", {}), *operation["responses"].values()]
        for part in parts:
            for media in resolved(part).get("content", {}).values():
                yield name, media


def test_it_is_valid_openapi_3_1() -> None:
    """The document holds against the meta schema of OpenAPI 3.1, references and all."""
    from openapi_spec_validator import OpenAPIV31SpecValidator

    assert [str(error) for error in OpenAPIV31SpecValidator(DOCUMENT).iter_errors()] == []


def test_every_example_is_what_its_schema_says() -> None:
    """Examples of bodies, answers, refusals, parameters and fields validate against their schemas."""
    checked = 0
    for _, media in media_types():
        examples = [one["value"] for one in media.get("examples", {}).values()]
        for example in [*examples, *([media["example"]] if "example" in media else [])]:
            check(example, media["schema"])
            checked += 1
    for _, operation in operations():
        for parameter in operation["parameters"]:
            assert "example" in parameter or not parameter["required"]
            if "example" in parameter:
                check(parameter["example"], parameter["schema"])
    for schema in DOCUMENT["components"]["schemas"].values():
        for described in schema.get("properties", {}).values():
            for example in described.get("examples", []):
                check(example, {name: value for name, value in described.items() if name != "examples"})
    assert checked > len(OPERATIONS)


def test_every_json_body_has_an_example() -> None:
    """A reader sees a whole body, not only its fields."""
    without = [name for name, media in media_types() if "$ref" in media["schema"] and "example" not in media]
    assert without == []


def test_every_operation_is_described() -> None:
    """Each has a tag that is described, a summary, a description and an id of its own."""
    names = [operation["operationId"] for _, operation in operations()]
    assert len(names) == len(set(names)) == len(OPERATIONS)
    for name, operation in operations():
        assert set(operation["tags"]) <= set(TAGS), name
        assert operation["summary"], name
        assert operation["description"].endswith("."), name


def test_every_field_is_described_and_no_description_is_left_over() -> None:
    """Each field of each body has its words in `fields.FIELDS`, and each of those is of a field."""
    used = set()
    for name, schema in DOCUMENT["components"]["schemas"].items():
        for field, described in schema.get("properties", {}).items():
            used.add(f"{name}.{field}" if f"{name}.{field}" in fields.FIELDS else field)
            assert described["description"], (name, field)
    assert used == set(fields.FIELDS)


@pytest.mark.parametrize(
    ("operation", "name", "expected"),
    [
        (
            "get /v1/chats",
            "limit",
            {"type": "integer", "minimum": 1, "default": limits.OVERVIEW_CHATS_DEFAULT},
        ),
        (
            "get /v1/chats/{chat_id}/messages",
            "after",
            {"type": "integer", "minimum": 0, "maximum": limits.SEQUENCE_MAX, "default": 0},
        ),
        (
            "get /v1/presence",
            "user_ids",
            {"type": "array", "items": {"type": "string"}, "maxItems": limits.PRESENCE_BATCH_MAX},
        ),
        ("get /v1/me", "X-Request-Id", {"type": "string", "maxLength": 64}),
        ("get /v1/search", "q", {"type": "string", "minLength": 1, "maxLength": limits.SEARCH_CHARS_MAX}),
    ],
)
def test_parameters_have_types_and_limits(operation: str, name: str, expected: dict[str, Any]) -> None:
    """A generated client knows what a parameter may be."""
    found = next(one for one in dict(operations())[operation]["parameters"] if one["name"] == name)
    assert found["schema"] == expected
    assert found["required"] == (name == "q")


def test_refusals_are_told_by_status_and_code() -> None:
    """Each operation names the codes that it may be refused with, under their status."""
    responses = dict(operations())["post /v1/chats/{chat_id}/messages"]["responses"]
    told = {
        status: resolved(response)["content"]["application/json"]["schema"]["allOf"][1]["properties"]["code"][
            "enum"
        ]
        for status, response in responses.items()
        if int(status) >= 400
    }
    assert told["409"] == ["duplicate_id", "out_of_turn"]
    assert told["403"] == ["announcement_only", "blocked", "not_a_member"]
    assert told["429"] == ["rate_limited", "slow_mode"]
    assert {"413", "415", "401", "500", "503"} <= set(told)


def test_a_token_is_asked_for_where_it_is_needed() -> None:
    """Every operation says whether it needs a token; the scheme is described."""
    without = {name for name, operation in operations() if operation["security"] == []}
    expected = {f"{one.method.lower()} {one.path}" for one in OPERATIONS if one.needs == "nothing"}
    assert without == expected
    assert "post /v1/sessions" in without
    scheme = DOCUMENT["components"]["securitySchemes"]["token"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")


def objects_in(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The objects that a value of this schema is made of."""
    schema = resolved(schema)
    if "properties" in schema:
        yield schema
    parts = [*schema.get("properties", {}).values(), *schema.get("anyOf", []), schema.get("items", {})]
    for part in parts:
        if part:
            yield from objects_in(part)


@pytest.mark.parametrize("name", [f"{one.method} {one.path}" for one in OPERATIONS if one.body is not None])
def test_bodies_take_no_other_fields(name: str) -> None:
    """So say the schemas of what requests carry, also of what is within."""
    method, _, path = name.partition(" ")
    body = DOCUMENT["paths"][path][method.lower()]["requestBody"]["content"]["application/json"]["schema"]
    found = list(objects_in(body))
    assert found
    assert [one["title"] for one in found if one.get("additionalProperties") is not False] == []
