"""The OpenAPI document is what the server really does: same routes, same bodies, same answers."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jsonschema  # type: ignore[import-untyped]
import pytest

from parley.core.deliveries import DeliveryEvent, Selection, Webhook
from parley.gateway import web_pages
from parley.model import Scope
from parley.wire.limits import ATTACHMENT_PART_BYTES
from tests.contracts.test_dead_letters import dead_letter
from tests.harness.clients import PASSWORD, Answer, HttpClient, Person
from tests.integration.gateway.built_pages import PAGES, SCRIPT, build_pages
from tests.integration.gateway.serving import Place, Served, message
from tests.integration.gateway.uploading import Sharing
from tests.security.browsers import Browser


class Call(NamedTuple):
    """One request by the document's names, and what it must come to."""

    method: str
    path: str
    body: Any = None
    status: int = 200
    query: Mapping[str, str | int] = MappingProxyType({})
    names: Mapping[str, str] = MappingProxyType({})
    """What stands in its path, if not what stands in the others'."""


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
        schemas = {one["name"]: one["schema"] for one in operation["parameters"] if one["in"] == "query"}
        for name, value in call.query.items():
            read: Any = value
            if schemas[name]["type"] == "array":
                read = str(value).split(",")
            elif schemas[name]["type"] == "boolean":
                read = json.loads(str(value))
            self._validate(read, schemas[name])

    def check_answer(self, call: Call, answer: Answer) -> None:
        response = self.operation(call)["responses"][str(answer.status)]
        if "$ref" in response:
            response = self._document["components"]["responses"][response["$ref"].rpartition("/")[2]]
        sent = {name.lower() for name in answer.headers}
        assert {name.lower() for name in response["headers"]} <= sent | {"retry-after"}
        if "content" in response:
            ((media, content),) = response["content"].items()
            assert answer.headers["Content-Type"].startswith(media.rstrip("*/")), call
            self._validate(answer.body, content["schema"])
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
        assert served_routes == document.operations
        document.check_schemas()


async def test_operation_ids_are_unique(place: Place) -> None:
    """A generated client gets one name per operation."""
    async with place.serving() as served:
        paths = (await served.http.get("/v1/openapi.json")).body["paths"].values()
        names = [operation["operationId"] for methods in paths for operation in methods.values()]
        assert len(names) == len(set(names))


async def test_every_operation_takes_and_answers_what_the_document_says(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each operation is called as documented, and its answer has the documented status and shape."""
    build_pages(tmp_path)
    monkeypatch.setattr(web_pages, "ROOTS", {name: (tmp_path / name,) for name in PAGES})
    async with place.serving() as served:
        document = await fetched(served)
        ann = await served.operator("ann")
        ben, cem, dora = await served.people("ben", "cem", "dora")
        tablet = await served.http.login("ann", "tablet")
        await served.http.login("ann", "watch")
        theirs = await served.http.login("ben", "tablet")
        group = await served.as_(ann).create_group(ben)
        sent = message("hello", display_time="2026-01-01T00:00:00Z")
        names = {
            "chat_id": group,
            "user_id": ben.user_id,
            "session_id": tablet.session_id,
            "client_message_id": sent["client_message_id"],
            "device_id": "watch",
            "sequence": "1",
            "message_id": (await served.said(ann, group, "hi"))[0]["message_id"],
            "file": "docs.js",
            "connection_id": "ses_0.7f0a",
            "node_id": "node_0",
            "job": "log_hashes",
            **await with_deliveries(served),
            **await with_tokens(served, ann, group),
            "attachment_id": (await Sharing(served, ann, group).upload(b"some"))["attachment_id"],
        }

        async def check(call: Call, **given: str) -> None:
            document.check_request(call)
            is_theirs = call.path.startswith("/v1/admin")
            named = names | {"session_id": theirs.session_id} if is_theirs else names
            answer = await perform(served.as_(ann), call, {**named, **given})
            assert answer.status == call.status, (call, answer)
            document.check_answer(call, answer)
            document.operations.discard((call.method, call.path))

        for call in calls(sent, ann.user_id, ben.user_id, cem.user_id):
            await check(call)
        for call, given in invitation_calls(dora.user_id, [await inviting(served, dora, ann) for _ in "12"]):
            await check(call, **given)
        for call, given in people_calls(await with_people(served, ann)):
            await check(call, **given)
        await check_transfers(document, Sharing(served, ann, group))
        await check_pages(document, served)
        assert document.operations == set(), "not called"


async def check_pages(document: Document, served: Served) -> None:
    """What pages of a browser ask with a cookie, and a sign-out."""
    await served.people("page")
    browser = Browser(served)
    session, out = "/v1/web/session", "/v1/sessions/current"
    body = {"username": "page", "password": PASSWORD, "device_id": "web"}
    for call in (
        Call("POST", session, body, 201),
        Call("POST", f"{session}/refresh", {"active": True}),
        Call("DELETE", session, status=204),
    ):
        answer = await browser.ask(call.method, call.path, call.body)
        document.check_request(call)
        document.check_answer(call, answer)
        document.operations.discard((call.method, call.path))
    other = served.as_(await served.http.login("page", "pad"))
    document.check_answer(Call("DELETE", out, status=204), await other.delete(out))
    document.operations.discard(("DELETE", out))


async def check_transfers(document: Document, ann: Sharing) -> None:
    """The bytes of a file: up in two ranges, and down."""
    upload, download = "/v1/uploads/{token}", "/v1/files/{token}"
    data = bytes(ATTACHMENT_PART_BYTES + 1)
    url = (await ann.announce(data)).body["upload_url"]
    for start, end, status in [(0, len(data) - 1, 200), (len(data) - 1, len(data), 201)]:
        content_range = f"bytes {start}-{end - 1}/{len(data)}"
        answer = await ann.put(url, data[start:end], **{"Content-Range": content_range})
        call = Call("PUT", upload, status=status)
        assert answer.status == status, answer
        document.check_answer(call, answer)
    progress = await ann.served.http.get(url)
    document.check_answer(Call("GET", upload), progress)
    address = await ann.url(progress.body["attachment_id"])
    read = await ann.served.http.get(address.removeprefix(ann.served.url))
    document.check_answer(Call("GET", download), read)
    document.operations -= {("PUT", upload), ("GET", upload), ("GET", download)}


async def with_tokens(served: Served, ann: Person, chat_id: str) -> dict[str, str]:
    """A token to revoke, and one of a chat to post by."""
    make = served.app.identities.api_tokens.make
    _, kept = await make(ann.user_id, "old")
    token, _ = await make(ann.user_id, "hook", [Scope.SEND], chat_id)
    return {"token_id": kept.token_id, "token": token}


async def with_people(served: Served, ann: Person) -> dict[str, str]:
    """A message of Eve's in a group with Ann, a report of it, a link, and an erasure."""
    (eve,) = await served.people("eve")
    chat_id = await served.as_(ann).create_group(eve)
    first, second = await served.said(eve, chat_id, "rude", "ruder")
    report, _ = await served.app.reports.add(ann.user_id, chat_id, first["message_id"], "rude")
    link = (await served.as_(ann).post("/v1/admin/invites", {})).body
    await served.app.body_admin.begin("user_gone")
    return {
        "chat_id": chat_id,
        "message_id": second["message_id"],
        "report_id": report.report_id,
        "link_id": link["link_id"],
        "user_id": eve.user_id,
        "file": "link.js",
    }


def people_calls(given: dict[str, str]) -> list[tuple[Call, dict[str, str]]]:
    """Links, reports, deletions and who may post."""
    invites, reports, user = "/v1/admin/invites", "/v1/admin/reports", "/v1/admin/users/{user_id}"
    report = "/v1/chats/{chat_id}/messages/{message_id}/report"
    found = [
        Call("POST", invites, {"uses": 2, "expires_in_seconds": 60, "note": "x"}, 201),
        Call("GET", invites, query={"before": "", "limit": 1}),
        Call("DELETE", f"{invites}/{{link_id}}", status=204),
        Call("POST", f"{user}/password-reset", {"expires_in_seconds": None}, 201),
        Call("DELETE", f"{user}/password-reset", status=204),
        Call("POST", "/v1/password-reset", {"token": "rst_0", "new_password": "another one"}, 404),
        Call("POST", report, {"reason": "rude"}, 201),
        Call("POST", report, {"reason": "rude"}, 200),
        Call("GET", reports, query={"status": "open", "limit": 1}),
        Call("GET", f"{reports}/{{report_id}}"),
        Call("POST", f"{reports}/{{report_id}}/resolve", {"outcome": "dismissed", "note": "x"}),
        Call("POST", f"{reports}/{{report_id}}/resolve", {"outcome": "deleted"}, 409),
        Call("POST", f"{reports}/{{report_id}}/act", {"outcome": "dismissed", "note": "x", "reason": "no"}),
        Call("DELETE", "/v1/me", {"password": "wrong"}, 401),
        Call("GET", "/link"),
        Call("GET", "/link/{file}"),
    ]
    erasure = Call("GET", "/v1/admin/erasures/{user_id}"), {**given, "user_id": "user_gone"}
    gone = Call("DELETE", "/v1/admin/chats/{chat_id}", {"reason": "a report"}, 404), {"chat_id": "chat_gone"}
    return [*((call, given) for call in found), erasure, gone]


async def with_deliveries(served: Served) -> dict[str, str]:
    """A webhook of a chat that nobody uses, and a dead letter that a job has chosen; their names."""
    deliveries = served.app.kinds.deliveries
    assert deliveries is not None
    await deliveries.webhooks.add(
        Webhook(
            webhook_id="wh_1", url="https://a.example/", events=(), secret="", created_ms=0, chat_id="none"
        )
    )
    await deliveries.dead_letters.add(dead_letter(1))
    await deliveries.dead_letters.queue(Selection(), "job_1", DeliveryEvent(0, "replay"))
    return {"webhook_id": "wh_1", "dlq_id": dead_letter(1).dlq_id, "job_id": "job_1"}


async def inviting(served: Served, by: Person, person: Person) -> str:
    """A group that somebody is invited to, who themself lets nobody add them; nor does the inviter."""
    for one in (by, person):
        await served.as_(one).patch("/v1/me", {"who_may_add": "nobody"})
    body = {"type": "group", "member_ids": [person.user_id]}
    return str((await served.as_(by).post("/v1/chats", body)).body["chat_id"])


def invitation_calls(dora: str, chats: list[str]) -> list[tuple[Call, dict[str, str]]]:
    """Ann accepts one, declines the other, and invites Dora to a group of hers."""
    of_chat = "/v1/chats/{chat_id}/invitations"
    return [
        (Call("GET", "/v1/invitations", query={"after": "", "limit": 1}), {}),
        (Call("POST", "/v1/invitations/{chat_id}", status=201), {"chat_id": chats[0]}),
        (Call("DELETE", "/v1/invitations/{chat_id}", status=204), {"chat_id": chats[1]}),
        (Call("POST", "/v1/chats/{chat_id}/members", {"user_id": dora}, 202), {}),
        (Call("GET", of_chat, query={"after": "", "limit": 1}), {}),
        (Call("DELETE", f"{of_chat}/{{user_id}}", status=204), {"user_id": dora}),
    ]


def delivery_calls() -> list[Call]:
    """Dead letters and webhooks, those of `with_deliveries`, and the timeline of a message."""
    dlq, timeline = "/v1/admin/dlq", "/v1/admin/messages/{message_id}/timeline"
    hook = {"url": "https://a.example/", "events": ["message.created"], "chat_id": "none"}
    return [
        Call("GET", dlq, query={"status": "pending", "error": "timeout", "page": "", "limit": 3}),
        Call("GET", dlq, query={"after": "2026-01-01T00:00:00Z", "recipient": "wh_1"}),
        Call("GET", f"{dlq}/{{dlq_id}}"),
        Call("GET", f"{dlq}/jobs/{{job_id}}"),
        Call("POST", f"{dlq}/preview", {"filter": {"chat_id": "none"}}),
        Call("POST", "/v1/admin/chats/{chat_id}/recover", {"dry_run": True, "seal_holes": False}),
        Call("POST", f"{dlq}/replay", {"filter": {"chat_id": "none"}, "dry_run": True}),
        Call("POST", f"{dlq}/replay", {"ids": []}, 202),
        Call("POST", f"{dlq}/discard", {"ids": [], "reason": "none"}),
        Call("GET", timeline, query={"user_id": "user_0"}),
        Call("GET", timeline, status=404, query={"chat_id": "none"}),
        Call("GET", "/v1/admin/chats/{chat_id}/check"),
        Call("GET", "/v1/admin/chats", query={"q": "g", "type": "group", "after": "", "limit": 1}),
        Call("GET", "/v1/admin/chats/{chat_id}/members", query={"after": "", "limit": 1}),
        Call("GET", "/v1/admin/chats/{chat_id}/log", query={"around": "1", "limit": 1, "reveal": "a report"}),
        Call("DELETE", "/v1/admin/chats/{chat_id}/messages/{message_id}", {"reason": "a report"}, 204),
        Call("GET", "/v1/admin/users", query={"state": "active", "operator": "false", "bot": "true"}),
        Call("GET", "/v1/admin/users/{user_id}"),
        Call("PUT", "/v1/admin/users/{user_id}/operator", status=404),
        Call("DELETE", "/v1/admin/users/{user_id}/operator", status=404),
        Call("GET", "/v1/admin/webhooks"),
        Call("POST", "/v1/admin/webhooks", hook, 201),
        Call("PATCH", "/v1/admin/webhooks/{webhook_id}", {"paused": True}),
        Call("POST", "/v1/admin/webhooks/{webhook_id}/test"),
        Call("POST", "/v1/admin/webhooks/{webhook_id}/secret"),
        Call("DELETE", "/v1/admin/webhooks/{webhook_id}", status=204),
        Call("GET", "/v1/admin/series", query={"names": "connections", "seconds": 60}),
        Call("GET", "/v1/admin/connections", query={"user_id": "user_0", "after": "", "limit": 1}),
        Call("DELETE", "/v1/admin/connections/{connection_id}", status=404),
        Call("POST", "/v1/admin/nodes/{node_id}/drain", status=404),
        Call("GET", "/v1/admin/backups"),
        Call("GET", "/v1/admin/dlq/summary", query={"status": "pending"}),
        Call("GET", "/v1/admin/dlq/jobs"),
        Call("GET", "/v1/admin/push"),
        Call("DELETE", "/v1/admin/users/{user_id}/push/{device_id}", status=404),
        Call("POST", "/v1/admin/jobs/{job}/run", status=202),
        Call("GET", "/v1/admin/erasures", query={"before": "", "limit": 1}),
    ]


def backend_calls(ann: str, cem: str) -> list[Call]:
    """Programs, and what a backend does for others: in a chat of Ann's."""
    tokens, chats, user = "/v1/admin/tokens", "/v1/admin/chats", "/v1/admin/users/{user_id}"
    external = {"user_id": "4711"}
    member, direct = f"{chats}/{{chat_id}}/members/{{user_id}}", {"type": "direct", "member_ids": [ann, cem]}
    return [
        Call("GET", tokens),
        Call("POST", tokens, {"name": "alerts", "scopes": ["read"], "expires_in_days": 3}, 201),
        Call("DELETE", f"{tokens}/{{token_id}}", status=204),
        Call("POST", "/v1/hooks/{token}", {"text": "hi"}, 201),
        Call("PUT", user, {"username": "erin", "is_bot": True}, 201, names=external),
        Call("PUT", user, {"about": "hm"}, 200, names=external),
        Call("POST", f"{user}/tokens", {"device_id": "d", "expires_in_seconds": 60}, 201),
        Call("POST", chats, direct, 201),
        Call("POST", chats, direct, 200),
        Call("PUT", member, {"role": "admin"}),
        Call("DELETE", member, status=204),
        Call("PUT", member, {}),
        Call("POST", f"{chats}/{{chat_id}}/messages", {"sender_id": ann, "content": "hi"}, 201),
    ]


def push_calls() -> list[Call]:
    """A device of Ann's, and how rings of her chat are fanned out."""
    device, chat = "/v1/me/push/{device_id}", "/v1/admin/chats/{chat_id}"
    return [
        Call("PUT", device, {"provider": "webhook", "token": "https://a.example/", "preview": False}),
        Call("GET", device),
        Call("GET", "/v1/me/push"),
        Call("DELETE", device, status=204),
        Call("GET", "/v1/push/vapid"),
        Call("GET", chat),
        Call("PATCH", chat, {"fanout": "hybrid"}),
        Call("PATCH", chat, {"fanout": None}),
        Call("GET", f"{chat}/retention"),
        Call("PUT", f"{chat}/retention", {"days": 30, "is_held": True}),
        Call("PUT", f"{chat}/retention", {"days": None}),
    ]


def file_calls() -> list[Call]:
    """A file that is announced, and another one that was never sent."""
    files = "/v1/chats/{chat_id}/attachments"
    return [
        Call("POST", files, {"name": "a", "size": 1, "content_type": "a/b"}, 201),
        Call("GET", f"{files}/{{attachment_id}}"),
        Call("DELETE", f"{files}/{{attachment_id}}", status=204),
    ]


def calls(sent: dict[str, Any], ann: str, ben: str, cem: str) -> list[Call]:
    """Every operation at least once, in an order in which each can succeed."""
    chat, member = "/v1/chats/{chat_id}", "/v1/chats/{chat_id}/members/{user_id}"
    login = {"username": "dan", "password": "dan's", "device_id": "pc", "device_name": "PC"}
    direct = {"type": "direct", "member_ids": [ben]}
    group = {"type": "group", "member_ids": [ben], "title": "G", "open_to_join": True}
    user = "/v1/admin/users/{user_id}"
    return [
        Call("POST", "/v1/accounts", {"username": "dan", "password": "dan's"}, 201),
        Call("POST", "/v1/sessions", login, 201),
        *backend_calls(ann, cem),
        *push_calls(),
        *file_calls(),
        Call("GET", "/v1/sessions"),
        Call("DELETE", "/v1/sessions/{session_id}", status=204),
        Call("GET", "/v1/me"),
        Call("PATCH", "/v1/me", {"display_name": "Ann", "about": None}),
        Call("PATCH", "/v1/me", {"last_seen_privacy": "contacts", "send_read_receipts": False}),
        Call("GET", "/v1/users/{user_id}"),
        Call("GET", "/v1/server"),
        Call("GET", "/v1/users", query={"username": "ben"}),
        Call("GET", "/v1/users", query={"ids": f"{cem},user_0"}),
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
        Call("POST", "/v1/chats", group, 201),
        Call("POST", "/v1/chats", direct, 201),
        Call("POST", "/v1/chats", direct, 200),
        Call("POST", f"{chat}/messages", sent, 201),
        Call("POST", f"{chat}/messages", sent, 200),
        Call("GET", "/v1/chats", query={"limit": 2}),
        Call("GET", "/v1/chats", query={"changed_since": "0.0"}),
        Call("GET", chat),
        Call("PATCH", chat, {"title": "New", "read_receipts": "simple", "muted_until": None}),
        Call("GET", f"{chat}/messages/{{sequence}}/receipts"),
        Call("GET", f"{chat}/messages/{{message_id}}"),
        Call("GET", f"{chat}/receipts"),
        Call("GET", f"{chat}/members", query={"after": "", "limit": 1}),
        Call("POST", f"{chat}/members", {"user_id": cem, "role": "admin"}, 201),
        Call("PATCH", member, {"role": "admin"}),
        Call("DELETE", member),
        *log_calls(chat),
        Call("POST", "/v1/me/password", {"old_password": "wrong", "new_password": "new"}, 401),
        Call(
            "POST", "/v1/me/password", {"old_password": "correct horse battery", "new_password": "new"}, 204
        ),
        Call("DELETE", "/v1/chats/{chat_id}/members/{user_id}", status=404),
        Call("POST", "/v1/accounts", {"username": "dan", "password": "x"}, 409),
        Call("GET", "/v1/admin/users", query={"q": "b", "after": "", "limit": 1}),
        Call("GET", f"{user}/sessions"),
        Call("DELETE", f"{user}/sessions/{{session_id}}", status=204),
        Call("DELETE", f"{user}/sessions", status=204),
        Call("POST", f"{user}/disable"),
        Call("POST", f"{user}/enable"),
        Call("POST", f"{user}/password", {"password": "another one"}, 204),
        Call("DELETE", user, status=202),
        Call("DELETE", user, status=400, query={"erase": "everything"}),
        Call("GET", "/v1/admin/audit", query={"before": "", "limit": 3}),
        Call("GET", "/v1/admin/overview"),
        Call("GET", "/v1/admin/jobs"),
        Call("GET", "/v1/admin/nodes"),
        Call("GET", "/v1/admin/topics"),
        *delivery_calls(),
        *(Call("GET", path) for path in ("/v1/openapi.json", "/v1/asyncapi.json", "/docs", "/docs/{file}")),
        *(Call("GET", path) for path in ("/", "/console", "/healthz", "/readyz", "/metrics")),
        Call("GET", "/assets/{asset}", names={"asset": Path(SCRIPT).name}),
        *(Call("GET", path) for path in ("/sw.js", "/manifest.webmanifest")),
        Call("POST", "/v1/web/reports", status=415),
        Call("GET", "/v1/ws", status=400),
    ]


def log_calls(chat: str) -> list[Call]:
    """What reads a log, in pages or by its words."""
    return [
        Call("GET", f"{chat}/messages", query={"after": 0, "limit": 10, "epoch": 1}),
        Call("GET", f"{chat}/messages", query={"before": 3}),
        Call("GET", f"{chat}/messages", query={"around": "2", "shown": "true"}),
        Call("GET", f"{chat}/messages", query={"at": "2026-01-01T00:00:00Z", "shown": "false"}),
        Call("POST", f"{chat}/messages/lookup", {"message_ids": ["msg_0"]}),
        Call("GET", f"{chat}/search", query={"q": "hi", "before": 9, "limit": 3}),
        Call("GET", "/v1/search", query={"q": "hi", "limit": 3}),
        Call("GET", "/v1/sends/{chat_id}/{client_message_id}"),
    ]


async def perform(client: HttpClient, call: Call, names: dict[str, str]) -> Answer:
    return await client.request(
        call.method, call.path.format(**{**names, **call.names}), call.body, **call.query
    )


async def test_every_operation_refuses_as_the_document_says(place: Place) -> None:
    """Without a token, without JSON, and of others' chats: each refusal has a documented status and code."""
    async with place.serving() as served:
        document = await fetched(served)
        ann = await served.operator("ann")
        ben, stranger = await served.people("ben", "cem")
        sent = message("hello")
        names = {
            "chat_id": await served.as_(ann).create_group(ben),
            "user_id": ben.user_id,
            "session_id": "ses_0",
            "client_message_id": sent["client_message_id"],
            "device_id": "nowhere",
            "sequence": "1",
            "file": "docs.js",
            "dlq_id": "dlq_0",
            "job_id": "job_0",
            "webhook_id": "wh_0",
            "connection_id": "ses_0.7f0a",
            "node_id": "node_0",
            "job": "log_hashes",
            "message_id": "msg_0",
            "attachment_id": "att_0",
        }
        names |= await with_tokens(served, ann, names["chat_id"]) | {"token_id": "tok_0"}
        for call in calls(sent, ann.user_id, ben.user_id, stranger.user_id):
            if document.operation(call)["security"] and call.path != "/metrics":
                answer = await perform(served.http, call, names)
                assert answer.status == 401, call
                document.check_answer(call, answer)
            if call.body is not None:
                answer = await perform(served.as_(ann), call._replace(body=None), names)
                assert answer.status == 415, call
                document.check_answer(call, answer)
            if "{" in call.path:
                document.check_answer(call, await perform(served.as_(stranger), call, names))


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
