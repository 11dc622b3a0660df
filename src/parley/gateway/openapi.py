"""The OpenAPI document, made from the same table and types that serve the requests."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from parley import __version__
from parley.gateway import bodies
from parley.gateway.calls import Endpoint
from parley.wire.frames import Entry

REF = "#/components/schemas/{name}"


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The whole contract over HTTP, as OpenAPI 3.1."""
    types = {t for e in endpoints for t in (e.takes, e.answers) if t is not None} | {bodies.Problem, Entry}
    ordered = sorted(types, key=lambda kind: str(kind.__name__))
    _, components = msgspec.json.schema_components(ordered, ref_template=REF, schema_hook=_raw_entry)
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Parley",
            "version": __version__,
            "description": "Every chat is one totally ordered, durable log. Live delivery is at /v1/ws.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.handler.__name__,
        "summary": endpoint.summary,
        "parameters": _parameters(endpoint),
        "responses": {
            str(endpoint.status): _answer(endpoint, "Done"),
            "default": {"description": "Refused", "content": _content(bodies.Problem)},
        },
    }
    if endpoint.again is not None:
        operation["responses"][str(endpoint.again)] = _answer(endpoint, "It had been there already")
    if endpoint.takes is not None:
        operation["requestBody"] = {"required": True, "content": _content(endpoint.takes)}
    if endpoint.needs != "nothing":
        operation["security"] = [{"token": []}]
    return operation


def _parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    path = [_parameter(name, "path", True) for name in re.findall(r"{(\w+)}", endpoint.path)]
    return path + [_parameter(name, "query", False) for name in endpoint.query]


def _parameter(name: str, where: str, required: bool) -> dict[str, Any]:
    return {"name": name, "in": where, "required": required, "schema": {"type": "string"}}


def _answer(endpoint: Endpoint, description: str) -> dict[str, Any]:
    if endpoint.answers is None:
        return {"description": description}
    return {"description": description, "content": _content(endpoint.answers)}


def _content(kind: Any) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": REF.format(name=kind.__name__)}}}


def _raw_entry(kind: type) -> dict[str, Any]:
    """Entries are passed through as they are stored; their shape is the frame's."""
    return {"$ref": REF.format(name="Entry")}
