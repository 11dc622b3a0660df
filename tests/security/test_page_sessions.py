"""Sessions of pages: the cookie alone opens nothing, each use exchanges it, a copy of it ends the session."""

import asyncio
from typing import Any

import pytest

from parley.accounts.page_sessions import (
    CONSOLE_IDLE_SECONDS,
    CONSOLE_SECONDS,
    PAGE_TOKEN_SECONDS,
    PAGE_TOKENS_MAX,
)
from parley.clock import MS_PER_DAY, MS_PER_SECOND
from parley.gateway.api import ROUTES
from parley.gateway.calls import PASSWORD_SECONDS_MAX
from parley.store.tables import PAGE_SESSIONS
from parley.wire.limits import SESSION_DAYS
from tests.harness.clients import PASSWORD, Answer, Person, Unexpected
from tests.harness.clock import VirtualClock
from tests.integration.gateway.serving import Place, Served, assert_refused, message
from tests.security.browsers import SESSION as PATH
from tests.security.browsers import Browser

HOST_COOKIE, PLAIN_COOKIE = "__Host-parley", "parley"
EXPOSED = {"PARLEY_SERVER_HOSTS": "chat.example,127.0.0.1", "PARLEY_ACCOUNTS_REGISTRATION": "open"}
ON_PUBLIC_NAME = EXPOSED | {"PARLEY_CONSOLE_ENABLED": "true"}
CONSOLE = {"page": "console"}


async def signed_in(served: Served, **options: Any) -> tuple[Browser, Answer]:
    """Ann at a page of the chat."""
    await served.people("ann")
    browser = Browser(served, **options)
    answer = await browser.sign_in()
    assert answer.status == 201, answer
    return browser, answer


async def at_the_console(served: Served, **fields: Any) -> tuple[Browser, Answer]:
    """Root at a page of the console."""
    await served.operator("root")
    browser = Browser(served)
    answer = await browser.sign_in("root", "?page=console", **fields)
    assert answer.status == 201, answer
    return browser, answer


# What a sign-in gives


async def test_the_long_lived_secret_is_in_a_cookie_that_no_script_reads(place: Place) -> None:
    """The answer has a token for ten minutes; the cookie is for this name alone; no other site sends it."""
    async with place.serving(clock=VirtualClock()) as served:
        browser, answer = await signed_in(served)
        assert set(browser.cookies) == {HOST_COOKIE}
        assert browser.told == {
            "path": "/",
            "max-age": str(SESSION_DAYS * 86_400),
            "httponly": "True",
            "samesite": "Strict",
            "secure": "True",
        }
        assert browser.cookies[HOST_COOKIE] not in str(answer.body)
        assert answer.body["expires_in"] == PAGE_TOKEN_SECONDS
        me = await browser.get("/v1/me", answer)
        assert (me.status, me.body["user_id"]) == (200, answer.body["user_id"])
        (listed,) = [
            one for one in (await browser.get("/v1/sessions", answer)).body["sessions"] if one["current"]
        ]
        assert (listed["device_name"], listed["session_id"]) == ("Chrome on Linux", answer.body["session_id"])


@pytest.mark.parametrize(
    ("host", "scheme", "name"),
    [
        ("", "http", HOST_COOKIE),
        ("chat.example", "https", HOST_COOKIE),
        ("chat.example", "http", PLAIN_COOKIE),
    ],
)
async def test_the_cookie_has_the_prefix_wherever_browsers_keep_it(
    place: Place, host: str, scheme: str, name: str
) -> None:
    """By TLS and on this machine; a plain name only on plain HTTP, and never read where TLS is."""
    async with place.serving(EXPOSED) as served:
        browser, _ = await signed_in(served, host=host, scheme=scheme)
        assert set(browser.cookies) == {name}
        assert ("secure" in browser.told) == (name == HOST_COOKIE)
        assert (await browser.refresh()).status == 200
        other = PLAIN_COOKIE if name == HOST_COOKIE else HOST_COOKIE
        browser.cookies = {other: browser.cookies[name]}
        assert_refused(await browser.refresh(), 401, "unauthenticated")


@pytest.mark.parametrize("fields", [{"password": "wrong"}, {"username": "nobody"}, {"device_id": ""}])
async def test_a_wrong_sign_in_gets_no_cookie(place: Place, fields: dict[str, str]) -> None:
    """As a login over the API, with the same limits on guesses."""
    async with place.serving() as served:
        await served.people("ann")
        browser = Browser(served)
        assert (await browser.sign_in(**fields)).status in (400, 401)
        assert not browser.cookies


async def test_guesses_at_a_page_count_as_guesses(place: Place) -> None:
    """Somebody who is refused by one door does not get a second budget at the other."""
    async with place.serving({"PARLEY_LIMITS_RATES": "on"}, VirtualClock()) as served:
        await served.people("ann")
        browser = Browser(served)
        while (answer := await browser.sign_in(password="wrong")).status == 401:
            pass
        assert answer.status == 429
        body = {"username": "ann", "password": "wrong", "device_id": "pad"}
        assert (await served.http.post("/v1/sessions", body)).status == 429


# The cookie alone opens nothing


async def test_no_other_route_reads_the_cookie(place: Place) -> None:
    """Every route that asks for a token is closed to a browser that has nothing but the cookie."""
    async with place.serving() as served:
        browser, _ = await signed_in(served)
        for route in ROUTES:
            if route.needs != "nothing":
                path = route.path.replace("{", "").replace("}", "")
                answer = await browser.ask(route.method, path)
                assert_refused(answer, 401, "unauthenticated")


async def test_no_socket_reads_the_cookie(place: Place) -> None:
    """A page of another site cannot ride on the session: a connection asks for a token in its first frame."""
    async with place.serving() as served:
        browser, answer = await signed_in(served)
        headers = {"Cookie": f"{HOST_COOKIE}={browser.cookies[HOST_COOKIE]}"}
        async with served.session.ws_connect(f"{served.url}/v1/ws", headers=headers) as socket:
            hello = {"type": "hello", "token": browser.cookies[HOST_COOKIE], "device_id": "web"}
            await socket.send_json(hello)
            assert (await socket.receive_json())["code"] == "unauthenticated"
        me = Person("ann", answer.body["user_id"], "web", "", answer.body["access_token"])
        async with served.client(me) as client:
            assert (await client.heartbeat())["type"] == "heartbeat_ack"


FOREIGN: list[dict[str, str | None]] = [
    {"Origin": "https://evil.example"},
    {"Origin": None},
    {"Origin": "null"},
    {"Sec_Fetch_Site": "cross-site"},
    {"Sec_Fetch_Site": "same-site"},
    {"Sec_Fetch_Site": "none"},
    {"Parley_Page": None},
    {"Content_Type": "text/plain"},
    {"Content_Type": None},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
@pytest.mark.parametrize(("method", "path"), [("POST", PATH), ("POST", f"{PATH}/refresh"), ("DELETE", PATH)])
async def test_a_page_of_another_site_is_refused(
    place: Place, method: str, path: str, headers: dict[str, str | None]
) -> None:
    """Nothing happens to the session, with whatever part of a page's request is not this server's."""
    settings = EXPOSED | {"PARLEY_SERVER_ORIGINS": "https://evil.example"}
    async with place.serving(settings) as served:
        browser, _ = await signed_in(served)
        before = dict(browser.cookies)
        body = {"username": "ann", "password": PASSWORD, "device_id": "web"} if path == PATH else {}
        answer = await browser.ask(method, path, body if method == "POST" else None, headers=headers)
        assert answer.status in (403, 415), answer
        assert "Set-Cookie" not in answer.headers
        assert browser.cookies == before
        assert (await browser.refresh()).status == 200


async def test_nothing_that_a_script_has_outlives_ten_minutes(place: Place) -> None:
    """A token that was copied ends by itself, on HTTP and on a socket; the cookie gets the next one."""
    clock = VirtualClock()
    async with place.serving(clock=clock) as served:
        browser, answer = await signed_in(served)
        me = Person("ann", answer.body["user_id"], "web", "", answer.body["access_token"])
        async with served.client(me) as client:
            clock.advance(PAGE_TOKEN_SECONDS * MS_PER_SECOND - 1)
            assert (await browser.get("/v1/me", answer)).status == 200
            clock.advance(1)
            assert_refused(await browser.get("/v1/me", answer), 401, "unauthenticated")
            fresh = await browser.refresh()
            told = await client.request("refresh", token=fresh.body["access_token"])
            assert told["type"] == "welcome"
        assert (await browser.get("/v1/me", fresh)).status == 200
        with pytest.raises(Unexpected, match="unauthenticated"):
            async with served.client(me):
                """The token of before opens nothing."""


# Each use exchanges it


async def test_each_use_changes_the_cookie(place: Place) -> None:
    """And each token is another; the earlier ones are good until their end, for other tabs."""
    async with place.serving() as served:
        browser, answer = await signed_in(served)
        seen, tokens = {browser.cookies[HOST_COOKIE]}, [answer]
        for _ in range(4):
            tokens.append(await browser.refresh())
            seen.add(browser.cookies[HOST_COOKIE])
        assert len(seen) == len({one.body["access_token"] for one in tokens}) == 5
        for one in tokens:
            assert (await browser.get("/v1/me", one)).status == 200


async def test_a_cookie_of_before_the_last_ends_the_session(place: Place) -> None:
    """Two have it: the session is over for both, and so are its tokens and sockets."""
    async with place.serving() as served:
        browser, answer = await signed_in(served)
        thief = Browser(served, cookies=dict(browser.cookies))
        await browser.refresh()
        fresh = await browser.refresh()
        me = Person("ann", answer.body["user_id"], "web", "", fresh.body["access_token"])
        async with served.client(me) as client:
            assert_refused(await thief.refresh(), 401, "unauthenticated")
            assert (await client.until_ended()).code in range(4_100, 4_200)
        assert_refused(await browser.refresh(), 401, "unauthenticated")
        assert_refused(await browser.get("/v1/me", fresh), 401, "unauthenticated")


async def test_a_browser_that_lost_the_newest_cookie_goes_on(place: Place) -> None:
    """It crashed before the cookie was on its disk: the one before is good, and leads to the same one."""
    async with place.serving() as served:
        browser, _ = await signed_in(served)
        on_disk = dict(browser.cookies)
        await browser.refresh()
        newest = dict(browser.cookies)
        for _ in range(2):
            browser.cookies = dict(on_disk)
            assert (await browser.refresh()).status == 200
            assert browser.cookies == newest
        assert (await browser.refresh()).status == 200
        assert browser.cookies != newest


async def test_a_server_that_dies_in_between_signs_nobody_out(place: Place) -> None:
    """Nothing of the exchange is in memory: another process gives the same cookie for the one before."""
    async with place.serving() as served:
        browser, _ = await signed_in(served)
        on_disk = dict(browser.cookies)
        await browser.refresh()
        newest = dict(browser.cookies)
    async with place.serving() as served:
        again = Browser(served, cookies=on_disk)
        assert (await again.refresh()).status == 200
        assert again.cookies == newest


async def test_tabs_that_ask_at_once_get_the_same_cookie(place: Place) -> None:
    """Whichever answer the browser keeps, the session goes on; each tab has a token."""
    async with place.serving() as served:
        browser, _ = await signed_in(served)
        tabs = [Browser(served, cookies=dict(browser.cookies)) for _ in range(8)]
        answers = await asyncio.gather(*(tab.refresh() for tab in tabs))
        assert {answer.status for answer in answers} == {200}
        assert len({tab.cookies[HOST_COOKIE] for tab in tabs}) == 1
        for answer in answers:
            assert (await browser.get("/v1/me", answer)).status == 200
        assert (await tabs[3].refresh()).status == 200


async def test_a_session_has_few_tokens_at_once(place: Place) -> None:
    """A page that asks again and again fills no store: its oldest tokens end."""
    async with place.serving() as served:
        browser, answer = await signed_in(served)
        last = answer
        for _ in range(PAGE_TOKENS_MAX):
            last = await browser.refresh()
        assert_refused(await browser.get("/v1/me", answer), 401, "unauthenticated")
        assert (await browser.get("/v1/me", last)).status == 200


@pytest.mark.parametrize("part", range(3))
async def test_a_guessed_cookie_ends_nothing(place: Place, part: int) -> None:
    """Who knows the id of a session can neither use nor end it; with all but the last part it is a copy."""
    async with place.serving() as served:
        browser, _ = await signed_in(served)
        parts = browser.cookies[HOST_COOKIE].split(".")
        parts[part] = parts[part][:-1] + ("0" if parts[part][-1] != "0" else "1")
        forged = Browser(served, cookies={HOST_COOKIE: ".".join(parts)})
        for cookie in (".".join(parts), parts[0], f"{parts[0]}..", "", "ses_", "x" * 5_000):
            forged.cookies = {HOST_COOKIE: cookie}
            assert (await forged.refresh()).status == 401
        assert (await browser.refresh()).status == (401 if part == 2 else 200)


# Its end


async def test_a_page_signs_out(place: Place) -> None:
    """The cookie is gone, tokens and sockets end at once, and a second time is no error."""
    async with place.serving() as served:
        browser, answer = await signed_in(served)
        copied = dict(browser.cookies)
        me = Person("ann", answer.body["user_id"], "web", "", answer.body["access_token"])
        async with served.client(me) as client:
            out = await browser.ask("DELETE", PATH, {})
            assert (out.status, browser.cookies) == (204, {})
            await client.until_ended()
        assert_refused(await browser.get("/v1/me", answer), 401, "unauthenticated")
        assert_refused(await Browser(served, cookies=copied).refresh(), 401, "unauthenticated")
        assert (await browser.ask("DELETE", PATH)).status == 204


@pytest.mark.parametrize("how", ["session", "device", "password", "current"])
async def test_whatever_ends_a_session_ends_a_page(place: Place, how: str) -> None:
    """A removed device, a revoked session, a changed password, a sign-out by its token."""
    async with place.serving() as served:
        browser, answer = await signed_in(served)
        phone = served.as_(await served.http.login("ann", "phone"))
        if how == "session":
            done = await phone.delete(f"/v1/sessions/{answer.body['session_id']}")
        elif how == "device":
            done = await phone.delete("/v1/devices/web")
        elif how == "password":
            body = {"old_password": PASSWORD, "new_password": "another long one"}
            done = await phone.post("/v1/me/password", body)
        else:
            done = await browser.ask("DELETE", "/v1/sessions/current", token=answer.body["access_token"])
        assert done.status == 204, done
        assert_refused(await browser.get("/v1/me", answer), 401, "unauthenticated")
        assert_refused(await browser.refresh(), 401, "unauthenticated")


async def test_any_session_signs_itself_out(place: Place) -> None:
    """Its own and no other; the device is forgotten with its last session."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        other = await served.http.login("ann", "pad")
        assert (await served.as_(other).delete("/v1/sessions/current")).status == 204
        assert_refused(await served.as_(other).get("/v1/me"), 401, "unauthenticated")
        (left,) = (await served.as_(ann).get("/v1/devices")).body["devices"]
        assert left["device_id"] == "phone"


async def test_a_page_that_is_not_opened_is_signed_out(place: Place) -> None:
    """After thirty days without a use; each use begins them anew."""
    clock = VirtualClock()
    async with place.serving(clock=clock) as served:
        browser, _ = await signed_in(served)
        for _ in range(2):
            clock.advance(SESSION_DAYS * MS_PER_DAY - 1)
            assert (await browser.refresh()).status == 200
            await served.app.kinds.raised.flush()
        clock.advance(SESSION_DAYS * MS_PER_DAY + 1)
        assert_refused(await browser.refresh(), 401, "unauthenticated")


async def test_what_is_kept_of_a_session_is_of_no_use_to_a_thief(place: Place) -> None:
    """Neither a cookie nor a token is in the file of the server: hashes are."""
    async with place.serving() as served:
        browser, answer = await signed_in(served)
        await browser.refresh()
        kept = b"".join(path.read_bytes() for path in place.folder.rglob("*") if path.is_file())
        _, family, secret = browser.cookies[HOST_COOKIE].split(".")
        for text in (family, secret, answer.body["access_token"].partition(".")[2]):
            assert text.encode() not in kept


async def test_records_of_sessions_that_are_over_go(place: Place) -> None:
    """The job that deletes old sessions takes what pages had beside them along."""
    clock = VirtualClock()
    async with place.serving(clock=clock) as served:
        await signed_in(served)
        records = served.app.store.records
        clock.advance((SESSION_DAYS + 1) * MS_PER_DAY)
        job = next(job for job in served.app.jobs() if job.name == "expired_sessions")
        await job.run()
        assert [page async for page in records.scan(PAGE_SESSIONS) if page] == []


# Who may operate from a page


async def test_the_chat_may_not_operate(place: Place) -> None:
    """Somebody who runs code in an operator's chat page does not own the server."""
    async with place.serving() as served:
        await served.operator("root")
        browser = Browser(served)
        answer = await browser.sign_in("root")
        assert (await browser.get("/v1/me", answer)).body["is_operator"] is True
        assert_refused(await browser.get("/v1/admin/users", answer), 403, "forbidden")
        assert_refused(await browser.get("/v1/admin/overview", answer), 403, "forbidden")


async def test_the_console_operates_with_a_session_of_its_own(place: Place) -> None:
    """Under another cookie, and only for operators."""
    async with place.serving() as served:
        browser, answer = await at_the_console(served)
        assert set(browser.cookies) == {"__Host-parley-console"}
        assert (await browser.get("/v1/admin/users", answer)).status == 200
        assert (await browser.get("/v1/me", answer)).status == 200
        await served.people("ann")
        assert_refused(await Browser(served).sign_in("ann", "?page=console"), 403, "forbidden")
        assert (await Browser(served).sign_in("ann", "?page=elsewhere")).status == 400


async def test_the_cookie_of_the_chat_is_not_the_consoles(place: Place) -> None:
    """A value that is carried from one to the other opens nothing."""
    async with place.serving() as served:
        await served.operator("root")
        browser = Browser(served)
        await browser.sign_in("root")
        browser.cookies["__Host-parley-console"] = browser.cookies[HOST_COOKIE]
        assert_refused(await browser.refresh("?page=console"), 401, "unauthenticated")
        assert (await browser.refresh()).status == 200


async def test_a_script_in_the_chat_cannot_ask_for_the_console(place: Place) -> None:
    """Both pages have one origin: the refresh also needs a key that only the console's tab has."""
    async with place.serving() as served:
        browser, _ = await at_the_console(served)
        for key in ("", "0" * 64, "guess"):
            assert_refused(await browser.refresh("?page=console", key=key), 401, "unauthenticated")
        fresh = await browser.refresh("?page=console", key=browser.key)
        assert (fresh.status, "key" in fresh.body) == (200, False)


@pytest.mark.parametrize(
    ("pause_seconds", "is_active", "passed"),
    [
        (CONSOLE_IDLE_SECONDS - 60, True, 15),
        (CONSOLE_IDLE_SECONDS + 1, True, 0),
        (CONSOLE_IDLE_SECONDS // 3, False, 2),
    ],
)
async def test_a_console_that_is_left_alone_ends(
    place: Place, pause_seconds: int, is_active: bool, passed: int
) -> None:
    """After half an hour without a person, though the page goes on asking, and after eight hours anyway."""
    clock = VirtualClock()
    async with place.serving(clock=clock) as served:
        browser, _ = await at_the_console(served)
        begun_ms, count = clock.now_ms, 0
        while True:
            clock.advance(pause_seconds * MS_PER_SECOND)
            answer = await browser.refresh("?page=console", key=browser.key, active=is_active)
            if answer.status != 200:
                break
            count += 1
        assert_refused(answer, 401, "unauthenticated")
        assert clock.now_ms - begun_ms <= (CONSOLE_SECONDS + pause_seconds) * MS_PER_SECOND
        assert count >= passed


async def test_what_cannot_be_undone_asks_for_the_password_again(place: Place) -> None:
    """A quarter of an hour after the last time; the password at a refresh is enough, a wrong one is not."""
    clock = VirtualClock()
    async with place.serving(clock=clock) as served:
        browser, answer = await at_the_console(served)
        (ann,) = await served.people("ann")
        clock.advance(PASSWORD_SECONDS_MAX * MS_PER_SECOND)
        answer = await browser.refresh("?page=console", key=browser.key)
        clock.advance(1)

        async def delete() -> Answer:
            token = answer.body["access_token"]
            return await browser.ask("DELETE", f"/v1/admin/users/{ann.user_id}", token=token)

        assert_refused(await delete(), 403, "password_needed")
        disable = f"/v1/admin/users/{ann.user_id}/disable"
        assert (await browser.ask("POST", disable, token=answer.body["access_token"])).status == 200
        wrong = await browser.refresh("?page=console", key=browser.key, password="guess")
        assert_refused(wrong, 401, "unauthenticated")
        answer = await browser.refresh("?page=console", key=browser.key, password=PASSWORD)
        assert (await delete()).status == 202


@pytest.mark.parametrize("where", ["setting", "session"])
async def test_a_console_may_be_there_to_look_at(place: Place, where: str) -> None:
    """Everything is shown and nothing is changed, for one session or for all."""
    settings = {"PARLEY_CONSOLE_READ_ONLY": "true"} if where == "setting" else {}
    async with place.serving(settings) as served:
        browser, answer = await at_the_console(served, **({"read_only": True} if where == "session" else {}))
        assert answer.body["read_only"] is True
        (ann,) = await served.people("ann")
        assert (await browser.get("/v1/admin/users", answer)).status == 200
        path = f"/v1/admin/users/{ann.user_id}/disable"
        refused = await browser.ask("POST", path, token=answer.body["access_token"])
        assert_refused(refused, 403, "forbidden")
        assert (await served.as_(ann).get("/v1/me")).status == 200


@pytest.mark.parametrize("settings", [EXPOSED, {"PARLEY_CONSOLE_ENABLED": "false"}])
async def test_there_is_no_session_of_a_console_that_is_not_there(
    place: Place, settings: dict[str, str]
) -> None:
    """Where the console is not served nobody signs in to it, whatever they know."""
    async with place.serving(settings) as served:
        await served.operator("root")
        assert_refused(await Browser(served).sign_in("root", "?page=console"), 404, "not_found")


async def test_the_console_signs_in_at_its_own_listener(place: Place) -> None:
    """There, and not at the address of everybody."""
    settings = EXPOSED | {"PARLEY_CONSOLE_LISTEN": "127.0.0.1:0"}
    async with place.serving(settings) as served:
        await served.operator("root")
        assert_refused(await Browser(served).sign_in("root", "?page=console"), 404, "not_found")
        browser = Browser(served, port=served.app.gateway.console_port)
        answer = await browser.sign_in("root", "?page=console")
        assert (answer.status, (await browser.get("/v1/admin/users", answer)).status) == (201, 200)


async def test_a_token_of_an_operator_does_not_operate_from_a_page_of_an_exposed_server(place: Place) -> None:
    """A browser says that a page asks; commands and programs are no pages, and go on as before."""
    async with place.serving(ON_PUBLIC_NAME) as served:
        root = await served.operator("root")
        assert (await served.as_(root).get("/v1/admin/users")).status == 200
        answer = await Browser(served).ask("GET", "/v1/admin/users", token=root.token)
        assert_refused(answer, 403, "forbidden")


async def test_a_page_works_like_any_other_device(place: Place) -> None:
    """It sends and reads with its token, over HTTP and on a socket."""
    async with place.serving() as served:
        browser, answer = await signed_in(served)
        token = answer.body["access_token"]
        made = await browser.ask(
            "POST", "/v1/chats", {"type": "group", "title": "t", "member_ids": []}, token=token
        )
        chat = made.body["chat_id"]
        sent = await browser.ask("POST", f"/v1/chats/{chat}/messages", message("hi"), token=token)
        assert sent.status == 201
        me = Person("ann", answer.body["user_id"], "web", "", token)
        async with served.client(me) as client:
            assert (await client.sync(chat))["entries"][0]["content"] == "hi"
        with pytest.raises(Unexpected, match="unauthenticated"):
            async with served.client(Person("ann", me.user_id, "another", "", token)):
                """The token belongs to its device."""


def test_what_cannot_be_undone_is_marked() -> None:
    """A route that deletes a person or a chat, or makes an operator, asks for a recent password."""
    marked = {f"{route.method} {route.path}" for route in ROUTES if route.needs_password}
    assert marked == {
        "DELETE /v1/admin/users/{user_id}",
        "DELETE /v1/admin/chats/{chat_id}",
        "PUT /v1/admin/users/{user_id}/operator",
    }
