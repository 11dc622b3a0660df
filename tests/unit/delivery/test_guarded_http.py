"""Requests to addresses that others chose: they connect to what was checked, and to nothing else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from parley.core.client_address import parse_networks
from parley.core.retry import DeliveryFailure, Fault
from parley.delivery.guarded_http import GuardedHttp, HttpAnswer

LOOPBACK = parse_networks(("127.0.0.0/8",))


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[int, list[str]]]:
    """A server on loopback, and the request lines that reached it."""
    lines: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append((await reader.readline()).decode())
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], lines


async def to_loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("http://127.0.0.1:{port}/", Fault.FORBIDDEN_ADDRESS),
        ("http://[::ffff:127.0.0.1]:{port}/", Fault.FORBIDDEN_ADDRESS),
        ("http://somewhere.example:{port}/", Fault.FORBIDDEN_ADDRESS),
        ("http://10.9.9.9\\@127.0.0.1:{port}/", Fault.MALFORMED),
        ("file:///etc/passwd", Fault.MALFORMED),
        ("http:///x", Fault.MALFORMED),
    ],
)
async def test_nothing_reaches_an_address_that_is_not_allowed(url: str, fault: Fault) -> None:
    """Whether the URL names it, hides it or a name leads to it."""
    http = GuardedHttp(parse_networks(("10.9.9.9/32",)), to_loopback)
    async with listening() as (port, lines):
        failure = await http.post(url.format(port=port), b"", {})
        await http.close()
    assert isinstance(failure, DeliveryFailure)
    assert (failure.fault, lines) == (fault, [])


@pytest.mark.parametrize("host", ["127.0.0.1", "somewhere.example"])
async def test_what_is_allowed_is_reached(host: str) -> None:
    """By its address and by a name."""
    http = GuardedHttp(LOOPBACK, to_loopback)
    async with listening() as (port, lines):
        answer = await http.post(f"http://{host}:{port}/hook", b"", {})
        await http.close()
    assert answer == HttpAnswer(204)
    assert lines == ["POST /hook HTTP/1.1\r\n"]
