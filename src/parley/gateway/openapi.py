"""The OpenAPI 3.1 document, made from the routes and types that serve the requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from parley import __version__
from parley.errors import Refusal
from parley.gateway.fields import FIELDS
from parley.gateway.routes import JSON, Operation, Parameter, alternatives
from parley.wire.bodies import Problem

REF = "#/components/{section}/{name}"
SCHEMA_REF = "#/components/schemas/{name}"
DESCRIPTION = """\
Every chat is one totally ordered, durable log. A send is answered once the message is durable.

Register, log in, and send the token as `Authorization: Bearer prl_…`. Bodies are JSON. A refusal is a
`Problem`: its `code` is stable, `temporary` says whether the same request may work later, and
`retry_after_ms` when.

New messages arrive over a WebSocket at `/v1/ws`, which `/v1/asyncapi.json` describes. This document is
about HTTP."""
LICENSE = {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"}
TAGS = {
    "Accounts": "Registration, sessions and devices.",
    "People": "Profiles and settings, presence, contacts and blocks.",
    "Chats": "Chats, their members, and invitations.",
    "Messages": "Sending, reading the log, and receipts.",
    "Attachments": "Files that messages refer to.",
    "Search": "Finding messages by their words.",
    "Push": "Devices that get notifications while you are away.",
    "Operators": "What operators do to people, and the record of it. Needs an operator's token.",
    "Live": "The WebSocket.",
    "Server": "Health, metrics, and this document.",
}
MEANINGS = {
    101: "The WebSocket is open",
    200: "Done",
    201: "Created",
    202: "Accepted: the server goes on with it, or people were only invited",
    204: "Done; there is no body",
    206: "A range of it",
    503: "Not ready",
}
EXISTED = "It had been there already; nothing changed"
REFUSED = {
    400: "The request is not well formed",
    401: "A valid token, or the right password, is needed",
    403: "Not allowed",
    404: "There is nothing here, or it is not yours to see",
    408: "The body did not arrive in time",
    409: "It does not fit the present state",
    410: "The link cannot be used any more",
    413: "Too large",
    415: "The body is not JSON, or files of this type are not taken",
    416: "There is no such range",
    422: "The bytes are not the announced ones",
    429: "Too fast",
    500: "Something went wrong in the server",
    503: "It cannot be done now",
}


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    """The whole contract over HTTP."""
    schemas = _schemas(operations)
    writer = _Writer(schemas)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = writer.operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Parley",
            "version": __version__,
            "description": DESCRIPTION,
            "license": LICENSE,
        },
        "servers": [{"url": "/", "description": "This server"}],
        "tags": [{"name": name, "description": description} for name, description in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": writer.responses,
            "headers": {
                "X-Request-Id": _header("The name of this request in the server's log.", {"type": "string"}),
                "Retry-After": _header("Seconds to wait before a retry.", {"type": "integer", "minimum": 1}),
            },
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The `token` of `POST /v1/sessions`.",
                }
            },
        },
    }


def _schemas(operations: Sequence[Operation]) -> dict[str, Any]:
    """Every type that a body is made of, its fields with what they mean and an example."""
    bodies = (body for one in operations for body in (one.body, *one.answers.values()))
    kinds = {kind for body in bodies for kind in alternatives(body) if _is_struct(kind)}
    ordered = sorted(kinds | {Problem}, key=lambda kind: str(kind.__name__))
    _, schemas = msgspec.json.schema_components(ordered, ref_template=SCHEMA_REF)
    schemas["Batch"] = schemas.pop("Batch_ShownEntry_") | {"title": "Batch"}
    for name, schema in schemas.items():
        properties = schema.get("properties", {})
        properties.pop("re", None)  # names the request that a frame answers
        for field, described in properties.items():
            known = FIELDS.get(f"{name}.{field}") or FIELDS[field]
            described["description"] = known.description
            if known.example is not UNSET:
                described["examples"] = [known.example]
    return dict(sorted(schemas.items()))


def _is_struct(kind: Any) -> bool:
    return kind is not None and kind not in (str, dict[str, Any])


class _Writer:
    """Writes operations, and collects the refusals that they share."""

    def __init__(self, schemas: dict[str, Any]) -> None:
        self._schemas = schemas
        self.responses: dict[str, Any] = {}

    def operation(self, operation: Operation) -> dict[str, Any]:
        written: dict[str, Any] = {
            "operationId": operation.name,
            "tags": [operation.tag],
            "summary": operation.summary,
            "description": operation.description,
            "parameters": [
                _parameter(one, where) for where, found in operation.parameters.items() for one in found
            ],
            "responses": self._refusals(operation.all_refusals) | self._answers(operation),
        }
        if operation.body is not None:
            written["requestBody"] = {"required": True, "content": self._content(operation.body)}
        written["security"] = [] if operation.needs == "nothing" else [{"token": []}]
        return written

    def _answers(self, operation: Operation) -> dict[str, Any]:
        answers: dict[str, Any] = {}
        usual = next(iter(operation.answers))
        for status, kind in operation.answers.items():
            is_repeat = (usual, status) == (201, 200)
            answers[str(status)] = {
                "description": EXISTED if is_repeat else MEANINGS[status],
                "headers": {"X-Request-Id": {"$ref": REF.format(section="headers", name="X-Request-Id")}},
            }
            if kind is not None:
                answers[str(status)]["content"] = self._content(kind, operation.media)
        return answers

    def _refusals(self, refusals: Sequence[Refusal]) -> dict[str, Any]:
        by_status: dict[int, dict[str, Refusal]] = {}
        for refusal in refusals:
            by_status.setdefault(refusal.status, {}).setdefault(refusal.code, refusal)
        return {str(status): self._refusal(status, by_status[status]) for status in sorted(by_status)}

    def _refusal(self, status: int, by_code: dict[str, Refusal]) -> dict[str, Any]:
        """A reference to the answer of this status with exactly these codes."""
        codes = sorted(by_code)
        name = ".".join([str(status), *codes])
        schema = {
            "allOf": [
                {"$ref": SCHEMA_REF.format(name="Problem")},
                {"properties": {"code": {"enum": codes}}},
            ]
        }
        headers = ["X-Request-Id"] + ["Retry-After"] * any(
            refusal.retry_after_ms is not None for refusal in by_code.values()
        )
        self.responses[name] = {
            "description": f"{REFUSED[status]}: {', '.join(f'`{code}`' for code in codes)}",
            "headers": {header: {"$ref": REF.format(section="headers", name=header)} for header in headers},
            "content": {
                JSON: {
                    "schema": schema,
                    "examples": {code: {"value": _problem(by_code[code])} for code in codes},
                }
            },
        }
        return {"$ref": REF.format(section="responses", name=name)}

    def _content(self, kind: Any, media: str = JSON) -> dict[str, Any]:
        if not _is_struct(kind):
            return {media: {"schema": {"type": "string" if kind is str else "object"}}}
        found = [{"$ref": SCHEMA_REF.format(name=one.__name__)} for one in alternatives(kind)]
        schema = found[0] if len(found) == 1 else {"oneOf": found}
        return {media: {"schema": schema, "example": self._example(found[0])}}

    def _example(self, schema: dict[str, Any]) -> Any:
        """A value made of the examples of its fields."""
        if "examples" in schema:
            return schema["examples"][0]
        if "$ref" in schema:
            return self._example(self._schemas[schema["$ref"].rpartition("/")[2]])
        if "anyOf" in schema:
            return self._example(schema["anyOf"][0])
        if "enum" in schema:
            return schema["enum"][0]
        if schema["type"] == "array":
            return [self._example(schema["items"])]
        is_plain = {"boolean", "integer", "string"}
        return {
            name: self._example(described)
            for name, described in schema["properties"].items()
            if "examples" in described or described.get("type") not in is_plain
        }


def _problem(refusal: Refusal) -> dict[str, Any]:
    written = {"code": refusal.code, "reason": refusal.reason, "temporary": refusal.temporary}
    retry = refusal.retry_after_ms
    return written if retry is None else written | {"retry_after_ms": retry}


def _parameter(one: Parameter, where: str) -> dict[str, Any]:
    schema = msgspec.json.schema(one.kind)
    if one.default is not UNSET:
        schema["default"] = one.default
    written = {
        "name": one.name,
        "in": where,
        "required": one.is_required,
        "description": one.description,
        "schema": schema,
    }
    if one.example is not UNSET:
        written["example"] = one.example
    is_list = schema.get("type") == "array"
    return written | {"style": "form", "explode": False} if is_list else written


def _header(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "schema": schema}
