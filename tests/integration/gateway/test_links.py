"""Links of operators over HTTP: invitations to register, and resets of passwords."""

import asyncio
from typing import Any

import pytest

from parley.clock import MS_PER_DAY, MS_PER_SECOND, wall_clock
from tests.harness.clients import PASSWORD, Answer, Person
from tests.integration.gateway.serving import Place, Served, assert_refused

BY_INVITE = {"PARLEY_ACCOUNTS_REGISTRATION": "invite"}
CLOSED = {"PARLEY_ACCOUNTS_REGISTRATION": "closed"}
NEW = "a password nobody guesses"


class Time:
    """A clock that tests put forward."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def __call__(self) -> int:
        return wall_clock() + self.ahead_ms


async def invite(served: Served, root: Person, **wanted: Any) -> Any:
    made = await served.as_(root).post("/v1/admin/invites", wanted)
    assert made.status == 201, made
    return made.body


async def register(served: Served, token: str, name: str, password: str = NEW) -> Answer:
    wanted = {"username": name, "password": password, "invite": token}
    return await served.http.post("/v1/accounts", wanted)


async def reset(served: Served, token: str, password: str = NEW) -> Answer:
    return await served.http.post("/v1/password-reset", {"token": token, "new_password": password})


async def log_in(served: Served, name: str, password: str) -> Answer:
    body = {"username": name, "password": password, "device_id": "phone", "device_name": ""}
    return await served.http.post("/v1/sessions", body)


async def root_of(served: Served) -> Person:
    """An operator of a server on which nobody registers."""
    user = await served.app.accounts.register("root", PASSWORD, is_operator=True, by_operator=True)
    return await served.http.login(user.username)


async def test_a_link_is_for_one(place: Place) -> None:
    """Who has it registers; who comes second is told that it was used; without one nobody registers."""
    async with place.serving(BY_INVITE) as served:
        root = await root_of(served)
        link = await invite(served, root, note="for ann")
        assert link["url"] == f"{served.url}/link#{link['token']}"
        assert_refused(
            await served.http.post("/v1/accounts", {"username": "x", "password": NEW}), 403, "forbidden"
        )
        assert (await register(served, link["token"], "ann")).status == 201
        assert_refused(await register(served, link["token"], "ben"), 410, "link_used")
        assert (await log_in(served, "ann", NEW)).status == 201
        (listed,) = (await served.as_(root).get("/v1/admin/invites")).body["invites"]
        assert (listed["state"], listed["note"], len(listed["used_by"])) == ("used", "for ann", 1)


async def test_two_at_once_are_one(place: Place) -> None:
    """However many use a link of two at the same moment, two have accounts."""
    async with place.serving(BY_INVITE) as served:
        link = await invite(served, await root_of(served), uses=2)
        answers = await asyncio.gather(*(register(served, link["token"], f"p{n}") for n in range(5)))
        assert sorted(answer.status for answer in answers) == [201, 201, 410, 410, 410]
        logins = await asyncio.gather(*(log_in(served, f"p{n}", NEW) for n in range(5)))
        assert [login.status for login in logins] == [
            201 if answer.status == 201 else 401 for answer in answers
        ]


async def test_what_fails_uses_nothing_up(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is taken, also at the last moment, or a refused password leaves the link to the next."""

    async def taken_meanwhile(*_: object) -> bool:
        return False

    async with place.serving(BY_INVITE) as served:
        link = await invite(served, await root_of(served))
        with monkeypatch.context() as late:
            late.setattr(served.app.kinds.accounts, "add_user", taken_meanwhile)
            assert_refused(await register(served, link["token"], "ann"), 409, "username_taken")
        assert_refused(await register(served, link["token"], "root"), 409, "username_taken")
        assert_refused(await register(served, link["token"], "ann", "password"), 400, "bad_request")
        assert (await register(served, link["token"], "ann")).status == 201


async def test_a_link_that_is_over_says_why(place: Place) -> None:
    """Expired, revoked and unknown links are refused, each for its own reason."""
    time = Time()
    async with place.serving(BY_INVITE, clock=time) as served:
        root = await root_of(served)
        short = await invite(served, root, expires_in_seconds=60)
        gone = await invite(served, root, uses=5)
        assert (await served.as_(root).delete(f"/v1/admin/invites/{gone['link_id']}")).status == 204
        time.ahead_ms = 61 * MS_PER_SECOND
        assert_refused(await register(served, short["token"], "ann"), 410, "link_expired")
        assert_refused(await register(served, gone["token"], "ann"), 410, "link_revoked")
        for unknown in ("inv_", "x" * 2_000, gone["token"][:-1], gone["token"].replace("inv_", "rst_")):
            assert_refused(await register(served, unknown, "ann"), 404, "not_found")
        nothing = await served.as_(root).delete("/v1/admin/invites/lnk_nothing")
        assert_refused(nothing, 404, "not_found")


async def test_closed_is_closed(place: Place) -> None:
    """No link opens a server whose registration is closed, and none is made there."""
    async with place.serving(BY_INVITE) as served:
        link = await invite(served, await root_of(served))
    async with place.serving(CLOSED) as served:
        assert_refused(await register(served, link["token"], "ann"), 403, "forbidden")


@pytest.mark.parametrize(
    "wanted", [{"uses": 0}, {"uses": 1_001}, {"expires_in_seconds": 0}, {"note": "x" * 201}]
)
async def test_a_link_has_limits(place: Place, wanted: dict[str, Any]) -> None:
    """How many, how long and what is noted."""
    async with place.serving() as served:
        root = await served.operator()
        assert_refused(await served.as_(root).post("/v1/admin/invites", wanted), 400, "bad_request")


async def test_only_operators_make_links(place: Place) -> None:
    """Neither sees what the others made."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        mine = served.as_(ann)
        for answer in (
            await mine.post("/v1/admin/invites", {}),
            await mine.get("/v1/admin/invites"),
            await mine.post(f"/v1/admin/users/{ann.user_id}/password-reset", {}),
        ):
            assert_refused(answer, 403, "forbidden")


async def test_a_password_is_reset_once(place: Place) -> None:
    """The new password works, the old one and all sessions do not; the link is used up; it is audited."""
    async with place.serving() as served:
        root, (ann,) = await served.operator(), await served.people("ann")
        path = f"/v1/admin/users/{ann.user_id}/password-reset"
        link = (await served.as_(root).post(path, {})).body
        assert link["user_id"] == ann.user_id
        assert (await served.as_(ann).get("/v1/me")).status == 200
        assert (await reset(served, link["token"])).status == 204
        assert_refused(await served.as_(ann).get("/v1/me"), 401, "unauthenticated")
        assert_refused(await log_in(served, "ann", PASSWORD), 401, "unauthenticated")
        assert (await log_in(served, "ann", NEW)).status == 201
        assert_refused(await reset(served, link["token"], "another one"), 410, "link_used")
        records = (await served.as_(root).get("/v1/admin/audit")).body["records"]
        actions = {(one["action"], one["actor"], one["outcome"]) for one in records}
        assert ("user.password_reset", root.user_id, "done") in actions
        assert ("user.password_reset.use", ann.user_id, "done") in actions


async def test_a_newer_link_replaces_the_older(place: Place) -> None:
    """Only the last one works, and not even that one after it was withdrawn."""
    async with place.serving() as served:
        root, (ann,) = await served.operator(), await served.people("ann")
        path = f"/v1/admin/users/{ann.user_id}/password-reset"
        first, second = [(await served.as_(root).post(path, {})).body for _ in range(2)]
        assert_refused(await reset(served, first["token"]), 410, "link_revoked")
        assert (await served.as_(root).delete(path)).status == 204
        assert_refused(await reset(served, second["token"]), 410, "link_revoked")
        assert (await log_in(served, "ann", PASSWORD)).status == 201


async def test_two_resets_at_once(place: Place) -> None:
    """One of two passwords that are set by one link at the same moment is set."""
    async with place.serving() as served:
        root, (ann,) = await served.operator(), await served.people("ann")
        path = f"/v1/admin/users/{ann.user_id}/password-reset"
        link = (await served.as_(root).post(path, {})).body
        passwords = ["one password of two", "two passwords of two"]
        answers = await asyncio.gather(*(reset(served, link["token"], one) for one in passwords))
        assert sorted(answer.status for answer in answers) == [204, 410]
        for password, answer in zip(passwords, answers, strict=True):
            wanted = 201 if answer.status == 204 else 401
            assert (await log_in(served, "ann", password)).status == wanted


async def test_only_a_digest_is_kept(place: Place) -> None:
    """Neither a token nor its secret part is in the files of the server."""
    async with place.serving() as served:
        root, (ann,) = await served.operator(), await served.people("ann")
        link = await invite(served, root)
        other = (await served.as_(root).post(f"/v1/admin/users/{ann.user_id}/password-reset", {})).body
    kept = b"".join(path.read_bytes() for path in place.folder.rglob("*") if path.is_file())
    assert link["link_id"].encode() in kept
    for token in (link["token"], other["token"]):
        assert token[-64:].encode() not in kept


async def test_old_links_make_room(place: Place) -> None:
    """A link that is over for long is not kept for ever."""
    time = Time()
    async with place.serving(BY_INVITE, clock=time) as served:
        await invite(served, await root_of(served), expires_in_seconds=60)
        time.ahead_ms = 31 * MS_PER_DAY
        root = await served.http.login("root")
        new = await invite(served, root)
        listed = (await served.as_(root).get("/v1/admin/invites")).body["invites"]
        assert [link["link_id"] for link in listed] == [new["link_id"]]


async def test_the_page_of_a_link(place: Place) -> None:
    """It is served with what it needs, runs no script of others, and is in no frame of others."""
    async with place.serving() as served:
        for path, kind in (
            ("/link", "text/html"),
            ("/link/link.js", "text/javascript"),
            ("/link/link.css", "text/css"),
        ):
            async with served.session.get(f"{served.url}{path}") as answer:
                assert (answer.status, answer.content_type) == (200, kind)
                policy = answer.headers["Content-Security-Policy"]
                assert "script-src 'self'" in policy
                assert "frame-ancestors 'none'" in policy
                assert "onclick" not in (text := await answer.text())
                assert "<script>" not in text
        async with served.session.get(f"{served.url}/link/other.js") as answer:
            assert answer.status == 404
