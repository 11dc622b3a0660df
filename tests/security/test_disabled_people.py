"""A disabled person: out at once, everywhere, and only they."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import ClientSession

from parley.errors import Refused
from parley.model import AccountState, Draft
from tests.harness.clients import HttpClient, Person, RawClient
from tests.harness.server import ServerProcess
from tests.integration.cli.running import parley, succeed
from tests.integration.gateway.serving import Place, Served, assert_refused, message
from tests.integration.gateway.two_nodes import TwoNodes


async def disable(served: Served, root: Person, person: Person) -> None:
    answer = await served.as_(root).post(f"/v1/admin/users/{person.user_id}/disable", None)
    assert (answer.status, answer.body["state"]) == (200, "disabled"), answer


async def test_a_disabled_persons_token_opens_nothing(place: Place) -> None:
    """Neither a request nor a socket."""
    async with place.serving() as served:
        root, ann = await served.operator(), (await served.people("ann"))[0]
        await disable(served, root, ann)
        assert_refused(await served.as_(ann).get("/v1/me"), 401, "unauthenticated")
        client = served.client(ann)
        await client.open()
        refused = await client.request("hello", token=ann.token, device_id=ann.device_id)
        assert refused["code"] == "unauthenticated"
        assert (await client.until_ended()).code == 4101


async def test_a_disabled_persons_sockets_close_at_once(place: Place) -> None:
    """With a code that says not to come back as they are; nobody else's does."""
    async with place.serving() as served:
        root = await served.operator()
        ann, ben = await served.people("ann", "ben")
        async with served.client(ann) as theirs, served.client(ben) as other:
            await disable(served, root, ann)
            assert (await theirs.until_ended()).code == 4102
            assert (await other.heartbeat())["type"] == "heartbeat_ack"


async def test_a_disabled_person_cannot_log_in(place: Place) -> None:
    """Who knows the password hears why; who does not hears what everybody hears."""
    async with place.serving() as served:
        root, ann = await served.operator(), (await served.people("ann"))[0]
        await disable(served, root, ann)
        login = {"username": "ann", "password": "correct horse battery", "device_id": "pc"}
        refused = await served.http.post("/v1/sessions", login)
        assert_refused(refused, 403, "account_disabled")
        assert refused.body["temporary"] is False
        wrong = await served.http.post("/v1/sessions", {**login, "password": "wrong"})
        assert_refused(wrong, 401, "unauthenticated")


async def test_a_login_that_a_disable_overtakes_leaves_no_session(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The password was right a moment ago; the session is ended before its token is shown."""
    async with place.serving() as served:
        ann = (await served.people("ann"))[0]
        sessions, admin = served.app.kinds.sessions, served.app.kinds.account_admin
        add = sessions.add

        async def add_late(*session: object) -> None:
            await admin.set_state(ann.user_id, AccountState.DISABLED, "")
            await add(*session)  # type: ignore[arg-type]

        monkeypatch.setattr(sessions, "add", add_late)
        login = {"username": "ann", "password": "correct horse battery", "device_id": "pc"}
        assert_refused(await served.http.post("/v1/sessions", login), 403, "account_disabled")
        found = await sessions.of(ann.user_id)
        assert [session.session_id for session in found] == [ann.session_id]


async def test_a_disabled_persons_send_is_refused_by_the_store(place: Place) -> None:
    """Also one that has passed every check of a session before it came to the log."""
    async with place.serving() as served:
        root = await served.operator()
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        await served.said(ann, chat, "before")
        await disable(served, root, ann)
        with pytest.raises(Refused) as refused:
            await served.app.sender.send(Draft(chat_id=chat, sender_id=ann.user_id, content="after"))
        assert refused.value.refusal.code == "account_disabled"


async def test_others_still_see_a_disabled_person(place: Place) -> None:
    """As a member who is offline, and they may write to them."""
    async with place.serving() as served:
        root = await served.operator()
        ann, ben = await served.people("ann", "ben")
        chat, direct = await served.as_(ben).create_group(ann), await served.as_(ben).create_direct(ann)
        async with served.client(ann), served.client(ben) as watching:
            await watching.request("presence_subscribe", user_ids=[ann.user_id])
            await disable(served, root, ann)
            await watching.hear("presence", user_id=ann.user_id, status="offline")
        members = (await served.as_(ben).get(f"/v1/chats/{chat}/members")).body["members"]
        assert ann.user_id in [member["user_id"] for member in members]
        await served.said(ben, direct, "are you there?")


async def test_an_enabled_person_logs_in_again(place: Place) -> None:
    """Old tokens stay dead."""
    async with place.serving() as served:
        root, ann = await served.operator(), (await served.people("ann"))[0]
        await disable(served, root, ann)
        answer = await served.as_(root).post(f"/v1/admin/users/{ann.user_id}/enable", None)
        assert (answer.status, answer.body["state"]) == (200, "active")
        assert_refused(await served.as_(ann).get("/v1/me"), 401, "unauthenticated")
        again = await served.http.login("ann")
        assert (await served.as_(again).get("/v1/me")).status == 200


@pytest.mark.timeout(120)
async def test_sockets_on_another_node_close_at_once(tmp_path: Path) -> None:
    """An operator's request to one node ends the person's connection to the other."""
    async with TwoNodes(tmp_path, {"PARLEY_STORE_SEQUENCING": "atomic"}).serving() as served:
        one, two = served.nodes
        root, ann = await one.operator(), (await one.people("ann"))[0]
        chat = await one.as_(ann).create_group()
        async with two.client(ann) as client:
            assert (await client.send_message(chat, "warm"))["type"] == "ack"
            await disable(one, root, ann)
            assert (await client.until_ended()).code == 4102
        answer = await two.as_(ann).post(f"/v1/chats/{chat}/messages", message())
        assert_refused(answer, 401, "unauthenticated")


@pytest.mark.timeout(120)
async def test_a_command_beside_nodes_closes_sockets_at_once(tmp_path: Path) -> None:
    """`parley user disable` on a shared store tells every node before it returns: no heartbeat is needed."""
    nodes = TwoNodes(tmp_path, {"PARLEY_STORE_SEQUENCING": "atomic"})
    async with nodes.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        async with served.nodes[0].client(ann) as one, served.nodes[1].client(ann) as two:
            for client in (one, two):
                assert (await client.send_message(chat, "warm"))["type"] == "ack"
            disabling = await asyncio.to_thread(
                parley, "user", "disable", "ann", data=tmp_path, environment=nodes.settings
            )
            assert disabling.status == 0, disabling.stderr
            assert [(await client.until_ended()).code for client in (one, two)] == [4102, 4102]


async def test_a_command_beside_a_server_closes_sockets(tmp_path: Path) -> None:
    """`parley user disable` writes to the store alone: the server sees it by itself, within seconds."""
    with ServerProcess(tmp_path / "data") as server:
        async with ClientSession() as session:
            http = HttpClient(session, server.url)
            ann = await http.newcomer("ann")
            chat = await http.of(ann).create_group()
            async with RawClient(session, server.url, ann) as client:
                assert (await client.send_message(chat, "warm"))["type"] == "ack"
                await asyncio.to_thread(succeed, "user", "disable", "ann", data=server.data)
                assert (await client.until_ended()).code == 4102
            assert (await http.of(ann).get("/v1/me")).status == 401
            checked = await asyncio.to_thread(succeed, "check", "--json", data=server.data)
            assert checked.json["breaches"] == []
