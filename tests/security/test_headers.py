"""What the server says of itself: no versions, and nothing that a client sent."""

import asyncio
import re

import pytest
from structlog.testing import capture_logs

from parley.http_server import SERVER_NAME
from tests.harness.clients import PASSWORD
from tests.integration.gateway.serving import Place
from tests.tidy.repository import python_sources
from tests.waiting import deadline

MARK = "zq7marker"
VERSIONS = re.compile(rb"aiohttp|python|\d+\.\d+\.\d+", re.IGNORECASE)

ANSWERS = {
    "a page": "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
    "a file": "GET /docs HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
    "a refusal": "GET /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
    "a foreign host": "GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
}
NO_HTTP = {
    "no method": f"{MARK}\r\n\r\n",
    "no version": f"GET /{MARK} HTTP/{MARK}\r\n\r\n",
    "a header without a colon": f"GET / HTTP/1.1\r\n{MARK}\r\n\r\n",
    "a control character": f"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: {MARK}\x01\r\n\r\n",
    "two lengths": f"POST / HTTP/1.1\r\nHost: {MARK}\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "a length of letters": f"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {MARK}\r\n\r\n",
    "a line that is too long": f"GET /{MARK * 40_000} HTTP/1.1\r\n\r\n",
    "a header that is too long": f"GET / HTTP/1.1\r\nX: {MARK * 4_000}\r\n\r\n",
    "an unknown expectation": (
        f"POST /v1/accounts HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: {MARK}\r\nConnection: close\r\n\r\n"
    ),
    "a TLS handshake": f"\x16\x03\x01\x02\x00{MARK}\r\n\r\n",
}


async def said(port: int, request: str) -> bytes:
    """Everything that the server sends before it ends the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with deadline():
            writer.write(request.encode("latin-1"))
            return await reader.read()
    finally:
        writer.close()


def assert_silent(answer: bytes) -> None:
    """Named, without a version anywhere in head or body."""
    head = answer.partition(b"\r\n\r\n")[0]
    assert f"\r\nServer: {SERVER_NAME}\r\n".encode() in head + b"\r\n"
    without_date = re.sub(rb"\r\nDate: [^\r]+", b"", head)
    assert not VERSIONS.search(without_date), without_date


@pytest.mark.parametrize("name", ANSWERS)
async def test_no_answer_tells_which_software_to_attack(place: Place, name: str) -> None:
    """Neither Python's version nor aiohttp's is in the headers."""
    async with place.serving() as served:
        assert_silent(await said(served.port, ANSWERS[name]))


async def test_no_handshake_tells_which_software_to_attack(place: Place) -> None:
    """The answer that opens a WebSocket has no version either."""
    async with place.serving() as served:
        socket = await served.session.ws_connect(f"{served.url}/v1/ws")
        assert socket._response.headers["Server"] == SERVER_NAME
        await socket.close()


@pytest.mark.parametrize("name", NO_HTTP)
async def test_what_is_no_http_is_not_repeated(place: Place, name: str) -> None:
    """A broken request is refused with a fixed text: no version, and nothing of what was sent."""
    async with place.serving() as served:
        answer = await said(served.port, NO_HTTP[name])
    assert re.match(rb"HTTP/1\.[01] 4\d\d ", answer), answer[:200]
    assert_silent(answer)
    assert MARK.encode() not in answer
    assert answer.endswith(b'"temporary":false}')


@pytest.mark.parametrize("name", NO_HTTP)
async def test_what_is_no_http_is_not_logged_raw(
    place: Place, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """A stranger cannot write into the log, at whatever level."""
    with capture_logs() as lines:
        async with place.serving() as served:
            await said(served.port, NO_HTTP[name])
    assert MARK not in "".join([*map(str, lines), *capfd.readouterr()])


def test_every_server_of_ours_is_as_silent() -> None:
    """The ports of nodes and of sequences run on `HttpRunner` too."""
    plain = [source.path for source in python_sources("src") if "web.AppRunner" in source.text]
    assert plain == ["src/parley/http_server.py"]


async def test_no_answer_of_the_api_is_kept_by_a_cache(place: Place) -> None:
    """Sessions, tokens, private answers and refusals; a file of the documentation may be kept."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        body = {"username": "ann", "password": PASSWORD, "device_id": "pad"}
        answers = [
            await served.http.post("/v1/sessions", body),
            await served.as_(ann).get("/v1/me"),
            await served.as_(ann).get("/v1/chats"),
            await served.http.get("/v1/me"),
            await served.http.get("/metrics"),
        ]
        assert {answer.headers["Cache-Control"] for answer in answers} == {"no-store"}
        assert "no-store" not in (await served.http.get("/docs")).headers["Cache-Control"]
