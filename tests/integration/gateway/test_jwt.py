"""People of another login: first sight, refresh, expiry, and keys that change."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from parley.client import BadToken, connect
from parley.clock import wall_clock
from parley.wire import codes
from tests.harness.clients import HttpClient, Person
from tests.harness.clock import VirtualClock
from tests.harness.jwts import AUDIENCE, ISSUER, SETTINGS, claims, rsa_jwk, rsa_key, signed
from tests.integration.gateway.serving import Place, Served
from tests.waiting import eventually


def person(user_id: str, token: str, device_id: str = "phone") -> Person:
    return Person("", user_id, device_id, "", token)


def http(served: Served, token: str) -> HttpClient:
    return HttpClient(served.session, served.url, token)


async def test_a_person_is_made_at_first_sight(place: Place) -> None:
    """With the name of the token; the same claim is the same person, another claim is another."""
    async with place.serving(SETTINGS) as served:
        me = await http(served, signed(claims(wall_clock()))).get("/v1/me")
        assert me.body["display_name"] == "Ann Example"
        again = signed(claims(wall_clock(), name="Another Name", aud=["x", AUDIENCE]))
        assert (await http(served, again).get("/v1/me")).body["user_id"] == me.body["user_id"]
        other = await http(served, signed(claims(wall_clock(), sub="12"))).get("/v1/me")
        assert other.body["user_id"] != me.body["user_id"]


async def test_many_who_see_somebody_first_make_one_account(place: Place) -> None:
    """Twenty requests at once are one person."""
    async with place.serving(SETTINGS) as served:
        client = http(served, signed(claims(wall_clock())))
        answers = await asyncio.gather(*(client.get("/v1/me") for _ in range(20)))
        assert len({answer.body["user_id"] for answer in answers}) == 1
        assert (await served.app.kinds.account_admin.counts()).people == 1


async def test_a_backend_and_a_token_mean_the_same_person(place: Place) -> None:
    """Who was put under an external id signs in with that claim."""
    async with place.serving(SETTINGS) as served:
        root = await served.operator()
        put = await served.as_(root).put("/v1/admin/users/auth0%7C4711", {"username": "ann"})
        assert (put.status, put.body["created"]) == (201, True)
        me = await http(served, signed(claims(wall_clock(), sub="auth0|4711"))).get("/v1/me")
        assert (me.body["user_id"], me.body["username"]) == (put.body["user_id"], "ann")


async def test_a_person_of_before_the_login_was_configured_is_adopted(place: Place) -> None:
    """The backend put people while there was no issuer: they keep their accounts, and a deletion holds."""
    async with place.serving() as served:
        root = await served.operator()
        ann, ben = [
            (await served.as_(root).put(f"/v1/admin/users/{name}", {"username": name})).body["user_id"]
            for name in ("ann", "ben")
        ]
        await served.as_(root).delete(f"/v1/admin/users/{ben}")
    async with place.serving(SETTINGS) as served:
        found = await served.as_(root).get("/v1/admin/users", q="ann")
        assert [user["external_id"] for user in found.body["users"]] == ["ann"]
        me = await http(served, signed(claims(wall_clock(), sub="ann"))).get("/v1/me")
        assert (me.body["user_id"], me.body["username"]) == (ann, "ann")
        put = await served.as_(root).put("/v1/admin/users/ann", {"about": "hm"})
        assert (put.body["user_id"], put.body["created"]) == (ann, False)
        gone = await http(served, signed(claims(wall_clock(), sub="ben"))).get("/v1/me")
        assert gone.body["code"] == "account_disabled"
    async with place.serving({**SETTINGS, "PARLEY_AUTH_JWT_ISSUER": "https://other.example.com"}) as served:
        token = signed(claims(wall_clock(), sub="cleo", iss="https://other.example.com"))
        cleo = (await http(served, token).get("/v1/me")).body["user_id"]
    async with place.serving(SETTINGS) as served:
        other = await http(served, signed(claims(wall_clock(), sub="cleo"))).get("/v1/me")
        assert other.body["user_id"] != cleo


async def test_nobody_logs_in_with_a_password_they_do_not_have(place: Place) -> None:
    """A person of another login has no password, so none fits, not even an empty one."""
    async with place.serving(SETTINGS) as served:
        me = (await http(served, signed(claims(wall_clock()))).get("/v1/me")).body
        for password in ("", " ", "x"):
            body = {"username": me["username"], "password": password, "device_id": "d"}
            assert (await served.http.post("/v1/sessions", body)).status == 401


async def test_two_people_of_another_login_talk(place: Place) -> None:
    """Over sockets, each device with its own id."""
    async with place.serving(SETTINGS) as served:
        tokens = [signed(claims(wall_clock(), sub=name)) for name in ("ann", "ben")]
        ids = [(await http(served, token).get("/v1/me")).body["user_id"] for token in tokens]
        chat = await http(served, tokens[0]).create_direct(person(ids[1], tokens[1]))
        async with (
            served.client(person(ids[0], tokens[0], "laptop")) as ann,
            served.client(person(ids[1], tokens[1])) as ben,
        ):
            assert ann.welcome["device_id"] == "laptop"
            await ann.send_message(chat, "hi")
            assert (await ben.live_entry(chat, 1))["content"] == "hi"


async def test_an_expired_token_ends_its_socket(place: Place) -> None:
    """With a code of its own, which asks for another token; nothing is accepted after it."""
    clock = VirtualClock()
    async with place.serving(SETTINGS, clock=clock) as served:
        token = signed(claims(clock()))
        user_id = (await http(served, token).get("/v1/me")).body["user_id"]
        async with served.client(person(user_id, token)) as socket:
            clock.advance(600_000)
            await socket.post("heartbeat")
            assert (await socket.until_ended()).code == codes.TOKEN_EXPIRED.code


async def test_a_socket_is_closed_when_its_token_expires(place: Place) -> None:
    """Without anything that the client does."""
    async with place.serving(SETTINGS) as served:
        token = signed(claims(wall_clock(), exp=wall_clock() / 1000 + 0.5))
        async with served.client(person("", token)) as socket:
            assert (await socket.until_ended()).code == codes.TOKEN_EXPIRED.code


async def test_refresh_prolongs_a_socket(place: Place) -> None:
    """The answer is a welcome; the socket outlives the first token and ends with the second."""
    clock = VirtualClock()
    async with (
        place.serving(SETTINGS, clock=clock) as served,
        served.client(person("", signed(claims(clock())))) as socket,
    ):
        later = signed(claims(clock(), exp=clock() // 1000 + 1200))
        answer = await socket.request("refresh", token=later)
        assert (answer["type"], answer["user_id"]) == ("welcome", socket.welcome["user_id"])
        clock.advance(700_000)
        assert (await socket.heartbeat())["type"] == "heartbeat_ack"
        clock.advance(600_000)
        await socket.post("heartbeat")
        assert (await socket.until_ended()).code == codes.TOKEN_EXPIRED.code


async def test_refresh_takes_no_other_persons_token(place: Place) -> None:
    """It is refused, and the socket stays what it was."""
    async with (
        place.serving(SETTINGS) as served,
        served.client(person("", signed(claims(wall_clock())))) as socket,
    ):
        for wrong in (signed(claims(wall_clock(), sub="ben")), "prl_made_up", "a.b.c"):
            refused = await socket.request("refresh", token=wrong)
            assert (refused["type"], refused.get("code")) == ("refused", "unauthenticated")
        assert (await socket.heartbeat())["type"] == "heartbeat_ack"


class Issuer:
    """Publishes keys; counts how often they are asked for."""

    def __init__(self) -> None:
        self.keys: list[dict[str, Any]] = [rsa_jwk("one")]
        self.fetches = 0
        self.url = ""

    async def serve(self, request: web.Request) -> web.Response:
        self.fetches += 1
        await asyncio.sleep(0.05)  # time for others to come
        return web.Response(body=json.dumps({"keys": self.keys}).encode(), content_type="application/json")

    @property
    def settings(self) -> dict[str, str]:
        return {
            "PARLEY_AUTH_JWT_JWKS_URL": self.url,
            "PARLEY_AUTH_JWT_ALGORITHMS": "RS256,ES256",
            "PARLEY_AUTH_JWT_ISSUER": ISSUER,
            "PARLEY_AUTH_JWT_AUDIENCE": AUDIENCE,
            "PARLEY_WEBHOOKS_ALLOWED_NETWORKS": "127.0.0.0/8",
        }


@asynccontextmanager
async def issuing() -> AsyncIterator[Issuer]:
    issuer, app = Issuer(), web.Application()
    app.router.add_get("/keys", issuer.serve)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        issuer.url = f"http://127.0.0.1:{runner.addresses[0][1]}/keys"
        yield issuer
    finally:
        await runner.cleanup()


async def test_many_sign_ins_with_no_keys_yet_cause_one_fetch(place: Place) -> None:
    """A thousand at once wait for the same answer."""
    async with issuing() as issuer, place.serving(issuer.settings) as served:
        token = signed(claims(wall_clock()), rsa_key(), "RS256", kid="one")
        sign_in = served.app.identities.sign_in
        found = await asyncio.gather(*(sign_in.authenticate(token) for _ in range(1_000)))
        assert len({access.session.user_id for access in found}) == 1
        assert issuer.fetches == 1


async def test_keys_change_while_people_are_connected(place: Place) -> None:
    """A token of the new key is let in at once; who is connected by the old one stays, and may refresh."""
    clock = VirtualClock()
    async with issuing() as issuer, place.serving(issuer.settings, clock=clock) as served:
        old = signed(claims(clock()), rsa_key(), "RS256", kid="one")
        async with served.client(person("", old)) as socket:
            issuer.keys = [rsa_jwk("two", 1)]
            clock.advance(31_000)
            new = signed(claims(clock()), rsa_key(1), "RS256", kid="two")
            assert (await http(served, new).get("/v1/me")).status == 200
            assert (await socket.heartbeat())["type"] == "heartbeat_ack"
            assert (await socket.request("refresh", token=new))["type"] == "welcome"
            assert issuer.fetches == 2
            assert (await http(served, old).get("/v1/me")).status == 401


async def test_made_up_key_ids_do_not_flood_the_issuer(place: Place) -> None:
    """However many there are, the keys are fetched once in half a minute."""
    async with issuing() as issuer, place.serving(issuer.settings) as served:
        for number in range(20):
            made_up = signed(claims(wall_clock()), rsa_key(), "RS256", kid=f"made up {number}")
            assert (await http(served, made_up).get("/v1/me")).status == 401
        assert issuer.fetches == 1


async def test_an_issuer_that_is_away_is_no_verdict(place: Place) -> None:
    """A token is not refused for good because its keys cannot be had: 503, and a socket may come again."""
    async with issuing() as issuer:
        settings = issuer.settings
    async with place.serving(settings) as served:
        token = signed(claims(wall_clock()), rsa_key(), "RS256", kid="one")
        answer = await http(served, token).get("/v1/me")
        assert (answer.status, answer.body["code"]) == (503, "keys_unavailable")
        socket = served.client(person("", token))
        await socket.open()
        await socket.tell("hello", id=1, token=token, device_id="phone")
        assert codes.may_resume((await socket.until_ended()).code)


async def test_keys_are_fetched_only_where_the_server_may_connect_to(place: Place) -> None:
    """The address of the keys obeys the same rules as those of webhooks."""
    async with issuing() as issuer:
        settings = issuer.settings | {"PARLEY_WEBHOOKS_ALLOWED_NETWORKS": ""}
        async with place.serving(settings) as served:
            token = signed(claims(wall_clock()), rsa_key(), "RS256", kid="one")
            assert (await http(served, token).get("/v1/me")).status == 503
        assert issuer.fetches == 0


async def test_the_sdk_gets_tokens_from_a_function(place: Place) -> None:
    """It asks again before a token expires, and the same connection goes on with the new one."""
    async with place.serving(SETTINGS) as served:
        given: list[str] = []

        async def get_token() -> str:
            seconds = 600 if given else 5
            given.append(signed(claims(wall_clock(), exp=wall_clock() / 1000 + seconds)))
            return given[-1]

        async with connect(served.url, get_token, device_id="phone") as me:
            (socket,) = served.app.gateway.connections
            await eventually(lambda: socket.token == given[-1] != given[0])
            assert (await http(served, given[1]).get("/v1/me")).body["user_id"] == me.user_id
            assert len(given) == 2


async def test_the_sdk_comes_back_after_an_expired_token(place: Place) -> None:
    """With a function it asks for another one; a token that was given once ends the client."""
    async with place.serving(SETTINGS) as served:
        given: list[str] = []

        async def get_token() -> str:
            seconds = 600 if given else 0.5
            given.append(signed(claims(wall_clock(), exp=wall_clock() / 1000 + seconds, sub="7")))
            if len(given) == 2:
                raise OSError("the login is away for a moment")
            return given[-1]

        async with connect(served.url, get_token, device_id="phone") as me:
            await eventually(lambda: len(given) > 2 and me.core.online)
        old = signed(claims(wall_clock(), exp=wall_clock() // 1000 - 100))
        with pytest.raises(BadToken, match="expired"):
            await connect(served.url, old, device_id="phone").__aenter__()
