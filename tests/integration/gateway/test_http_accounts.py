"""Accounts, sessions and profiles over HTTP."""

import asyncio

import pytest

from parley.clock import MS_PER_DAY
from parley.model import Session
from tests.harness.clients import PASSWORD, Answer, HttpClient
from tests.harness.clock import VirtualClock
from tests.integration.gateway.serving import Place, Served, assert_refused


async def test_registering_answers_201_with_an_id(place: Place) -> None:
    """A new account has an id with its prefix, and can log in."""
    async with place.serving() as served:
        answer = await served.http.post("/v1/accounts", {"username": "ann", "password": "x"})
        assert (answer.status, answer.body["user_id"][:5]) == (201, "user_")
        assert (await log_in(served, "ann", "x")).status == 201


async def test_a_taken_username_is_409(place: Place) -> None:
    """The second account of a name is refused."""
    async with place.serving() as served:
        await served.people("ann")
        answer = await served.http.post("/v1/accounts", {"username": "ann", "password": "y"})
        assert_refused(answer, 409, "username_taken")


async def test_a_username_of_other_letters_is_400(place: Place) -> None:
    """Only 1 to 64 of a-z 0-9 . _ - make a name."""
    async with place.serving() as served:
        for username in ("", "Ann", "a b", "ä", "a" * 65, "a\n", "a/b", "a\0"):
            answer = await served.http.post("/v1/accounts", {"username": username, "password": "x"})
            assert_refused(answer, 400, "bad_request")
        answer = await served.http.post("/v1/accounts", {"username": "a0._-" + "z" * 59, "password": "x"})
        assert answer.status == 201


async def test_a_password_too_short_or_too_long_is_400(place: Place) -> None:
    """A password has a least and a greatest length."""
    async with place.serving() as served:
        for password in ("", "x" * 1025):
            answer = await served.http.post("/v1/accounts", {"username": "ann", "password": password})
            assert_refused(answer, 400, "bad_request")


async def test_any_other_password_works_exactly(place: Place) -> None:
    """Passwords are compared letter by letter."""
    async with place.serving() as served:
        for number, password in enumerate(["\0", " spaces ", "пароль", "😀" * 100, "x" * 1024]):
            await served.http.post("/v1/accounts", {"username": f"p{number}", "password": password})
            assert (await log_in(served, f"p{number}", password)).status == 201
            assert_refused(await log_in(served, f"p{number}", password + " "), 401, "unauthenticated")


async def test_logging_in_grants_a_token(place: Place) -> None:
    """A session has a prefixed token, and says whose it is and until when."""
    clock = VirtualClock()
    async with place.serving(clock=clock) as served:
        user_id = await served.http.register("ann")
        body = (await log_in(served, "ann", PASSWORD)).body
        assert (body["user_id"], body["session_id"][:4], body["token"][:4]) == (user_id, "ses_", "prl_")
        assert len(body["token"]) == 4 + 64
        assert body["expires_at"] == "2026-01-31T00:00:00.000Z"


async def test_unknown_names_and_wrong_passwords_look_the_same(place: Place) -> None:
    """Neither refusal tells whether an account exists."""
    async with place.serving() as served:
        await served.people("ann")
        wrong = await log_in(served, "ann", "wrong")
        unknown = await log_in(served, "nobody", "wrong")
        absurd = await log_in(served, "n" * 1000, "wrong" * 1000)
        for answer in (wrong, unknown, absurd):
            assert_refused(answer, 401, "unauthenticated")
        assert wrong.body == unknown.body == absurd.body


async def test_a_device_id_that_is_not_printable_is_400(place: Place) -> None:
    """A device is named by 1 to 64 printable characters."""
    async with place.serving() as served:
        await served.http.register("ann")
        for device_id in ("", "a\nb", "\0", "x" * 65, "\u200b"):
            assert_refused(await log_in(served, "ann", PASSWORD, device_id), 400, "bad_request")


async def test_sessions_are_listed_with_the_current_one_marked(place: Place) -> None:
    """Every device of a person is listed, and only theirs."""
    async with place.serving() as served:
        ann, _ = await served.people("ann", "ben")
        await served.http.login("ann", "tablet")
        sessions = (await served.as_(ann).get("/v1/sessions")).body["sessions"]
        assert {(s["device_id"], s["current"]) for s in sessions} == {("phone", True), ("tablet", False)}
        assert {*sessions[0]} >= {"session_id", "device_id", "device_name", "last_used_at", "current"}


async def test_a_second_login_of_a_device_keeps_the_first(place: Place) -> None:
    """Each login is a new session, and earlier tokens stay valid."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        again = await served.http.login("ann")
        assert again.session_id != ann.session_id
        for person in (ann, again):
            assert (await served.as_(person).get("/v1/me")).status == 200


async def test_a_revoked_session_is_401_at_once(place: Place) -> None:
    """After its end a token means nothing, and the session is gone from the list."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        tablet = await served.http.login("ann", "tablet")
        answer = await served.as_(ann).request("DELETE", f"/v1/sessions/{tablet.session_id}")
        assert (answer.status, answer.body) == (204, "")
        assert_refused(await served.as_(tablet).get("/v1/me"), 401, "unauthenticated")
        assert len((await served.as_(ann).get("/v1/sessions")).body["sessions"]) == 1


async def test_nobody_revokes_anothers_session(place: Place) -> None:
    """A foreign session looks like one that does not exist."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        answer = await served.as_(ben).request("DELETE", f"/v1/sessions/{ann.session_id}")
        assert_refused(answer, 404, "not_found")
        assert (await served.as_(ann).get("/v1/me")).status == 200


async def test_a_session_ends_thirty_days_after_its_last_use(place: Place) -> None:
    """Use prolongs a session, and without use it runs out."""
    clock = VirtualClock()
    async with place.serving(clock=clock) as served:
        (ann,) = await served.people("ann")
        for _ in range(2):
            clock.advance(29 * MS_PER_DAY)
            assert (await served.as_(ann).get("/v1/me")).status == 200
            await served.app.kinds.raised.flush()
        clock.advance(30 * MS_PER_DAY)
        assert_refused(await served.as_(ann).get("/v1/me"), 401, "unauthenticated")


async def test_without_a_valid_token_everything_is_401(place: Place) -> None:
    """A missing, malformed or unknown token is refused, whatever is asked."""
    async with place.serving() as served:
        for header in (None, "Bearer", "Bearer ", "Bearer prl_x", "Basic eDp5", "bearer prl_", "Bearer \xff"):
            headers = {"Authorization": header} if header else {}
            for path in ("/v1/me", "/v1/chats", "/v1/chats/chat_x/messages"):
                async with served.session.get(served.url + path, headers=headers) as answer:
                    assert (answer.status, (await answer.json())["code"]) == (401, "unauthenticated")


async def test_the_word_bearer_has_no_case(place: Place) -> None:
    """As HTTP has it for every scheme."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        for word in ("Bearer", "bearer", "BEARER"):
            headers = {"Authorization": f"{word} {ann.token}"}
            async with served.session.get(f"{served.url}/v1/me", headers=headers) as answer:
                assert answer.status == 200


async def test_a_profile_is_shown_and_changed(place: Place) -> None:
    """What is left out of a change stays; the answer is the whole profile."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        first = await served.as_(ann).request("PATCH", "/v1/me", {"display_name": "Ann \0 👩"})
        second = await served.as_(ann).request("PATCH", "/v1/me", {"about": "hello"})
        expected = {
            "user_id": ann.user_id,
            "username": "ann",
            "display_name": "Ann 👩",
            "about": "hello",
            "is_bot": False,
        }
        settings = {
            "last_seen_privacy": "everyone",
            "send_read_receipts": True,
            "who_may_add": "everyone",
            "do_not_disturb": None,
            "is_operator": False,
        }
        unseen = {"status": "offline", "last_seen": "unavailable"}
        assert (first.status, second.status) == (200, 200)
        assert second.body == expected | settings == (await served.as_(ann).get("/v1/me")).body
        assert (await served.as_(ben).get(f"/v1/users/{ann.user_id}")).body == expected | unseen


async def test_changes_at_once_are_all_kept(place: Place) -> None:
    """Two changes of one profile, and a new password, at the same time do not undo each other."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        for number in range(5):
            name, about = f"Ann {number}", f"about {number}"
            answers = await asyncio.gather(
                served.as_(ann).request("PATCH", "/v1/me", {"display_name": name}),
                served.as_(ann).request("PATCH", "/v1/me", {"about": about}),
                change_password(served, ann.token, PASSWORD, PASSWORD),
            )
            assert [answer.status for answer in answers] == [200, 200, 204]
            profile = (await served.as_(ann).get("/v1/me")).body
            assert (profile["display_name"], profile["about"]) == (name, about)


async def test_a_login_that_a_new_password_overtakes_is_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever knew the old password is out, even if the check had passed just before the change."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        add_session = served.app.kinds.sessions.add

        async def overtaken(session: Session, token_hash: bytes) -> None:
            monkeypatch.undo()
            assert (await change_password(served, ann.token, PASSWORD, "brand new")).status == 204
            await add_session(session, token_hash)

        monkeypatch.setattr(served.app.kinds.sessions, "add", overtaken)
        assert_refused(await log_in(served, "ann", PASSWORD), 401, "unauthenticated")
        sessions = (await served.as_(ann).get("/v1/sessions")).body["sessions"]
        assert [session["current"] for session in sessions] == [True]


async def test_a_wrong_profile_is_400(place: Place) -> None:
    """Lengths and types are checked, and nothing is changed."""
    wrong = [{"display_name": ""}, {"display_name": "x" * 201}, {"about": "x" * 1001}, {"about": 3}, []]
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        for change in wrong:
            assert_refused(await served.as_(ann).request("PATCH", "/v1/me", change), 400, "bad_request")
        assert (await served.as_(ann).get("/v1/me")).body["display_name"] == "ann"


async def test_an_unknown_user_is_404(place: Place) -> None:
    """A profile that does not exist is not found."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        assert_refused(await served.as_(ann).get("/v1/users/user_nobody"), 404, "not_found")


async def test_a_changed_password_ends_the_other_sessions(place: Place) -> None:
    """The session that changed it goes on, the others end, and only the new password works."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        tablet = await served.http.login("ann", "tablet")
        answer = await change_password(served, ann.token, PASSWORD, "brand new")
        assert answer.status == 204
        assert (await served.as_(ann).get("/v1/me")).status == 200
        assert_refused(await served.as_(tablet).get("/v1/me"), 401, "unauthenticated")
        assert_refused(await log_in(served, "ann", PASSWORD), 401, "unauthenticated")
        assert (await log_in(served, "ann", "brand new")).status == 201


async def test_a_wrong_old_password_changes_nothing(place: Place) -> None:
    """A token alone does not change the password."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        tablet = await served.http.login("ann", "tablet")
        assert_refused(await change_password(served, ann.token, "wrong", "new"), 401, "unauthenticated")
        assert_refused(await change_password(served, ann.token, PASSWORD, ""), 400, "bad_request")
        assert (await served.as_(tablet).get("/v1/me")).status == 200
        assert (await log_in(served, "ann", PASSWORD)).status == 201


async def log_in(served: Served, username: str, password: str, device_id: str = "phone") -> Answer:
    body = {"username": username, "password": password, "device_id": device_id}
    return await served.http.post("/v1/sessions", body)


async def change_password(served: Served, token: str, old: str, new: str) -> Answer:
    client = HttpClient(served.session, served.url, token)
    return await client.post("/v1/me/password", {"old_password": old, "new_password": new})
