"""Names and titles show what they hold, by whichever way they come; reserved names are not for people."""

import pytest

from parley.clock import wall_clock
from parley.core.usernames import RESERVED_USERNAME
from tests.harness.clients import PASSWORD, HttpClient
from tests.harness.jwts import SETTINGS, claims, signed
from tests.integration.gateway.serving import Place, assert_refused

HIDING = "\0An\u200bn\x1b\n \u202eExample\u2069"
SHOWN = "Ann Example"
NOTHING = "\u200b\u202e\n"


async def test_a_profile_shows_what_it_holds(place: Place) -> None:
    """Changed by the person or by a backend; a name of which nothing shows is refused."""
    async with place.serving() as served:
        root, (ann, _) = await served.operator(), await served.people("ann", "ben")
        changed = await served.as_(ann).patch("/v1/me", {"display_name": HIDING, "about": HIDING})
        assert (changed.body["display_name"], changed.body["about"]) == (SHOWN, SHOWN)
        assert_refused(await served.as_(ann).patch("/v1/me", {"display_name": NOTHING}), 400, "bad_request")
        put = await served.as_(root).put("/v1/admin/users/4711", {"display_name": HIDING, "about": HIDING})
        user = (await served.as_(ann).get(f"/v1/users/{put.body['user_id']}")).body
        assert (user["display_name"], user["about"]) == (SHOWN, SHOWN)
        for external_id in ("4711", "4712"):
            nameless = await served.as_(root).put(f"/v1/admin/users/{external_id}", {"display_name": NOTHING})
            assert_refused(nameless, 400, "bad_request")


async def test_the_name_of_a_token_shows_what_it_holds(place: Place) -> None:
    """If nothing of it shows, the account is made without it."""
    async with place.serving(SETTINGS) as served:
        for number, (name, shown) in enumerate(((HIDING, SHOWN), (NOTHING, ""))):
            token = signed(claims(wall_clock(), sub=str(number), name=name))
            me = (await HttpClient(served.session, served.url, token).get("/v1/me")).body
            assert me["display_name"] == (shown or me["username"])


async def test_a_title_shows_what_it_holds(place: Place) -> None:
    """Of a new chat and of one that is renamed, also in the entry that says so."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        client = served.as_(ann)
        chat = await client.create_group(ben, title=HIDING)
        assert (await client.get(f"/v1/chats/{chat}")).body["title"] == SHOWN
        assert (await client.patch(f"/v1/chats/{chat}", {"title": HIDING + "!"})).body["title"] == SHOWN + "!"
        (entry,) = (await client.get(f"/v1/chats/{chat}/messages")).body["entries"]
        assert SHOWN + "!" in entry["content"]
        for refused in (
            await client.patch(f"/v1/chats/{chat}", {"title": NOTHING}),
            await client.post("/v1/chats", {"type": "group", "title": NOTHING, "member_ids": []}),
        ):
            assert_refused(refused, 400, "bad_request")


async def test_the_name_of_a_device_shows_what_it_holds(place: Place) -> None:
    """In the list of sessions."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        body = {"username": "ann", "password": PASSWORD, "device_id": "pad", "device_name": HIDING}
        assert (await served.http.post("/v1/sessions", body)).status == 201
        sessions = (await served.as_(ann).get("/v1/sessions")).body["sessions"]
        assert SHOWN in [one["device_name"] for one in sessions]


@pytest.mark.parametrize("name", ["admin", "sys-tem", "deleted"])
async def test_people_cannot_take_a_reserved_name(place: Place, name: str) -> None:
    """An operator can give it; who has it goes on to log in."""
    async with place.serving() as served:
        root = await served.operator()
        body = {"username": name, "password": PASSWORD}
        refused = await served.http.post("/v1/accounts", body)
        assert (refused.status, refused.body["reason"]) == (409, RESERVED_USERNAME.reason)
        link = (await served.as_(root).post("/v1/admin/invites", {})).body["token"]
        assert (await served.http.post("/v1/accounts", body | {"invite": link})).status == 409
        assert (await served.as_(root).put("/v1/admin/users/1", {"username": name})).status == 201
        assert (await served.http.login("root")).token
