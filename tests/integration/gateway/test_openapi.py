"""The OpenAPI document is what the server really does: same routes, same bodies, same answers."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jsonschema  # type: ignore[import-untyped]

from parley.testing.clients import Answer, HttpClient
from tests.integration.gateway.serving import Place, Served, message

BESIDE_THE_DOCUMENT = {"/v1/ws", "/v1/openapi.json", "/healthz", "/readyz", "/metrics"}


class Call(NamedTuple):
    """One request by the document's names, and what it must come to."""

    method: str
    path: str
    body: Any = None
    status: int = 200
    query: Mapping[str, str | int] = MappingProxyType({})


class Document:
    """The document as a client would use it."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document
        self.operations = {
            (method.upper(), path) for path, methods in document["paths"].items() for method in methods
        }

    def operation(self, call: Call) -> dict[str, Any]:
        found: dict[str, Any] = self._document["paths"][call.path][call.method.lower()]
        return found

    def check_request(self, call: Call) -> None:
        operation = self.operation(call)
        assert ("requestBody" in operation) == (call.body is not None), call
        if call.body is not None:
            self._validate(call.body, operation["requestBody"]["content"]["application/json"]["schema"])
        names = {p["name"] for p in operation["parameters"] if p["in"] == "query"}
        assert set(call.query) <= names

    def check_answer(self, call: Call, answer: Answer) -> None:
        responses = self.operation(call)["responses"]
        response = responses[str(answer.status)] if answer.status < 300 else responses["default"]
        if "content" in response:
            self._validate(answer.body, response["content"]["application/json"]["schema"])
        else:
            assert answer.body == ""

    def _validate(self, value: Any, schema: dict[str, Any]) -> None:
        whole = {**schema, "components": self._document["components"]}
        jsonschema.Draft202012Validator(whole).validate(value)

    def check_schemas(self) -> None:
        for schema in self._document["components"]["schemas"].values():
            jsonschema.Draft202012Validator.check_schema(schema)


async def fetched(served: Served) -> Document:
    answer = await served.http.get("/v1/openapi.json")
    assert (answer.status, answer.body["openapi"]) == (200, "3.1.0")
    return Document(answer.body)


async def test_the_document_names_exactly_the_routes(place: Place) -> None:
    """Every route is in the document, and nothing else is."""
    async with place.serving() as served:
        document = await fetched(served)
        served_routes = {
            (route.method, resource.canonical)
            for route in served.app.gateway.application().router.routes()
            if (resource := route.resource) is not None and route.method != "HEAD"
        }
        documented = document.operations | {("GET", path) for path in BESIDE_THE_DOCUMENT}
        assert served_routes == documented
        document.check_schemas()


async def test_operation_ids_are_unique(place: Place) -> None:
    """A generated client gets one name per operation."""
    async with place.serving() as served:
        paths = (await served.http.get("/v1/openapi.json")).body["paths"].values()
        names = [operation["operationId"] for methods in paths for operation in methods.values()]
        assert len(names) == len(set(names))


async def test_every_operation_takes_and_answers_what_the_document_says(place: Place) -> None:
    """Each operation is called as documented, and its answer has the documented status and shape."""
    async with place.serving() as served:
        document = await fetched(served)
        ann, ben, cem = await served.people("ann", "ben", "cem")
        tablet = await served.http.login("ann", "tablet")
        await served.http.login("ann", "watch")
        group = await served.as_(ann).create_group(ben)
        sent = message("hello", display_time="2026-01-01T00:00:00Z")
        names = {
            "chat_id": group,
            "user_id": ben.user_id,
            "session_id": tablet.session_id,
            "client_message_id": sent["client_message_id"],
            "device_id": "watch",
            "sequence": "1",
        }
        for call in calls(sent, ann.user_id, ben.user_id, cem.user_id):
            document.check_request(call)
            answer = await perform(served.as_(ann), call, names)
            assert answer.status == call.status, (call, answer)
            document.check_answer(call, answer)
            document.operations.discard((call.method, call.path))
        assert document.operations == set(), "not called"


def calls(sent: dict[str, Any], ann: str, ben: str, cem: str) -> list[Call]:
    """Every operation at least once, in an order in which each can succeed."""
    chat, member = "/v1/chats/{chat_id}", "/v1/chats/{chat_id}/members/{user_id}"
    login = {"username": "dan", "password": "dan's", "device_id": "pc", "device_name": "PC"}
    direct = {"type": "direct", "member_ids": [ben]}
    return [
        Call("POST", "/v1/accounts", {"username": "dan", "password": "dan's"}, 201),
        Call("POST", "/v1/sessions", login, 201),
        Call("GET", "/v1/sessions"),
        Call("DELETE", "/v1/sessions/{session_id}", status=204),
        Call("GET", "/v1/me"),
        Call("PATCH", "/v1/me", {"display_name": "Ann", "about": None}),
        Call("PATCH", "/v1/me", {"last_seen_privacy": "contacts", "send_read_receipts": False}),
        Call("GET", "/v1/users/{user_id}"),
        Call("GET", "/v1/users", query={"username": "ben"}),
        Call("GET", "/v1/devices"),
        Call("DELETE", "/v1/devices/{device_id}", status=204),
        Call("PUT", "/v1/contacts/{user_id}"),
        Call("POST", "/v1/contacts", {"user_id": ben}, 201),
        Call("GET", "/v1/contacts", query={"after": "", "limit": 1}),
        Call("DELETE", "/v1/contacts/{user_id}", status=204),
        Call("PUT", "/v1/blocks/{user_id}"),
        Call("POST", "/v1/blocks", {"user_id": ben}, 201),
        Call("GET", "/v1/blocks", query={"after": "", "limit": 1}),
        Call("DELETE", "/v1/blocks/{user_id}", status=204),
        Call("GET", "/v1/presence", query={"user_ids": ben}),
        Call(
            "POST",
            "/v1/chats",
            {"type": "group", "member_ids": [ben], "title": "G", "open_to_join": True},
            201,
        ),
        Call("POST", "/v1/chats", direct, 201),
        Call("POST", "/v1/chats", direct, 200),
        Call("POST", f"{chat}/messages", sent, 201),
        Call("POST", f"{chat}/messages", sent, 200),
        Call("GET", "/v1/chats", query={"limit": 2}),
        Call("GET", "/v1/chats", query={"changed_since": "0.0"}),
        Call("GET", chat),
        Call("PATCH", chat, {"title": "New", "read_receipts": "simple", "muted_until": None}),
        Call("GET", f"{chat}/messages/{{sequence}}/receipts"),
        Call("GET", f"{chat}/receipts"),
        Call("GET", f"{chat}/members", query={"after": "", "limit": 1}),
        Call("POST", f"{chat}/members", {"user_id": cem, "role": "admin"}, 201),
        Call("PATCH", member, {"role": "admin"}),
        Call("DELETE", member),
        Call("GET", f"{chat}/messages", query={"after": 0, "limit": 10, "epoch": 1}),
        Call("GET", f"{chat}/messages", query={"before": 3}),
        Call("GET", "/v1/sends/{chat_id}/{client_message_id}"),
        Call("POST", "/v1/me/password", {"old_password": "wrong", "new_password": "new"}, 401),
        Call(
            "POST", "/v1/me/password", {"old_password": "correct horse battery", "new_password": "new"}, 204
        ),
        Call("DELETE", "/v1/chats/{chat_id}/members/{user_id}", status=404),
        Call("POST", "/v1/accounts", {"username": "dan", "password": "x"}, 409),
    ]


async def perform(client: HttpClient, call: Call, names: dict[str, str]) -> Answer:
    return await client.request(call.method, call.path.format(**names), call.body, **call.query)


async def test_what_the_document_forbids_is_refused(place: Place) -> None:
    """A body that breaks its documented schema is refused, so the document is not looser than the server."""
    async with place.serving() as served:
        document = await fetched(served)
        (ann,) = await served.people("ann")
        wrong = [
            Call("POST", "/v1/accounts", {"username": "x"}),
            Call("PATCH", "/v1/me", {"display_name": ""}),
            Call("POST", "/v1/chats", {"type": "group", "member_ids": [], "title": "x" * 201}),
            Call("POST", "/v1/chats", {"type": "other", "member_ids": []}),
        ]
        for call in wrong:
            try:
                document.check_request(call)
            except jsonschema.ValidationError:
                answer = await perform(served.as_(ann), call, {})
                assert answer.status == 400
                document.check_answer(call, answer)
            else:
                raise AssertionError(f"the document allows {call}")
