"""Every route and every frame against every kind of caller who should not get through.

The rows come from the route table and from the frames of the protocol: a new one without an entry fails.
"""

import contextlib
from typing import Any, get_args

import pytest
from msgspec import inspect

from parley.clock import MS_PER_DAY
from parley.gateway.api import ROUTES
from parley.gateway.routes import Route
from parley.wire import frames
from parley.wire.limits import SESSION_DAYS
from tests.harness.clients import Disconnected, Frame, HttpClient, Person
from tests.harness.clock import VirtualClock
from tests.integration.gateway.serving import Place, Served, message, new_id
from tests.integration.gateway.uploading import Sharing

NAMES = [f"{route.method} {route.path}" for route in ROUTES]
PUBLIC = {
    "GET /v1/server",
    "POST /v1/accounts",
    "POST /v1/sessions",
    "POST /v1/web/session",
    "POST /v1/web/session/refresh",
    "DELETE /v1/web/session",
    "POST /v1/hooks/{token}",
    "POST /v1/password-reset",
}
"""Without a token in a header."""
OK = "ok"
NEW_TOKEN_CODES = range(4_100, 4_200)
ANNS_OTHER_DEVICE = "tablet of ann"
OWN = (OK, OK, OK)
"""It concerns only the caller."""
OPERATOR = ("forbidden", "forbidden", "forbidden")
CHAT = ("not_a_member", "not_a_member", OK)
"""The blocked person is still a member of the direct chat, and reads what was written."""

HTTP: dict[str, tuple[str, str, str]] = {
    "GET /v1/sessions": OWN,
    "DELETE /v1/sessions/current": OWN,
    "DELETE /v1/sessions/{session_id}": ("not_found", "not_found", "not_found"),
    "GET /v1/devices": OWN,
    "DELETE /v1/devices/{device_id}": ("not_found", "not_found", "not_found"),
    "POST /v1/me/password": ("unauthenticated", "unauthenticated", "unauthenticated"),
    "GET /v1/me": OWN,
    "PATCH /v1/me": OWN,
    "GET /v1/users": OWN,
    "GET /v1/users/{user_id}": OWN,
    "GET /v1/presence": OWN,
    "GET /v1/contacts": OWN,
    "POST /v1/contacts": OWN,
    "PUT /v1/contacts/{user_id}": OWN,
    "DELETE /v1/contacts/{user_id}": OWN,
    "GET /v1/blocks": OWN,
    "POST /v1/blocks": OWN,
    "PUT /v1/blocks/{user_id}": OWN,
    "DELETE /v1/blocks/{user_id}": OWN,
    "POST /v1/chats": (OK, OK, "blocked"),
    "GET /v1/chats": OWN,
    "GET /v1/chats/{chat_id}": CHAT,
    "PATCH /v1/chats/{chat_id}": ("not_a_member", "not_a_member", "blocked"),
    "GET /v1/chats/{chat_id}/members": CHAT,
    "POST /v1/chats/{chat_id}/members": ("not_a_member", "not_a_member", "blocked"),
    "PATCH /v1/chats/{chat_id}/members/{user_id}": ("not_a_member", "not_a_member", "blocked"),
    "DELETE /v1/chats/{chat_id}/members/{user_id}": ("not_a_member", "not_a_member", "blocked"),
    "GET /v1/invitations": OWN,
    "POST /v1/invitations/{chat_id}": ("not_found", "not_found", "not_found"),
    "DELETE /v1/invitations/{chat_id}": ("not_found", "not_found", "not_found"),
    "GET /v1/chats/{chat_id}/invitations": ("not_a_member", "not_a_member", "forbidden"),
    "DELETE /v1/chats/{chat_id}/invitations/{user_id}": ("not_a_member", "not_a_member", "forbidden"),
    "POST /v1/chats/{chat_id}/messages": ("not_a_member", "not_a_member", "blocked"),
    "POST /v1/chats/{chat_id}/attachments": CHAT,
    "GET /v1/chats/{chat_id}/attachments/{attachment_id}": CHAT,
    "DELETE /v1/chats/{chat_id}/attachments/{attachment_id}": ("not_a_member", "not_a_member", "not_found"),
    "GET /v1/chats/{chat_id}/search": CHAT,
    "GET /v1/search": OWN,
    "GET /v1/chats/{chat_id}/messages": CHAT,
    "POST /v1/chats/{chat_id}/messages/lookup": CHAT,
    "GET /v1/chats/{chat_id}/messages/{message_id}": CHAT,
    "GET /v1/chats/{chat_id}/messages/{sequence}/receipts": CHAT,
    "GET /v1/chats/{chat_id}/receipts": CHAT,
    "GET /v1/sends/{chat_id}/{client_message_id}": ("not_found", "not_found", "not_found"),
    "GET /v1/admin/users": OPERATOR,
    "POST /v1/admin/users/{user_id}/disable": OPERATOR,
    "POST /v1/admin/users/{user_id}/enable": OPERATOR,
    "POST /v1/admin/users/{user_id}/password": OPERATOR,
    "DELETE /v1/admin/users/{user_id}": OPERATOR,
    "GET /v1/admin/users/{user_id}/sessions": OPERATOR,
    "DELETE /v1/admin/users/{user_id}/sessions": OPERATOR,
    "DELETE /v1/admin/users/{user_id}/sessions/{session_id}": OPERATOR,
    "GET /v1/admin/audit": OPERATOR,
    "GET /v1/admin/overview": OPERATOR,
    "GET /v1/admin/jobs": OPERATOR,
    "GET /v1/admin/nodes": OPERATOR,
    "GET /v1/admin/topics": OPERATOR,
    "POST /v1/admin/nodes/{node_id}/drain": OPERATOR,
    "DELETE /v1/admin/users/{user_id}/push/{device_id}": OPERATOR,
    "GET /v1/admin/backups": OPERATOR,
    "GET /v1/admin/dlq/jobs": OPERATOR,
    "GET /v1/admin/dlq/summary": OPERATOR,
    "GET /v1/admin/push": OPERATOR,
    "POST /v1/admin/jobs/{job}/run": OPERATOR,
    "POST /v1/admin/reports/{report_id}/act": OPERATOR,
    "GET /v1/admin/series": OPERATOR,
    "GET /v1/admin/connections": OPERATOR,
    "DELETE /v1/admin/connections/{connection_id}": OPERATOR,
    "GET /v1/admin/erasures": OPERATOR,
    "PATCH /v1/admin/webhooks/{webhook_id}": OPERATOR,
    "POST /v1/admin/webhooks/{webhook_id}/test": OPERATOR,
    "POST /v1/admin/webhooks/{webhook_id}/secret": OPERATOR,
    "GET /v1/admin/messages/{message_id}/timeline": OPERATOR,
    "GET /v1/admin/dlq": OPERATOR,
    "GET /v1/admin/dlq/{dlq_id}": OPERATOR,
    "POST /v1/admin/dlq/preview": OPERATOR,
    "POST /v1/admin/dlq/replay": OPERATOR,
    "POST /v1/admin/dlq/discard": OPERATOR,
    "GET /v1/admin/dlq/jobs/{job_id}": OPERATOR,
    "GET /v1/admin/webhooks": OPERATOR,
    "POST /v1/admin/webhooks": OPERATOR,
    "DELETE /v1/admin/webhooks/{webhook_id}": OPERATOR,
    "GET /v1/me/push": OWN,
    "PUT /v1/me/push/{device_id}": ("bad_request", "bad_request", "bad_request"),
    "GET /v1/me/push/{device_id}": ("not_found", "not_found", "not_found"),
    "DELETE /v1/me/push/{device_id}": ("not_found", "not_found", "not_found"),
    "GET /v1/push/vapid": OWN,
    "GET /v1/admin/chats/{chat_id}": OPERATOR,
    "PATCH /v1/admin/chats/{chat_id}": OPERATOR,
    "GET /v1/admin/chats": OPERATOR,
    "GET /v1/admin/chats/{chat_id}/members": OPERATOR,
    "GET /v1/admin/chats/{chat_id}/log": OPERATOR,
    "POST /v1/admin/chats/{chat_id}/recover": OPERATOR,
    "DELETE /v1/admin/chats/{chat_id}": OPERATOR,
    "DELETE /v1/admin/chats/{chat_id}/messages/{message_id}": OPERATOR,
    "GET /v1/admin/chats/{chat_id}/check": OPERATOR,
    "GET /v1/admin/chats/{chat_id}/retention": OPERATOR,
    "PUT /v1/admin/chats/{chat_id}/retention": OPERATOR,
    "GET /v1/admin/tokens": OPERATOR,
    "POST /v1/admin/tokens": OPERATOR,
    "DELETE /v1/admin/tokens/{token_id}": OPERATOR,
    "PUT /v1/admin/users/{user_id}": OPERATOR,
    "GET /v1/admin/users/{user_id}": OPERATOR,
    "PUT /v1/admin/users/{user_id}/operator": OPERATOR,
    "DELETE /v1/admin/users/{user_id}/operator": OPERATOR,
    "POST /v1/admin/users/{user_id}/tokens": OPERATOR,
    "POST /v1/admin/chats": OPERATOR,
    "PUT /v1/admin/chats/{chat_id}/members/{user_id}": OPERATOR,
    "DELETE /v1/admin/chats/{chat_id}/members/{user_id}": OPERATOR,
    "POST /v1/admin/chats/{chat_id}/messages": OPERATOR,
    "DELETE /v1/me": ("unauthenticated", "unauthenticated", "unauthenticated"),
    "POST /v1/admin/invites": OPERATOR,
    "GET /v1/admin/invites": OPERATOR,
    "DELETE /v1/admin/invites/{link_id}": OPERATOR,
    "POST /v1/admin/users/{user_id}/password-reset": OPERATOR,
    "DELETE /v1/admin/users/{user_id}/password-reset": OPERATOR,
    "GET /v1/admin/erasures/{user_id}": OPERATOR,
    "POST /v1/chats/{chat_id}/messages/{message_id}/report": ("not_a_member", "not_a_member", OK),
    "GET /v1/admin/reports": OPERATOR,
    "GET /v1/admin/reports/{report_id}": OPERATOR,
    "POST /v1/admin/reports/{report_id}/resolve": OPERATOR,
}
"""What a stranger, a removed member and a blocked person get, asking for what is Ann's."""
SIGN_OUT = "DELETE /v1/sessions/current"
"""Asked for last: the caller's token is over then."""
CALLERS = ("stranger", "removed", "blocked")

FRAMES: dict[str, tuple[str, str, str]] = {
    "hello": ("bad_request", "bad_request", "bad_request"),
    "refresh": ("unauthenticated", "unauthenticated", "unauthenticated"),
    "send_message": ("not_a_member", "not_a_member", "blocked"),
    "edit_message": ("not_a_member", "not_a_member", "blocked"),
    "delete_message": ("not_a_member", "not_a_member", "blocked"),
    "react": ("not_a_member", "not_a_member", "blocked"),
    "sync_request": CHAT,
    "sync": ("not_found", "not_found", OK),
    "sync_overview": OWN,
    "ack": ("not_a_member", "not_a_member", OK),
    "delivery_receipt": ("not_a_member", "not_a_member", OK),
    "read_receipt": ("not_a_member", "not_a_member", OK),
    "typing_start": ("not_a_member", "not_a_member", OK),
    "typing_stop": ("not_a_member", "not_a_member", OK),
    "attention": OWN,
    "presence_subscribe": OWN,
    "presence_query": OWN,
    "heartbeat": OWN,
}
"""The same for the frames of a connection that has said hello."""


class World:
    """Ann, and who wants what is hers: a stranger, a removed member of her group, a person she blocked."""

    def __init__(self, served: Served, people: dict[str, Person], group: str, direct: str) -> None:
        self.served = served
        self.people = people
        self.group = group
        self.direct = direct
        self.client_ids: dict[str, str] = {}
        self.message_ids: dict[str, str] = {}
        self.attachment_ids: dict[str, str] = {}

    def chat_of(self, caller: str) -> str:
        return self.direct if caller == "blocked" else self.group

    def path(self, route: Route, caller: str) -> str:
        ann = self.people["ann"]
        return route.path.format(
            chat_id=self.chat_of(caller),
            user_id=ann.user_id,
            session_id=ann.session_id,
            device_id=ANNS_OTHER_DEVICE,
            sequence=1,
            client_message_id=self.client_ids[self.chat_of(caller)],
            dlq_id="dlq_0",
            job_id="job_0",
            webhook_id="wh_0",
            connection_id="c0",
            node_id="node_0",
            message_id=self.message_ids[self.chat_of(caller)],
            attachment_id=self.attachment_ids[self.chat_of(caller)],
            token_id="tok_0",
            link_id="lnk_0",
            report_id="rep_0",
            job="publisher",
        )

    def body(self, route: Route) -> Any:
        ann = self.people["ann"].user_id
        bodies: dict[str, Any] = {
            "NewPassword": {"old_password": "wrong", "new_password": "another one"},
            "ProfileChange": {"about": "hm"},
            "NewRelation": {"user_id": ann},
            "NewChat": {"type": "group", "title": "spam", "member_ids": [ann]},
            "ChatChange": {"title": "mine"},
            "NewMember": {"user_id": ann},
            "MemberChange": {"role": "owner"},
            "NewMessage": message("spam"),
            "MessageLookup": {"message_ids": list(self.message_ids.values())},
            "NewAttachment": {"name": "spam", "size": 1},
            "PasswordReset": {"password": "mine from now on"},
            "ReplayOrder": {"filter": {}},
            "PreviewOrder": {"filter": {}},
            "WebhookChange": {"paused": True},
            "RecoveryOrder": {"dry_run": False},
            "DeletionReason": {"reason": "mine"},
            "DiscardOrder": {"filter": {}, "reason": "mine"},
            "NewWebhook": {"url": "https://example.com/", "events": ["message.created"]},
            "NewPushDevice": {"provider": "webhook", "token": "https://example.com/"},
            "FanoutChange": {"fanout": "write"},
            "RetentionChange": {"days": 30, "is_held": False},
            "NewApiToken": {"name": "mine", "scopes": ["admin"]},
            "ExternalUser": {"display_name": "mine"},
            "NewUserToken": {"device_id": "mine"},
            "NewChatOfOthers": {"type": "group", "title": "spam", "member_ids": [ann]},
            "MemberPut": {"role": "owner"},
            "MessageOnBehalf": {"sender_id": ann, "content": "spam"},
            "OwnDeletion": {"password": "wrong"},
            "NewInvite": {},
            "NewPasswordLink": {},
            "NewReport": {"reason": "spam"},
            "ReportResolution": {"outcome": "mine"},
            "ReportAction": {"reason": "mine", "disable_sender": True},
        }
        return bodies[route.body.__name__] if route.body is not None else None

    async def ask(self, client: HttpClient, route: Route, caller: str) -> str:
        """The code of the refusal, or ok."""
        query = {"username": "ann"} if route.path == "/v1/users" else {}
        if route.path == "/v1/presence":
            query = {"user_ids": self.people["ann"].user_id}
        if route.path.endswith("/search"):
            query = {"q": "alone"}
        answer = await client.request(route.method, self.path(route, caller), self.body(route), **query)
        assert answer.status < 500, answer
        return OK if answer.status < 300 else str(answer.body["code"])

    def _about(self, chat: str) -> dict[str, Any]:
        return {"chat_id": chat, "client_message_id": new_id(), "message_id": self.message_ids[chat]}

    def frame(self, kind: str, caller: str) -> dict[str, Any]:
        ann, chat = self.people["ann"], self.chat_of(caller)
        fields: dict[str, dict[str, Any]] = {
            "hello": {"token": ann.token, "device_id": ann.device_id},
            "refresh": {"token": ann.token},
            "send_message": {"chat_id": chat, "client_message_id": new_id(), "content": "spam"},
            "edit_message": {**self._about(chat), "content": "spam"},
            "delete_message": self._about(chat),
            "react": {**self._about(chat), "reaction": "x"},
            "sync_request": {"chat_id": chat, "last_acked_sequence": 0},
            "sync": {"last_message_id": self.message_ids[chat]},
            "sync_overview": {},
            "ack": {"chat_id": chat, "last_acked_sequence": 1},
            "delivery_receipt": {"chat_id": chat, "message_id": self.message_ids[chat]},
            "read_receipt": {"chat_id": chat, "read_up_to": 1},
            "typing_start": {"chat_id": chat},
            "typing_stop": {"chat_id": chat},
            "attention": {"looking": False},
            "presence_subscribe": {"user_ids": [ann.user_id]},
            "presence_query": {"user_ids": [ann.user_id]},
            "heartbeat": {},
        }
        return fields[kind]


async def build(served: Served) -> World:
    ann, ben, *_ = people = await served.people("ann", "ben", "stranger", "removed", "blocked")
    _, _, _, removed, blocked = people
    await served.http.login("ann", ANNS_OTHER_DEVICE)
    group = await served.as_(ann).create_group(ben, removed)
    direct = await served.as_(ann).create_direct(blocked)
    world = World(served, {person.username: person for person in people}, group, direct)
    for chat in (group, direct):
        said = message("for us alone")
        answer = await served.as_(ann).post(f"/v1/chats/{chat}/messages", said)
        file, _ = await Sharing(served, ann, chat).share(b"for us alone")
        world.attachment_ids[chat] = file["attachment_id"]
        world.client_ids[chat], world.message_ids[chat] = said["client_message_id"], answer.body["message_id"]
    await served.as_(ann).delete(f"/v1/chats/{group}/members/{removed.user_id}")
    await served.as_(ann).put(f"/v1/blocks/{blocked.user_id}")
    return world


def test_every_route_has_an_entry() -> None:
    """A route that is added says here what a stranger, a removed member and a blocked person get."""
    assert set(HTTP) | PUBLIC == set(NAMES)
    assert {name for name, route in zip(NAMES, ROUTES, strict=True) if route.needs == "nothing"} == PUBLIC


def test_every_frame_has_an_entry() -> None:
    """The same for frames."""
    kinds = {inspect.type_info(kind).tag for kind in get_args(frames.Request)}  # type: ignore[attr-defined]
    assert set(FRAMES) == kinds


@pytest.mark.parametrize("caller", CALLERS)
async def test_a_caller_gets_from_routes_what_the_matrix_says(caller: str, place: Place) -> None:
    """Nothing of Ann's is read or changed by somebody who may not, on any route."""
    async with place.serving() as served:
        world = await build(served)
        client = served.as_(world.people[caller])
        found = {
            name: await world.ask(client, route, caller)
            for name, route in zip(NAMES, ROUTES, strict=True)
            if name not in PUBLIC | {SIGN_OUT}
        }
        found[SIGN_OUT] = await world.ask(client, ROUTES[NAMES.index(SIGN_OUT)], caller)
        column = CALLERS.index(caller)
        assert found == {name: codes[column] for name, codes in HTTP.items()}
        assert (await served.as_(world.people["ann"]).get("/v1/me")).status == 200


async def revoked(served: Served, person: Person) -> None:
    await served.as_(person).delete(f"/v1/sessions/{person.session_id}")


async def disabled(served: Served, person: Person) -> None:
    root = await served.operator()
    await served.as_(root).post(f"/v1/admin/users/{person.user_id}/disable", None)


async def deleted(served: Served, person: Person) -> None:
    root = await served.operator()
    await served.as_(root).delete(f"/v1/admin/users/{person.user_id}")


ENDINGS = {"revoked": revoked, "disabled": disabled, "deleted": deleted}


@pytest.mark.parametrize("ending", [*ENDINGS, "expired", "without a token", "with a made-up token"])
async def test_no_route_takes_a_token_that_is_none(ending: str, place: Place) -> None:
    """After a session has ended, however it did, every route that needs a token refuses it."""
    clock = VirtualClock()
    async with place.serving(clock=clock) as served:
        world = await build(served)
        client = served.as_(world.people["stranger"])
        if ending in ENDINGS:
            await ENDINGS[ending](served, world.people["stranger"])
        elif ending == "expired":
            clock.advance((SESSION_DAYS + 1) * MS_PER_DAY)
        else:
            client = HttpClient(served.session, served.url, "" if "without" in ending else "prl_" + "0" * 43)
        found = {
            name: await world.ask(client, route, "stranger")
            for name, route in zip(NAMES, ROUTES, strict=True)
            if name not in PUBLIC
        }
        assert set(found.values()) == {"unauthenticated"}, found


@pytest.mark.parametrize("caller", CALLERS)
async def test_a_caller_gets_from_frames_what_the_matrix_says(caller: str, place: Place) -> None:
    """The same over a socket; the answer to a heartbeat behind each frame shows that no refusal follows."""
    async with place.serving() as served:
        world = await build(served)
        found = {}
        for kind in FRAMES:
            async with served.client(world.people[caller]) as client:
                answer = await client.post(kind, **world.frame(kind, caller))
                await client.heartbeat()
                refusal = answer.result() if answer.done() else {}
                found[kind] = refusal["code"] if refusal.get("type") == "refused" else OK
        column = CALLERS.index(caller)
        assert found == {kind: codes[column] for kind, codes in FRAMES.items()}


class Recorder:
    """Every frame that a client got."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []

    def sent(self, frame: Frame) -> None:
        pass

    def received(self, frame: Frame) -> None:
        self.frames.append(frame)


@pytest.mark.parametrize("ending", [*ENDINGS, "expired", "another device"])
async def test_no_frame_is_answered_after_a_refused_hello(ending: str, place: Place) -> None:
    """The socket is closed with a code that asks for another token, and gets no answer but refusals."""
    clock = VirtualClock()
    async with place.serving(clock=clock) as served:
        world = await build(served)
        person = world.people["stranger"]
        if ending in ENDINGS:
            await ENDINGS[ending](served, person)
        elif ending == "expired":
            clock.advance((SESSION_DAYS + 1) * MS_PER_DAY)
        device_id = "another" if ending == "another device" else person.device_id
        for kind in FRAMES.keys() - {"hello"}:
            seen = Recorder()
            client = served.client(person, observer=seen)
            await client.open()
            with contextlib.suppress(Disconnected):
                await client.tell("hello", id=1, token=person.token, device_id=device_id)
                await client.tell(kind, id=2, **world.frame(kind, "stranger"))
            assert (await client.until_ended()).code in NEW_TOKEN_CODES, kind
            await client.close()
            assert {frame["type"] for frame in seen.frames} <= {"refused"}, (kind, seen.frames)


async def test_no_frame_is_answered_before_hello(place: Place) -> None:
    """Each is refused, also those that have no answer otherwise."""
    async with place.serving() as served:
        world = await build(served)
        found = {}
        for kind in FRAMES.keys() - {"hello"}:
            client = served.client(world.people["ann"])
            await client.open()
            answer = await client.request(kind, **world.frame(kind, "ann"))
            found[kind] = answer.get("code", answer["type"])
            await client.close()
        assert set(found.values()) == {"unauthenticated"}, found
