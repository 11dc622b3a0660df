"""A body that does not come: its sender is told in time and let go, and the log stays quiet."""

import asyncio
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from tests.integration.gateway.serving import Place
from tests.integration.gateway.test_http_faults import raw_post
from tests.waiting import deadline


def slow(method: str, path: str, **headers: str) -> bytes:
    """The beginning of a request whose body does not come."""
    named = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{named}"
        'Content-Length: 50\r\n\r\n{"username": '
    ).encode()


async def answer_to(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    async with deadline():
        answer = await reader.readuntil(b"}")
    writer.close()
    await writer.wait_closed()
    return answer


REQUEST = slow("POST", "/v1/accounts")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies have no time, so that no test waits for it."""
    monkeypatch.setattr("parley.gateway.calls.BODY_SECONDS_MAX", 0.05)


@pytest.fixture
def logged() -> Iterator[list[EventDict]]:
    with capture_logs() as lines:
        yield lines


async def test_a_slow_body_is_refused_and_its_connection_closed(
    place: Place, logged: list[EventDict]
) -> None:
    """With 408, and without a line in the log: it is the client's fault."""
    async with place.serving() as served:
        answer = await answer_to(served.port, REQUEST)
        assert answer.startswith(b"HTTP/1.1 408 "), answer
        assert b"\r\nConnection: close\r\n" in answer
        assert b'"code":"request_timeout"' in answer
        assert served.metric("parley_refusals_total", code="request_timeout") == 1
    assert [line for line in logged if line["log_level"] in ("warning", "error")] == []


async def test_a_body_that_nobody_asked_for_is_not_taken_for_a_slow_store(
    place: Place, logged: list[EventDict], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a request without a body is answered sooner than one with a body may take."""
    monkeypatch.setattr("parley.gateway.calls.BODY_SECONDS_MAX", 30.0)
    monkeypatch.setattr("parley.gateway.calls.UNASKED_BODY_SECONDS_MAX", 0.05)
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        answer = await answer_to(served.port, slow("GET", "/v1/me", Authorization=f"Bearer {ann.token}"))
        assert answer.startswith(b"HTTP/1.1 408 "), answer
        assert served.metric("parley_refusals_total", code="store_unavailable") == 0
    assert [line for line in logged if line["log_level"] in ("warning", "error")] == []


async def test_a_body_that_is_given_up_is_no_fault_of_ours(place: Place, logged: list[EventDict]) -> None:
    """A client that leaves in the midst of its body leaves nothing in the log."""
    async with place.serving() as served:
        _, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(REQUEST)
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        assert (await raw_post(served, "/v1/accounts", b"{")).status == 400
    assert [line for line in logged if line["log_level"] in ("warning", "error")] == []
