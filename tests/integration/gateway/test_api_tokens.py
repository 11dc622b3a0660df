"""Tokens of programs: what they may do, and for how long; incoming webhooks; bots."""

import pytest

from parley.clock import MS_PER_DAY
from parley.model import Scope
from parley.wire import codes
from tests.harness.clients import Answer, HttpClient, Person
from tests.harness.clock import VirtualClock
from tests.integration.gateway.serving import Place, Served, assert_refused, message

TOKENS = "/v1/admin/tokens"


async def made(served: Served, root: Person, person: Person, *scopes: str, **more: object) -> Answer:
    body = {"name": "alerts", "user_id": person.user_id, "scopes": list(scopes), **more}
    return await served.as_(root).post(TOKENS, body)


def http(served: Served, token: str) -> HttpClient:
    return HttpClient(served.session, served.url, token)


async def test_a_token_is_shown_once_and_listed_without_itself(place: Place) -> None:
    """The list says what it may do and when it was used, never the token; nor does the file hold it."""
    async with place.serving() as served:
        root, (ann,) = await served.operator(), await served.people("ann")
        answer = await made(served, root, ann, "read", "send")
        assert answer.status == 201
        token = answer.body["token"]
        assert answer.body["last_used_at"] is None
        assert (await http(served, token).get("/v1/me")).body["user_id"] == ann.user_id
        listed = await served.as_(root).get(TOKENS)
        (one,) = listed.body["tokens"]
        assert (one["name"], one["scopes"], one["expires_at"]) == ("alerts", ["send", "read"], None)
        assert one["last_used_at"] is not None
        assert "chat_id" not in one
        assert token not in str(listed.body)
        kept = b"".join(path.read_bytes() for path in place.folder.glob("*") if path.is_file())
        assert token.encode() not in kept
        records = (await served.as_(root).get("/v1/admin/audit")).body["records"]
        assert records[0]["action"] == "token.make"
        assert token not in str(records)


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [("read", {"read"}), ("send", {"send"}), ("admin", {"admin", "settings"})],
)
async def test_a_scope_allows_what_it_says(place: Place, scope: str, allowed: set[str]) -> None:
    """Each of reading, sending, changing settings and administration needs its own; else 403 `forbidden`."""
    async with place.serving() as served:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        client = http(served, (await made(served, root, ann, scope)).body["token"])
        answers = {
            "read": await client.get(f"/v1/chats/{chat}/messages"),
            "send": await client.post(f"/v1/chats/{chat}/messages", message()),
            "settings": await client.patch("/v1/me", {"about": "x"}),
            "admin": await client.get("/v1/admin/users"),
        }
        assert {name for name, answer in answers.items() if answer.status < 300} == allowed
        for name in answers.keys() - allowed:
            assert_refused(answers[name], 403, "forbidden")


async def test_scopes_hold_on_a_socket(place: Place) -> None:
    """A token that may only read follows a chat and is refused each send; the socket stays."""
    async with place.serving() as served:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        token = (await made(served, root, ann, "read")).body["token"]
        async with served.client(Person("ann", ann.user_id, "bot", "", token)) as socket:
            refused = await socket.request(
                "send_message", chat_id=chat, client_message_id=message()["client_message_id"], content="x"
            )
            assert (refused["type"], refused["code"]) == ("refused", "forbidden")
            assert (await socket.sync(chat))["type"] == "message_batch"


async def test_a_revoked_token_is_refused_and_its_socket_closed(place: Place) -> None:
    """At once; and revoking it again is not found."""
    async with place.serving() as served:
        root, (ann,) = await served.operator(), await served.people("ann")
        answer = await made(served, root, ann, "read")
        token, token_id = answer.body["token"], answer.body["token_id"]
        async with served.client(Person("ann", ann.user_id, "bot", "", token)) as socket:
            assert (await served.as_(root).delete(f"{TOKENS}/{token_id}")).status == 204
            assert (await socket.until_ended()).code == codes.REVOKED.code
        assert_refused(await http(served, token).get("/v1/me"), 401, "unauthenticated")
        assert_refused(await served.as_(root).delete(f"{TOKENS}/{token_id}"), 404, "not_found")


async def test_a_token_expires(place: Place) -> None:
    """After its days, however often it was used; one without an expiry does not."""
    clock = VirtualClock()
    async with place.serving(clock=clock) as served:
        root, (ann,) = await served.operator(), await served.people("ann")
        short = (await made(served, root, ann, "read", expires_in_days=2)).body["token"]
        endless = (await made(served, root, ann, "read")).body["token"]
        clock.advance(MS_PER_DAY)
        assert (await http(served, short).get("/v1/me")).status == 200
        clock.advance(MS_PER_DAY)
        assert_refused(await http(served, short).get("/v1/me"), 401, "unauthenticated")
        clock.advance(400 * MS_PER_DAY)
        assert (await http(served, endless).get("/v1/me")).status == 200


async def test_a_token_of_one_chat_reaches_no_other(place: Place) -> None:
    """Neither another chat, nor what is about no chat, nor a socket; nor can it have the scope admin."""
    async with place.serving() as served:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        mine, other = [await served.as_(ann).create_group(ben) for _ in range(2)]
        answer = await made(served, root, ann, "send", "read", chat_id=mine)
        assert answer.body["chat_id"] == mine
        token = answer.body["token"]
        client = http(served, token)
        assert (await client.post(f"/v1/chats/{mine}/messages", message())).status == 201
        for path in (f"/v1/chats/{other}/messages", "/v1/chats", "/v1/me"):
            assert_refused(await client.get(path), 403, "forbidden")
        socket = served.client(Person("ann", ann.user_id, "bot", "", token))
        await socket.open()
        await socket.tell("hello", id=1, token=token, device_id="bot")
        assert (await socket.until_ended()).code == codes.UNAUTHENTICATED.code
        assert_refused(await made(served, root, ann, "admin", chat_id=mine), 400, "bad_request")
        assert_refused(await made(served, root, root, "send", chat_id=mine), 403, "not_a_member")


async def test_a_disabled_account_takes_its_tokens_with_it(place: Place) -> None:
    """They are refused while it is disabled, and gone when it is deleted."""
    async with place.serving() as served:
        root, (ann,) = await served.operator(), await served.people("ann")
        client = http(served, (await made(served, root, ann, "read")).body["token"])
        await served.as_(root).post(f"/v1/admin/users/{ann.user_id}/disable", None)
        assert_refused(await client.get("/v1/me"), 403, "account_disabled")
        await served.as_(root).delete(f"/v1/admin/users/{ann.user_id}")
        await served.app.deletions.look()
        assert (await served.as_(root).get(TOKENS)).body["tokens"] == []


async def test_a_token_says_who_made_it(place: Place) -> None:
    """In the answer and in the list; one that was made with a token names that token's account."""
    async with place.serving() as served:
        root, (ann,) = await served.operator(), await served.people("ann")
        first = (await made(served, root, ann, "admin")).body
        second = (await http(served, first["token"]).post(TOKENS, {"name": "more"})).body
        listed = (await served.as_(root).get(TOKENS)).body["tokens"]
        makers = {one["token_id"]: one["created_by"] for one in listed}
        assert makers == {first["token_id"]: root.user_id, second["token_id"]: ann.user_id}
        assert (first["created_by"], second["created_by"]) == (root.user_id, ann.user_id)


@pytest.mark.parametrize("ending", ["disabled", "deleted"])
async def test_a_token_ends_with_who_made_it(place: Place, ending: str) -> None:
    """Refused at once and its socket closed, and so is what was made with it; other tokens go on."""
    async with place.serving() as served:
        root, eve = await served.operator(), await served.operator("eve")
        ann, ben = await served.people("ann", "ben")
        stays = (await made(served, root, ben, "read")).body["token"]
        by_eve = (await made(served, eve, ann, "read", "admin")).body["token"]
        wanted = {"name": "more", "user_id": ben.user_id, "scopes": ["read"]}
        by_her_token = (await http(served, by_eve).post(TOKENS, wanted)).body["token"]
        sockets = [
            served.client(Person("ann", ann.user_id, "bot", "", by_eve)),
            served.client(Person("ben", ben.user_id, "bot", "", by_her_token)),
        ]
        for socket in sockets:
            await socket.connect()
        user = f"/v1/admin/users/{eve.user_id}"
        if ending == "disabled":
            await served.as_(root).post(f"{user}/disable", None)
        else:
            await served.as_(root).delete(user)
        for socket in sockets:
            assert (await socket.until_ended()).code == codes.REVOKED.code
        for token in (by_eve, by_her_token):
            answer = await http(served, token).get("/v1/me")
            assert answer.status in (401, 403), answer
        assert (await http(served, stays).get("/v1/me")).status == 200
        if ending == "deleted":
            await served.app.deletions.look()
            listed = (await served.as_(root).get(TOKENS)).body["tokens"]
            assert [one["created_by"] for one in listed] == [root.user_id]


async def test_a_token_does_not_operate_for_who_is_no_operator_any_more(place: Place) -> None:
    """Nor do those that were made with it, whoever they act for; what they may do beside that stays."""
    async with place.serving() as served:
        root, eve = await served.operator(), await served.operator("eve")
        (ann,) = await served.people("ann")
        by_eve = (await made(served, eve, ann, "read", "admin")).body["token"]
        tokens = [by_eve]
        for acts_for in (eve, root, ann, eve):
            wanted = {"name": "more", "user_id": acts_for.user_id, "scopes": ["read", "admin"]}
            answer = await http(served, tokens[-1]).post(TOKENS, wanted)
            assert answer.status == 201, answer
            tokens.append(answer.body["token"])
        operator = f"/v1/admin/users/{eve.user_id}/operator"
        for is_operator in (False, True):
            change = served.as_(root).put if is_operator else served.as_(root).delete
            assert (await change(operator)).status == 200
            for token in tokens:
                assert (await http(served, token).get("/v1/me")).status == 200
                answer = await http(served, token).get(TOKENS)
                assert answer.status == (200 if is_operator else 403), answer
            if not is_operator:
                assert_refused(await http(served, by_eve).put(operator), 403, "forbidden")


async def test_a_token_that_nobody_is_known_to_have_made_works(place: Place) -> None:
    """As older versions kept them."""
    async with place.serving() as served:
        root, (ann,) = await served.operator(), await served.people("ann")
        token, _ = await served.app.identities.api_tokens.make(ann.user_id, "old", [Scope.READ])
        assert (await http(served, token).get("/v1/me")).status == 200
        (listed,) = (await served.as_(root).get(TOKENS)).body["tokens"]
        assert listed["created_by"] is None


async def test_a_hook_posts_to_its_chat(place: Place) -> None:
    """With the token in the address alone; the same Idempotency-Key posts once."""
    async with place.serving() as served:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        token = (await made(served, root, ann, "send", chat_id=chat)).body["token"]
        for status in (201, 200):
            async with served.session.post(
                f"{served.url}/v1/hooks/{token}", json={"text": "green"}, headers={"Idempotency-Key": "b 1"}
            ) as answer:
                assert answer.status == status
        entries = (await served.as_(ben).get(f"/v1/chats/{chat}/messages")).body["entries"]
        assert [(entry["sender_id"], entry["content"]) for entry in entries] == [(ann.user_id, "green")]


async def test_only_a_token_of_one_chat_is_a_hook(place: Place) -> None:
    """A made-up token, a session's, one of no chat, and one that may only read post nothing."""
    async with place.serving() as served:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        free = (await made(served, root, ann, "send")).body["token"]
        reading = (await made(served, root, ann, "read", chat_id=chat)).body["token"]
        for token in ("made-up", "prl_api_0", ann.token, free):
            answer = await served.http.post(f"/v1/hooks/{token}", {"text": "x"})
            assert_refused(answer, 401, "unauthenticated")
        assert_refused(await served.http.post(f"/v1/hooks/{reading}", {"text": "x"}), 403, "forbidden")
        assert (await served.as_(ben).get(f"/v1/chats/{chat}/messages")).body["entries"] == []


async def test_a_bot_shows_and_has_no_unread(place: Place) -> None:
    """Others see what it is; it is not told what it has not read."""
    async with place.serving() as served:
        root, (ann,) = await served.operator(), await served.people("ann")
        bot = (await served.as_(root).put("/v1/admin/users/bot-1", {"username": "bot", "is_bot": True})).body
        chat = await served.as_(ann).create_direct(Person("bot", bot["user_id"], "", "", ""))
        await served.said(ann, chat, "one", "two")
        assert (await served.as_(ann).get(f"/v1/users/{bot['user_id']}")).body["is_bot"]
        (row,) = (await served.as_(ann).get("/v1/chats")).body["chats"]
        assert row["peer"]["is_bot"]
        grant = {"device_id": "server"}
        token = (await served.as_(root).post(f"/v1/admin/users/{bot['user_id']}/tokens", grant)).body["token"]
        (seen,) = (await http(served, token).get("/v1/chats")).body["chats"]
        assert (seen["head"], seen["unread"], seen["unread_more"]) == (2, 0, False)
