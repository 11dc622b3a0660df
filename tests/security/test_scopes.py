"""Every scope of an API token against every frame in both directions, and against every route.

The rows are written here once more, as whoever makes a token expects them: a frame or a route that is added
without a row fails.
"""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from itertools import combinations
from typing import Any, get_args

import pytest
from msgspec import inspect

from parley.gateway.api import ROUTES
from parley.gateway.routes import Route
from parley.gateway.scopes import ANSWERS
from parley.wire import frames
from tests.harness.clients import HttpClient, Person, RawClient
from tests.integration.gateway.serving import Place, Served, assert_refused
from tests.security.test_matrix import World, build

NONE, SEND, READ, ADMIN = set[str](), {"send"}, {"read"}, {"admin"}
BOTH = SEND | READ
ALL = BOTH | ADMIN
SETS = [set(some) for count in (1, 2, 3) for some in combinations(sorted(ALL), count)]

REQUESTS: dict[str, set[str]] = {
    "hello": NONE,
    "refresh": NONE,
    "heartbeat": NONE,
    "send_message": SEND,
    "edit_message": SEND,
    "delete_message": SEND,
    "react": SEND,
    "typing_start": SEND,
    "typing_stop": SEND,
    "sync_request": READ,
    "sync": READ,
    "sync_overview": READ,
    "presence_subscribe": READ,
    "presence_query": READ,
    "ack": BOTH,
    "delivery_receipt": BOTH,
    "read_receipt": BOTH,
    "attention": BOTH,
}
PUSHES: dict[str, set[str]] = {
    "messages": READ,
    "chat_changed": READ,
    "invitation": READ,
    "invitation_ended": READ,
    "receipt": READ,
    "typing": READ,
    "presence": READ,
}
SENDING = {
    "POST /v1/chats",
    "POST /v1/chats/{chat_id}/messages",
    "POST /v1/chats/{chat_id}/messages/{message_id}/report",
    "POST /v1/chats/{chat_id}/attachments",
    "DELETE /v1/chats/{chat_id}/attachments/{attachment_id}",
}
"""The routes of the scope `send`; of the others those that look need `read`, and the rest `admin`."""


def tags(kinds: Iterable[Any]) -> set[str]:
    return {str(inspect.type_info(kind).tag) for kind in kinds}  # type: ignore[attr-defined]


class Programs:
    """Tokens that act for one person, one for each set of scopes."""

    def __init__(self, served: Served, root: Person, person: Person) -> None:
        self._served = served
        self._root = root
        self._person = person
        self._tokens: dict[frozenset[str], str] = {}

    async def token(self, scopes: set[str]) -> str:
        key = frozenset(scopes)
        if key not in self._tokens:
            wanted = {"name": "+".join(sorted(key)), "user_id": self._person.user_id, "scopes": sorted(key)}
            answer = await self._served.as_(self._root).post("/v1/admin/tokens", wanted)
            self._tokens[key] = answer.body["token"]
        return self._tokens[key]

    async def socket(self, scopes: set[str], device_id: str = "bot") -> RawClient:
        person = self._person
        token = await self.token(scopes)
        return self._served.client(Person(person.username, person.user_id, device_id, "", token))


def test_every_frame_has_a_row() -> None:
    """What clients send, and what the server sends unasked; the rest of its frames are answers."""
    assert set(REQUESTS) == tags(get_args(frames.Request))
    assert set(PUSHES) | tags(ANSWERS) == tags(get_args(frames.ServerFrames))
    assert not set(PUSHES) & tags(ANSWERS)


async def test_every_scope_against_every_request(place: Place) -> None:
    """A frame is refused as `forbidden` if the token lacks a scope that its row names, and only then."""
    async with place.serving() as served:
        world = await build(served)
        programs = Programs(served, await served.operator(), world.people["ann"])
        found: dict[tuple[str, str], bool] = {}
        for scopes in SETS:
            async with await programs.socket(scopes) as socket:
                for kind in REQUESTS:
                    fields = world.frame(kind, "ann")
                    if kind == "refresh":
                        fields = {"token": await programs.token(scopes)}
                    answer = await socket.post(kind, **fields)
                    await socket.heartbeat()
                    frame = answer.result() if answer.done() else {}
                    found["+".join(sorted(scopes)), kind] = frame.get("code") != "forbidden"
        assert found == {
            ("+".join(sorted(scopes)), kind): needed <= scopes
            for scopes in SETS
            for kind, needed in REQUESTS.items()
        }


async def provoke(served: Served, ann: Person, ben: Person, chat: str, witness: RawClient) -> None:
    """Whatever the server can tell Ann unasked happens, and her own device has heard it."""
    by_ben = served.as_(ben)
    async with served.client(ben) as his:
        await witness.hear("presence", user_id=ben.user_id, status="online")
        ack = await his.send_message(chat, "psst")
        await his.tell("typing_start", chat_id=chat)
        await his.tell("read_receipt", chat_id=chat, read_up_to=ack["sequence"])
        await witness.hear("messages", chat_id=chat)
        await witness.hear("typing", chat_id=chat)
        await witness.hear("receipt", chat_id=chat, user_id=ben.user_id, kind="read")
    await by_ben.patch(f"/v1/chats/{chat}", {"title": "new"})
    await witness.hear("chat_changed", chat_id=chat, change="renamed")
    other = await by_ben.create_group()
    await by_ben.post(f"/v1/chats/{other}/members", {"user_id": ann.user_id})
    await witness.hear("invitation", chat_id=other)
    await by_ben.delete(f"/v1/chats/{other}/invitations/{ann.user_id}")
    await witness.hear("invitation_ended", chat_id=other)


async def test_every_scope_against_every_push(place: Place) -> None:
    """However a socket came by its token: by hello, by a refresh that took scopes, or one that gave some."""
    async with place.serving() as served:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        chat = await served.as_(ben).create_group(ann)
        await served.as_(ann).patch("/v1/me", {"who_may_add": "contacts"})
        programs = Programs(served, root, ann)
        sockets: dict[tuple[str, str], RawClient] = {}
        for began in (None, ALL, SEND):
            for scopes in SETS:
                socket = await programs.socket(began or scopes)
                sockets["+".join(sorted(began or ())), "+".join(sorted(scopes))] = socket
                await socket.connect()
                await socket.tell("presence_subscribe", user_ids=[ben.user_id])
                if began is not None:
                    renewed = await socket.request("refresh", token=await programs.token(scopes))
                    assert renewed["type"] == "welcome"
                    await socket.tell("presence_subscribe", user_ids=[ben.user_id])
                await socket.heartbeat()
                socket.unasked.clear()
        async with served.client(ann) as witness:
            await witness.request("presence_subscribe", user_ids=[ben.user_id])
            await provoke(served, ann, ben, chat, witness)
        found = {}
        for place_, socket in sockets.items():
            beat = await socket.heartbeat()
            kinds = {frame["type"] for frame in socket.unasked} - {"refused"}
            found[place_] = sorted(kinds), "heads" in beat
            await socket.close()
        assert found == {
            place_: (sorted(k for k, needed in PUSHES.items() if needed <= set(place_[1].split("+"))), False)
            for place_ in sockets
        }


async def test_heads_are_not_told_to_who_may_not_read(place: Place) -> None:
    """A socket that is not live hears from its heartbeat where there is something new, if it may read."""
    async with place.serving() as served:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        chat = await served.as_(ben).create_group(ann)
        programs = Programs(served, root, ann)
        told = {}
        for scopes in SETS:
            person = Person("ann", ann.user_id, "bot", "", await programs.token(scopes))
            async with served.client(person, live=False) as socket:
                await served.said(ben, chat, "new")
                told["+".join(sorted(scopes))] = "heads" in await socket.heartbeat()
        assert told == {"+".join(sorted(scopes)): "read" in scopes for scopes in SETS}


async def test_only_who_reads_and_sends_is_online(place: Place) -> None:
    """Any other token opens a socket without a trace, also when it takes the place of a better one."""
    async with place.serving() as served:
        root, (ann, ben, *others) = (
            await served.operator(),
            await served.people("ann", "ben", *(f"other{n}" for n in range(len(SETS)))),
        )
        await served.as_(ann).create_group(ben, *others)
        programs = Programs(served, root, ann)
        shown = {}

        async def is_online(later: Person) -> bool:
            """Asked once somebody who came later is known to be here."""
            async with served.client(ben) as his, served.client(later):
                asked = [later.user_id, ann.user_id]
                while True:
                    answer = await his.request("presence_query", user_ids=asked)
                    late, hers = (bool(one["status"] == "online") for one in answer["presences"])
                    if late:
                        return hers

        for scopes, later in zip(SETS, others, strict=True):
            async with await programs.socket(scopes) as socket:
                shown["+".join(sorted(scopes))] = await is_online(later)
                if not scopes >= BOTH:
                    continue
                async with served.client(ben) as his:
                    await his.request("presence_subscribe", user_ids=[ann.user_id])
                    await socket.request("refresh", token=await programs.token(READ))
                    await his.hear("presence", user_id=ann.user_id, status="offline")
        assert shown == {"+".join(sorted(scopes)): scopes >= BOTH for scopes in SETS}


async def test_no_program_moves_the_position_of_a_device(place: Place) -> None:
    """Not even one that may send receipts: a device_id that the person is logged in on is not its own."""
    async with place.serving() as served:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        chat = await served.as_(ben).create_group(ann)
        (said,) = await served.said(ben, chat, "psst")
        programs = Programs(served, root, ann)
        for scopes in SETS:
            async with await programs.socket(scopes, ann.device_id) as socket:
                for kind, fields in (
                    ("ack", {"last_acked_sequence": said["sequence"]}),
                    ("delivery_receipt", {"message_id": said["message_id"]}),
                ):
                    refused = await socket.request(kind, chat_id=chat, **fields)
                    assert refused["code"] == "forbidden", (scopes, kind)
        async with served.client(ann) as phone:
            (row,) = (await phone.request("sync_overview"))["chats"]
            assert row["last_acked_sequence"] == 0
        async with await programs.socket(BOTH, "bot") as socket:
            await socket.tell("ack", chat_id=chat, last_acked_sequence=said["sequence"])
            (row,) = (await socket.request("sync_overview"))["chats"]
            assert row["last_acked_sequence"] == said["sequence"]


def needed_by(route: Route) -> str:
    name = f"{route.method} {route.path}"
    if name in SENDING:
        return "send"
    asks = route.method == "GET" or route.path.endswith("/lookup")
    is_looking = asks and not route.path.startswith("/v1/admin/")
    return "read" if is_looking else "admin"


@pytest.mark.parametrize("scope", sorted(ALL))
async def test_every_scope_against_every_route(scope: str, place: Place) -> None:
    """403 `forbidden` unless the token has the scope of the route; and who only reads changes nothing."""
    async with place.serving() as served:
        world = await build(served)
        root = await served.operator()
        acts_for = world.people["ann" if scope == "read" else "stranger"]
        token = await Programs(served, root, acts_for).token({scope})
        client = HttpClient(served.session, served.url, token)
        before = await everything_in(served, place)
        routes = [route for route in ROUTES if route.needs != "nothing"]
        for route in routes:
            answer = await ask(world, client, route)
            if needed_by(route) == scope:
                assert "does not have the scope" not in str(answer.body), (route.name, answer)
            else:
                assert_refused(answer, 403, "forbidden")
                assert answer.body["reason"] == f"this token does not have the scope {needed_by(route)}"
        if scope == "read":
            assert await everything_in(served, place) == before


async def ask(world: World, client: HttpClient, route: Route) -> Any:
    query = {"/v1/users": {"username": "ann"}, "/v1/presence": {"user_ids": world.people["ann"].user_id}}
    asked = query.get(route.path, {"q": "alone"} if route.path.endswith("/search") else {})
    return await client.request(route.method, world.path(route, "removed"), world.body(route), **asked)


async def everything_in(served: Served, place: Place) -> dict[str, list[Any]]:
    """Every row of the store, but for when tokens were used."""
    await served.app.store.cursors.flush("")
    with closing(sqlite3.connect(place.folder / "parley.db")) as db:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {
            name: sorted(db.execute(f"SELECT * FROM {name}").fetchall(), key=repr)
            for name in names
            if name not in {"api_tokens", "job_records"}
        }
