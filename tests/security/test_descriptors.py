"""File descriptors run out: who is connected is served, who comes is told, the operator hears it once."""

import asyncio
import contextlib
import resource
import socket

from tests.harness.clients import HttpClient, RawClient
from tests.harness.server import ServerProcess
from tests.integration.gateway.test_process import crowd_on, server
from tests.waiting import eventually

__all__ = ["server"]

DESCRIPTORS = 80
EVENT = "no file descriptors for more clients"


async def test_a_server_without_descriptors_says_so_and_serves_on(server: ServerProcess) -> None:
    """Beyond the limit of open files newcomers get 503, those connected get acks, and one line is logged."""
    async with crowd_on(server) as crowd, RawClient(crowd.session, server.url, crowd.ann) as client:
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
        idle = [connected(server) for _ in range(2 * DESCRIPTORS)]
        await asyncio.to_thread(server.wait_for_log, EVENT)
        await eventually(lambda: is_answered(server, 503))
        ack = await client.send_message(crowd.chat, "still here")
        for wire in idle:
            wire.close()
        await eventually(lambda: is_answered(server, 200))
        refused = await refusals(crowd.http)
    assert (ack["type"], refused > 0) == ("ack", True)
    assert [line["event"] for line in server.log_lines()].count(EVENT) == 1


def connected(server: ServerProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port))


def asked(server: ServerProcess) -> bytes:
    """What a newcomer is answered; nothing if it is hung up on."""
    with connected(server) as wire, contextlib.suppress(ConnectionError):
        wire.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return wire.recv(4_096)
    return b""


async def is_answered(server: ServerProcess, status: int) -> bool:
    return (await asyncio.to_thread(asked, server)).startswith(f"HTTP/1.1 {status} ".encode())


async def refusals(http: HttpClient) -> float:
    """By the metric."""
    text = str((await http.get("/metrics")).body)
    return float(text.partition('parley_connections_refused_total{reason="descriptors"}')[2].split()[0])
