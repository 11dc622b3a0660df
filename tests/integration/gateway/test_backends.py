"""What a backend does for its users, and what makes its requests safe to repeat; pages of other origins."""

from typing import Any

import pytest

from parley.clock import MS_PER_DAY, MS_PER_SECOND
from parley.core.idempotency import earlier_client_id_of
from parley.wire import codes
from tests.harness.clients import Answer, HttpClient, Person
from tests.harness.clock import VirtualClock
from tests.integration.gateway.serving import Place, Served, assert_refused, message, new_id

USERS, CHATS = "/v1/admin/users", "/v1/admin/chats"


async def backend(served: Served) -> HttpClient:
    """A program with the scope admin alone."""
    root = await served.operator()
    answer = await served.as_(root).post("/v1/admin/tokens", {"name": "backend", "scopes": ["admin"]})
    return HttpClient(served.session, served.url, answer.body["token"])


async def put(client: HttpClient, external_id: str, **profile: Any) -> str:
    answer = await client.put(f"{USERS}/{external_id}", profile)
    assert answer.status == 201, answer
    user_id: str = answer.body["user_id"]
    return user_id


async def keyed(served: Served, path: str, token: str, body: object, *keys: str) -> Answer:
    """A request with these headers `Idempotency-Key`."""
    headers = [("Authorization", f"Bearer {token}"), *(("Idempotency-Key", key) for key in keys)]
    async with served.session.post(served.url + path, json=body, headers=headers) as answer:
        return Answer(answer.status, await answer.json(), dict(answer.headers))


async def test_a_person_is_put_and_put_again(place: Place) -> None:
    """The second time changes what it names and makes nobody; people are found by their external id."""
    async with place.serving() as served:
        client = await backend(served)
        ann = await put(client, "4711", username="ann", display_name="Ann")
        again = await client.put(f"{USERS}/4711", {"about": "hm"})
        assert (again.status, again.body["created"], again.body["user_id"]) == (200, False, ann)
        assert_refused(await client.put(f"{USERS}/4711", {"username": "other"}), 400, "bad_request")
        assert_refused(await client.put(f"{USERS}/4712", {"username": "ann"}), 409, "username_taken")
        (found,) = (await client.get(USERS, q="4711")).body["users"]
        assert (found["user_id"], found["external_id"], found["display_name"]) == (ann, "4711", "Ann")


async def test_a_deleted_person_does_not_come_back(place: Place) -> None:
    """Their external id stays theirs."""
    async with place.serving() as served:
        client = await backend(served)
        ann = await put(client, "4711")
        await client.delete(f"{USERS}/{ann}")
        assert_refused(await client.put(f"{USERS}/4711", {}), 404, "not_found")


async def test_a_token_for_a_device_ends_when_it_should(place: Place) -> None:
    """With a fixed time it ends then, however often it is used, and so does its socket."""
    clock = VirtualClock()
    async with place.serving(clock=clock) as served:
        client = await backend(served)
        ann = await put(client, "4711")
        path = f"{USERS}/{ann}/tokens"
        answer = await client.post(path, {"device_id": "phone", "expires_in_seconds": 7200})
        assert answer.status == 201
        short = HttpClient(served.session, served.url, answer.body["token"])
        person = Person("ann", ann, "phone", "", answer.body["token"])
        async with served.client(person) as socket:
            clock.advance(7100 * MS_PER_SECOND)
            assert (await short.get("/v1/me")).status == 200
            assert (await socket.heartbeat())["type"] == "heartbeat_ack"
            clock.advance(200 * MS_PER_SECOND)
            await socket.post("heartbeat")
            assert (await socket.until_ended()).code in (codes.REVOKED.code, codes.TOKEN_EXPIRED.code)
        assert_refused(await short.get("/v1/me"), 401, "unauthenticated")
        for wrong in (0, -1, 10**9):
            body = {"device_id": "phone", "expires_in_seconds": wrong}
            assert_refused(await client.post(path, body), 400, "bad_request")


async def test_a_backend_arranges_a_chat(place: Place) -> None:
    """It creates it, puts people in and takes them out; to repeat that writes nothing."""
    async with place.serving() as served:
        client = await backend(served)
        ann, ben, cat = [await put(client, name) for name in ("ann", "ben", "cat")]
        made = await client.post(CHATS, {"type": "group", "title": "Team", "member_ids": [ann, ben]})
        assert (made.status, made.body["created_by"]) == (201, ann)
        chat = made.body["chat_id"]
        member = f"{CHATS}/{chat}/members/{cat}"
        assert (await client.put(member, {})).body["sequence"] == 1
        assert (await client.put(member, {})).body["sequence"] is None
        assert (await client.put(member, {"role": "admin"})).body["sequence"] == 2
        for _ in range(2):
            assert (await client.delete(member)).status == 204
        assert await served.app.store.directory.role(chat, cat) is None
        entries = (await served.app.store.log.read(chat, 0, 10)).to_sequence
        assert entries == 3
        direct = {"type": "direct", "member_ids": [ann, ben]}
        first, second = [await client.post(CHATS, direct) for _ in range(2)]
        assert (first.status, second.status) == (201, 200)
        assert first.body["chat_id"] == second.body["chat_id"]
        assert_refused(await client.put(f"{CHATS}/chat_none/members/{cat}", {}), 404, "not_found")
        nobody = {"type": "group", "title": "x", "member_ids": ["user_none"]}
        assert_refused(await client.post(CHATS, nobody), 404, "not_found")


async def test_a_backend_speaks_for_a_member_only(place: Place) -> None:
    """The message is the member's, the audit log says who did it; for others it is refused."""
    async with place.serving() as served:
        client = await backend(served)
        ann, ben, cat = [await put(client, name) for name in ("ann", "ben", "cat")]
        made = await client.post(CHATS, {"type": "group", "title": "Team", "member_ids": [ann, ben]})
        path = f"{CHATS}/{made.body['chat_id']}/messages"
        sent = await client.post(path, {"sender_id": ben, "content": "hi"})
        assert (sent.status, sent.body["sequence"]) == (201, 1)
        assert_refused(await client.post(path, {"sender_id": cat, "content": "hi"}), 403, "not_a_member")
        page = await served.app.store.log.read(made.body["chat_id"], 0, 10)
        assert ben.encode() in page.entries[0]
        records = (await client.get("/v1/admin/audit")).body["records"]
        acts = [(one["action"], one["target_id"], one["outcome"]) for one in records[:2]]
        assert acts == [("message.send", cat, "not_a_member"), ("message.send", ben, "done")]


async def test_the_same_key_is_the_same_message(place: Place) -> None:
    """By the same sender in the same chat; another sender, chat or key is another message."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        one, two = [await served.as_(ann).create_group(ben) for _ in range(2)]
        path, body = f"/v1/chats/{one}/messages", {"content": "hi"}
        first = await keyed(served, path, ann.token, body, "order 1")
        again = await keyed(served, path, ann.token, body, "order 1")
        other = await keyed(served, path, ann.token, {"content": "changed"}, "order 1")
        assert (first.status, again.status, other.status) == (201, 200, 200)
        assert first.body["message_id"] == again.body["message_id"] == other.body["message_id"]
        assert (again.body["conflict"], other.body["conflict"]) == (False, True)
        for where, who, key in (
            (one, ben, "order 1"),
            (two, ann, "order 1"),
            (one, ann, "order 2"),
            (one, ann, "ORDER 1"),
        ):
            assert (await keyed(served, f"/v1/chats/{where}/messages", who.token, body, key)).status == 201


async def test_the_id_of_a_key_cannot_be_taken(place: Place) -> None:
    """Another member who knows the key, the sender and the chat cannot store a message under its id."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        path = f"/v1/chats/{(chat := await served.as_(ann).create_group(ben))}/messages"
        guess = earlier_client_id_of("order 1", ann.user_id, chat)
        assert (await served.as_(ben).post(path, message("mine", guess))).status == 201
        sent = await keyed(served, path, ann.token, {"content": "hi"}, "order 1")
        assert sent.status == 201


async def test_a_retry_across_an_upgrade_is_the_same_message(place: Place) -> None:
    """One that a server without the secret has stored is found again; later the earlier id counts no more."""
    clock = VirtualClock()
    async with place.serving(clock=clock) as served:
        ann, ben = await served.people("ann", "ben")
        path = f"/v1/chats/{(chat := await served.as_(ann).create_group(ben))}/messages"
        before = message("hi", earlier_client_id_of("order 1", ann.user_id, chat))
        stored = (await served.as_(ann).post(path, before)).body["message_id"]
        again = await keyed(served, path, ann.token, {"content": "hi"}, "order 1")
        assert (again.status, again.body["message_id"]) == (200, stored)
        clock.advance(8 * MS_PER_DAY)
        assert (await keyed(served, path, ann.token, {"content": "hi"}, "order 1")).status == 201


async def test_a_key_outlives_a_restart(place: Place) -> None:
    """The secret behind its id is kept in the store, as all nodes share it."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        path = f"/v1/chats/{await served.as_(ann).create_group(ben)}/messages"
        assert (await keyed(served, path, ann.token, {"content": "hi"}, "order 1")).status == 201
    async with place.serving() as served:
        assert (await keyed(served, path, ann.token, {"content": "hi"}, "order 1")).status == 200


@pytest.mark.parametrize("keys", [[""], ["x" * 256], ["a", "b"]])
async def test_a_bad_key_is_refused(place: Place, keys: list[str]) -> None:
    """Empty, too long, or given twice; a key and an id together are two names for one thing."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        path = f"/v1/chats/{await served.as_(ann).create_group(ben)}/messages"
        assert_refused(await keyed(served, path, ann.token, {"content": "x"}, *keys), 400, "bad_request")
        both = {"content": "x", "client_message_id": new_id()}
        assert_refused(await keyed(served, path, ann.token, both, "key"), 400, "bad_request")


async def test_without_a_key_each_request_is_a_message(place: Place) -> None:
    """Which is not safe to repeat."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        path = f"/v1/chats/{await served.as_(ann).create_group(ben)}/messages"
        sent = [await served.as_(ann).post(path, {"content": "x"}) for _ in range(2)]
        assert [answer.body["sequence"] for answer in sent] == [1, 2]


ORIGIN = "https://app.example.com"
CORS = {"PARLEY_SERVER_ORIGINS": ORIGIN, "PARLEY_ACCOUNTS_REGISTRATION": "open"}


async def test_a_page_of_a_known_origin_may_ask(place: Place) -> None:
    """Its preflight is answered, and its answers may be read, refusals too; never with credentials."""
    async with place.serving(CORS) as served:
        asks = {"Origin": ORIGIN, "Access-Control-Request-Method": "POST"}
        async with served.session.options(f"{served.url}/v1/chats", headers=asks) as preflight:
            assert preflight.status == 204
            assert preflight.headers["Access-Control-Allow-Origin"] == ORIGIN
            assert "POST" in preflight.headers["Access-Control-Allow-Methods"]
            for header in ("Authorization", "Content-Type", "Idempotency-Key"):
                assert header in preflight.headers["Access-Control-Allow-Headers"]
            assert preflight.headers["Vary"] == "Origin"
        async with served.session.get(f"{served.url}/v1/me", headers={"Origin": ORIGIN}) as refused:
            assert refused.status == 401
            assert refused.headers["Access-Control-Allow-Origin"] == ORIGIN
        for answer in (preflight, refused):
            assert "Access-Control-Allow-Credentials" not in answer.headers


@pytest.mark.parametrize("origin", ["https://evil.example", f"{ORIGIN}.evil.example", "null", "*"])
async def test_a_page_of_another_origin_may_not(place: Place, origin: str) -> None:
    """It gets no header that lets a browser hand it the answer, and no preflight."""
    async with place.serving(CORS) as served:
        asks = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        async with served.session.options(f"{served.url}/v1/chats", headers=asks) as preflight:
            assert preflight.status == 405
        async with served.session.get(f"{served.url}/v1/me", headers={"Origin": origin}) as answer:
            assert answer.status == 401
        for one in (preflight, answer):
            assert not [name for name in one.headers if name.startswith("Access-Control")]


async def test_without_origins_nothing_is_said_of_them(place: Place) -> None:
    """A server for no other pages answers as it always has."""
    async with (
        place.serving() as served,
        served.session.get(f"{served.url}/v1/me", headers={"Origin": ORIGIN}) as answer,
    ):
        assert "Vary" not in answer.headers
