"""What HTTP requests may get wrong, and who may ask from where."""

import io
import json
from collections.abc import AsyncIterator

from aiohttp import ClientSession

from parley.wire.limits import BODY_BYTES_MAX
from tests.harness.clients import Answer, HttpClient, Person
from tests.integration.gateway.serving import Place, Served, assert_refused, message

HOSTILE_BODIES: list[bytes] = [
    b"",
    b"{",
    b"nonsense",
    b"null",
    b"[]",
    b'"text"',
    b"{}",
    b'{"username": "a", "password": "\\ud800"}',
    b'{"username": "\xff", "password": "x"}',
    b'{"username": 1e400, "password": 0}',
    b'{"username": "a", "password": ' + b"[" * 100_000,
    b'{"a":' * 50_000,
    b'{"username": "a", "username": ["b"], "password": "x"}',
    b"\xef\xbb\xbf{}",
    b"\0" * 100,
    b'{"username": "a", "password": ' + b"9" * 10_000 + b"}",
]


async def test_no_body_makes_the_server_fail(place: Place) -> None:
    """Whatever a body holds, it is refused as a bad request."""
    async with place.serving() as served:
        for body in HOSTILE_BODIES:
            assert_refused(await raw_post(served, "/v1/accounts", body), 400, "bad_request")


async def test_a_body_that_is_not_json_is_415(place: Place) -> None:
    """A form or plain text is refused before it is read, so that no foreign page can send it."""
    async with place.serving() as served:
        for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
            answer = await raw_post(served, "/v1/accounts", b"{}", {"Content-Type": content_type})
            assert_refused(answer, 415, "unsupported_media_type")


async def test_json_with_a_charset_is_json(place: Place) -> None:
    """Parameters of the media type are no fault."""
    async with place.serving() as served:
        body = json.dumps({"username": "ann", "password": "x"}).encode()
        headers = {"Content-Type": "application/json; charset=utf-8"}
        assert (await raw_post(served, "/v1/accounts", body, headers)).status == 201


async def test_a_body_over_the_limit_is_413(place: Place) -> None:
    """More than 1 MiB is refused, told beforehand or found while reading."""
    async with place.serving() as served:
        body = b'{"username": "' + b"a" * BODY_BYTES_MAX + b'"}'

        async def in_chunks() -> AsyncIterator[bytes]:
            for start in range(0, len(body), 65_536):
                yield body[start : start + 65_536]

        for sent in (body, in_chunks()):
            assert_refused(await raw_post(served, "/v1/accounts", sent), 413, "too_large")


async def test_unknown_addresses_are_404_and_wrong_methods_405(place: Place) -> None:
    """Both are refused in the form of every other error; the latter with what is allowed."""
    async with place.serving() as served:
        for path in (
            "/v1",
            "/v1/",
            "/v2/me",
            "/v1/accounts/",
            "/v1/chats/x/y/z",
            "/..%2f..%2fetc/passwd",
        ):
            assert_refused(await served.http.get(path), 404, "not_found")
        for method, path in (
            ("GET", "/v1/accounts"),
            ("PUT", "/v1/me"),
            ("DELETE", "/v1/chats"),
            ("POST", "/healthz"),
        ):
            assert_refused(await served.http.request(method, path), 405, "method_not_allowed")
        wrong = await served.http.request("PUT", "/v1/me")
        assert wrong.headers["Allow"] == "DELETE, GET, PATCH"


async def test_odd_path_parts_are_only_unknown(place: Place) -> None:
    """No text in the place of an id makes the server fail."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        odd = ("%00", "%ff%fe", "%ed%a0%80", "%F0%9F%98%80", "'; DROP TABLE chats; --", "x" * 4000, "%0a")
        for text in odd:
            for path in (f"/v1/chats/{text}", f"/v1/chats/{text}/messages", f"/v1/chats/{text}/members"):
                assert_refused(await served.as_(ann).get(path), 403, "not_a_member")
            assert_refused(await served.as_(ann).get(f"/v1/users/{text}"), 404, "not_found")
            assert_refused(await served.as_(ann).request("DELETE", f"/v1/sessions/{text}"), 404, "not_found")
            send = await served.as_(ann).post(f"/v1/chats/{text}/messages", message())
            assert_refused(send, 403, "not_a_member")


async def test_odd_query_texts_are_only_wrong(place: Place) -> None:
    """No text in a query makes the server fail."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        await served.said(ann, chat, "x")
        for text in ("\0", "\ufffd", "😀", "'", "x" * 3000, "%"):
            page = await served.as_(ann).get(f"/v1/chats/{chat}/messages", after=1, last_message_id=text)
            assert (page.status, page.body["reset"]) == (200, True)
            assert (await served.as_(ann).get(f"/v1/chats/{chat}/members", after=text)).status == 200
            assert_refused(await served.as_(ann).get("/v1/chats", changed_since=text), 400, "bad_request")


async def test_the_request_id_is_the_clients_or_a_new_one(place: Place) -> None:
    """A usable id comes back, and any other is replaced."""
    async with place.serving() as served:
        for given, kept in (("mine-1", True), ("", False), ("x" * 65, False), ("a\tb", False), ("ä", False)):
            answer = await raw_get(served, "/healthz", {"X-Request-Id": given})
            found = {name.lower(): value for name, value in answer.headers.items()}["x-request-id"]
            assert (found == given) == kept
            assert kept or found.startswith("req_")


async def test_health_and_readiness_need_no_token(place: Place) -> None:
    """Both answer 200 while the server serves."""
    async with place.serving() as served:
        assert (await served.http.get("/healthz")).body == {"status": "ok"}
        assert (await served.http.get("/readyz")).body == {"status": "ready"}


async def test_metrics_need_an_operator_behind_a_proxy(place: Place) -> None:
    """A direct look on loopback is free; behind a proxy it takes an operator's token."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        assert (await served.http.get("/metrics")).status == 200
        assert (await forwarded(served, "GET", "/metrics")).status == 401
        assert_refused(await forwarded(served, "GET", "/metrics", ann), 403, "forbidden")
        user = await served.app.accounts.user(ann.user_id)
        await served.app.kinds.accounts.update_user(
            type(user)(user.user_id, "ann", "ann", "", True, user.created_at)
        )
        assert (await forwarded(served, "GET", "/metrics", ann)).status == 200


async def test_registration_is_closed_behind_a_proxy(place: Place) -> None:
    """Any forwarding header closes registration of a loopback server, unless it is opened on purpose."""
    new = {"username": "ann", "password": "x"}
    headers = [
        {"X-Forwarded-For": "203.0.113.9"},
        {"Forwarded": "for=203.0.113.9"},
        {"X-Forwarded-Host": "chat.example"},
        {"X-Forwarded-Proto": "https"},
        {"X-Real-IP": "203.0.113.9"},
        {"x-forwarded-for": ""},
    ]
    async with place.serving() as served:
        for header in headers:
            answer = await raw_post(served, "/v1/accounts", json.dumps(new).encode(), header)
            assert_refused(answer, 403, "forbidden")
    async with place.serving({"PARLEY_ACCOUNTS_REGISTRATION": "open"}) as served:
        answer = await raw_post(served, "/v1/accounts", json.dumps(new).encode(), headers[0])
        assert answer.status == 201
    async with place.serving({"PARLEY_ACCOUNTS_REGISTRATION": "closed"}) as served:
        answer = await raw_post(served, "/v1/accounts", json.dumps({**new, "username": "ben"}).encode())
        assert_refused(answer, 403, "forbidden")


async def test_a_foreign_host_name_is_refused(place: Place) -> None:
    """A page of another site cannot reach a local server by a name that resolves to it."""
    async with place.serving({"PARLEY_SERVER_HOSTS": "chat.example"}) as served:
        for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[", "localhost.evil"):
            answer = await raw_get(served, "/healthz", {"Host": host})
            assert_refused(answer, 400, "bad_request")
        for host in (
            "localhost",
            "localhost:99",
            "127.0.0.1",
            "[::1]:8080",
            "chat.example",
            "chat.example:443",
        ):
            assert (await raw_get(served, "/healthz", {"Host": host})).status == 200


async def test_a_foreign_origin_cannot_open_a_socket(place: Place) -> None:
    """A WebSocket from a page of another site is refused; the own and the named ones may connect."""
    async with place.serving({"PARLEY_SERVER_ORIGINS": "https://app.example"}) as served:
        own = f"http://127.0.0.1:{served.port}"
        for origin in (
            "https://evil.example",
            "null",
            "http://127.0.0.1",
            "file://",
            f"{own}.evil",
            "[",
            "http://[",
        ):
            answer = await raw_get(served, "/v1/ws", {"Origin": origin, **UPGRADE})
            assert_refused(answer, 403, "forbidden")
        for origin in ("https://app.example", own):
            socket = await served.session.ws_connect(f"{served.url}/v1/ws", headers={"Origin": origin})
            await socket.close()


UPGRADE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}


async def test_the_sockets_address_speaks_websocket_only(place: Place) -> None:
    """A plain or broken request to it is refused in the usual form."""
    async with place.serving() as served:
        assert_refused(await served.http.get("/v1/ws"), 400, "bad_request")
        broken = {**UPGRADE, "Sec-WebSocket-Version": "99"}
        assert_refused(await raw_get(served, "/v1/ws", broken), 400, "bad_request")
        broken = {**UPGRADE, "Sec-WebSocket-Key": "x"}
        assert_refused(await raw_get(served, "/v1/ws", broken), 400, "bad_request")


async def raw_get(served: Served, path: str, headers: dict[str, str]) -> Answer:
    async with ClientSession() as session, session.get(served.url + path, headers=headers) as answer:
        return Answer(answer.status, await answer.json(content_type=None), dict(answer.headers))


async def raw_post(
    served: Served, path: str, body: bytes | AsyncIterator[bytes], headers: dict[str, str] | None = None
) -> Answer:
    data = io.BytesIO(body) if isinstance(body, bytes) else body
    sent = {"Content-Type": "application/json", **(headers or {})}
    async with ClientSession() as session, session.post(served.url + path, data=data, headers=sent) as answer:
        return Answer(answer.status, await answer.json(content_type=None), dict(answer.headers))


async def forwarded(served: Served, method: str, path: str, person: Person | None = None) -> Answer:
    """A request as a proxy passes it on."""
    async with ClientSession(headers={"X-Forwarded-For": "203.0.113.9"}) as session:
        return await HttpClient(session, served.url, person.token if person else "").request(method, path)
