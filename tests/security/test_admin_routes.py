"""The routes of operators: closed to everybody else, whoever they are and whatever they ask for."""

import pytest

from parley.gateway.api import ROUTES
from parley.gateway.routes import Route
from tests.integration.gateway.serving import Place, assert_refused

ADMIN = [route for route in ROUTES if route.path.startswith("/v1/admin")]
NAMES = [f"{route.method} {route.path}" for route in ADMIN]


def path_of(route: Route, user_id: str) -> str:
    others = {
        "session_id": "ses_0",
        "dlq_id": "dlq_0",
        "job_id": "job_0",
        "webhook_id": "wh_0",
        "connection_id": "c0",
        "node_id": "node_0",
        "chat_id": "chat_0",
        "message_id": "msg_0",
        "token_id": "tok_0",
        "link_id": "lnk_0",
        "report_id": "rep_0",
        "device_id": "phone",
        "job": "publisher",
    }
    return route.path.format(user_id=user_id, **others)


@pytest.mark.parametrize("route", ADMIN, ids=NAMES)
async def test_an_admin_route_takes_operators_only(place: Place, route: Route) -> None:
    """Nobody without a token, no ordinary person, and no operator who was disabled."""
    async with place.serving() as served:
        root, former = await served.operator(), await served.operator("former")
        ann, ben = await served.people("ann", "ben")
        path, body = path_of(route, ben.user_id), {"password": "x"} if route.body else None
        assert_refused(await served.http.request(route.method, path, body), 401, "unauthenticated")
        assert_refused(await served.as_(ann).request(route.method, path, body), 403, "forbidden")
        await served.as_(root).post(f"/v1/admin/users/{former.user_id}/disable", None)
        assert_refused(await served.as_(former).request(route.method, path, body), 401, "unauthenticated")
        assert (await served.as_(ben).get("/v1/me")).status == 200


def test_every_admin_route_is_tried() -> None:
    """All of them ask for an operator, and none is missing above."""
    assert len(ADMIN) >= 9
    assert {route.needs for route in ADMIN} == {"operator"}


async def test_the_last_operator_cannot_be_taken_away(place: Place) -> None:
    """Neither by themselves nor, when there are two, by both at once."""
    async with place.serving() as served:
        root = await served.operator()
        own = f"/v1/admin/users/{root.user_id}"
        assert_refused(await served.as_(root).post(f"{own}/disable", None), 409, "last_operator")
        assert_refused(await served.as_(root).delete(own), 409, "last_operator")
        assert (await served.as_(root).get("/v1/admin/users")).status == 200
        await served.operator("second")
        assert (await served.as_(root).post(f"{own}/disable", None)).status == 200


async def test_an_operator_looks_through_people(place: Place) -> None:
    """By a name, which comes first, by a part of a name, and page by page."""
    async with place.serving() as served:
        root = await served.operator()
        await served.people("ann", "annabel", "ben")

        async def names(**query: str | int) -> list[str]:
            answer = await served.as_(root).get("/v1/admin/users", **query)
            return [user["username"] for user in answer.body["users"]]

        assert await names(q="annabel") == ["annabel"]
        assert await names(q="ann") == ["ann", "annabel"]
        assert await names(q="nn") == ["ann", "annabel"]
        first = (await served.as_(root).get("/v1/admin/users", limit=2)).body
        assert len(first["users"]) == 2
        assert len(await names(after=first["next_after"])) == 2


async def test_a_password_reset_ends_every_session(place: Place) -> None:
    """The thief is out, and the person gets in with the new password only."""
    async with place.serving() as served:
        root, ann = await served.operator(), (await served.people("ann"))[0]
        async with served.client(ann) as client:
            path = f"/v1/admin/users/{ann.user_id}/password"
            assert (await served.as_(root).post(path, {"password": "brand new"})).status == 204
            assert (await client.until_ended()).code == 4102
        assert_refused(await served.as_(ann).get("/v1/me"), 401, "unauthenticated")
        login = {"username": "ann", "password": "correct horse battery", "device_id": "pc"}
        assert_refused(await served.http.post("/v1/sessions", login), 401, "unauthenticated")
        assert (await served.http.post("/v1/sessions", {**login, "password": "brand new"})).status == 201


async def test_an_operator_revokes_one_session_or_all(place: Place) -> None:
    """The sockets of those close, and no others."""
    async with place.serving() as served:
        root, phone = await served.operator(), await served.http.newcomer("ann")
        tablet = await served.http.login("ann", "tablet")
        sessions = f"/v1/admin/users/{phone.user_id}/sessions"
        listed = (await served.as_(root).get(sessions)).body["sessions"]
        assert {one["session_id"] for one in listed} == {phone.session_id, tablet.session_id}
        async with served.client(phone) as first, served.client(tablet) as second:
            assert (await served.as_(root).delete(f"{sessions}/{phone.session_id}")).status == 204
            assert (await first.until_ended()).code == 4102
            assert (await second.heartbeat())["type"] == "heartbeat_ack"
            assert (await served.as_(root).delete(sessions)).status == 204
            assert (await second.until_ended()).code == 4102
        assert_refused(await served.as_(root).delete(f"{sessions}/ses_0"), 404, "not_found")
