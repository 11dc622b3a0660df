"""The server as a process: how it ends, what it prints, what it never prints."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from aiohttp import ClientError, ClientSession

from parley.wire import codes
from tests.harness.clients import HttpClient, Person, RawClient
from tests.harness.server import ServerFailed, ServerProcess, run_parley
from tests.integration.gateway.bare import TEXT, BareSocket, masked
from tests.integration.gateway.test_disk import locked
from tests.integration.gateway.test_socket_rules import send
from tests.waiting import eventually, stretched

DRAIN_SECONDS_MAX = 10.0
SECRET = "my secret password"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data") as started:
        yield started


class Crowd:
    """Two people in one chat on a server."""

    def __init__(self, server: ServerProcess, session: ClientSession) -> None:
        self.server = server
        self.session = session
        self.http = HttpClient(session, server.url)
        self.ann: Person
        self.ben: Person
        self.chat = ""

    async def gather(self) -> None:
        self.ann, self.ben = await self.http.newcomer("ann"), await self.http.newcomer("ben")
        self.chat = await self.http.of(self.ann).create_group(self.ben)

    async def bare(self, person: Person, received_bytes: int = 0, live: bool = True) -> BareSocket:
        socket = BareSocket(self.server.port, received_bytes)
        await socket.open()
        assert (await socket.hello(person, live=live))["type"] == "welcome"
        return socket

    async def terminate(self) -> float:
        """SIGTERM; the seconds until it has ended, with status 0."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        assert await asyncio.to_thread(self.server.terminate) == 0
        return loop.time() - started


@asynccontextmanager
async def crowd_on(server: ServerProcess) -> AsyncIterator[Crowd]:
    async with ClientSession() as session:
        crowd = Crowd(server, session)
        await crowd.gather()
        yield crowd


async def test_sigterm_closes_with_a_code_to_come_back(server: ServerProcess) -> None:
    """Well-behaved clients are closed with 4000, at once, and the exit status is 0."""
    async with crowd_on(server) as crowd:
        clients = [RawClient(crowd.session, server.url, person) for person in (crowd.ann, crowd.ben)]
        for client in clients:
            await client.connect()
        seconds = await crowd.terminate()
        assert {(await client.until_ended()).code for client in clients} == {4000}
        assert seconds < stretched(DRAIN_SECONDS_MAX / 2)
    assert server.stdout_lines() == [f"parley ready on {server.url}"]


async def test_sigterm_ends_in_time_whatever_clients_do(server: ServerProcess) -> None:
    """Clients that never read, keep sending, never answer a close or never finish a request delay nothing."""
    async with crowd_on(server) as crowd:
        stuck = await crowd.bare(crowd.ben, received_bytes=8_192)
        deaf = await crowd.bare(crowd.ben, live=False)
        pipelining = await crowd.bare(crowd.ann, live=False)
        half_http = await open_half(server, b"POST /v1/accounts HTTP/1.1\r\nHost: localhost\r\nContent-Len")
        half_body = await open_half(
            server,
            POST_JSON + b"Content-Length: 100\r\n\r\n{",
        )
        half_frame = await crowd.bare(crowd.ann, live=False)
        half_frame.send_raw(masked(TEXT, b"x" * 1000)[:500])
        pipelining.send([send(crowd.chat, "x" * 30_000) for _ in range(60)])
        flooding = asyncio.create_task(flood(pipelining, crowd.chat))
        seconds = await crowd.terminate()
        flooding.cancel()
        with suppress(asyncio.CancelledError, ConnectionError):
            await flooding
        for socket in (stuck, deaf, pipelining, half_frame):
            socket.close()
        for writer in (half_http, half_body):
            writer.close()
    assert seconds < stretched(DRAIN_SECONDS_MAX)
    assert "Traceback" not in "\n".join(server.stderr_lines())


async def flood(socket: BareSocket, chat: str) -> None:
    while True:
        socket.send([send(chat, "flood") for _ in range(50)])
        await asyncio.sleep(0.001)


async def open_half(server: ServerProcess, start: bytes) -> asyncio.StreamWriter:
    """A connection that begins a request and never ends it."""
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(start)
    await writer.drain()
    return writer


async def test_sigterm_ends_in_time_while_the_store_is_locked(server: ServerProcess) -> None:
    """Sends that wait for another program's lock delay the end no longer than everything else may."""
    async with crowd_on(server) as crowd:
        deaf, pipelining = await crowd.bare(crowd.ben), await crowd.bare(crowd.ann, live=False)
        half_body = await open_half(server, POST_JSON + b"Content-Length: 100\r\n\r\n{")
        with locked(server.sqlite_path):
            pipelining.send([send(crowd.chat) for _ in range(3_000)])
            assert await crowd.terminate() < stretched(DRAIN_SECONDS_MAX)
        half_body.close()
        for socket in (deaf, pipelining):
            socket.close()


async def test_what_was_acknowledged_before_the_end_is_kept(server: ServerProcess) -> None:
    """Sends under way at SIGTERM are acknowledged and kept, or not acknowledged; nothing in between."""
    async with crowd_on(server) as crowd:
        socket = await crowd.bare(crowd.ann, live=False)
        socket.send([send(crowd.chat, f"{number}", id=number) for number in range(2_000)])
        first = await socket.frame()
        ending = asyncio.create_task(crowd.terminate())
        frames, code = await socket.until_closed()
        await ending
        socket.close()
        assert code == 4000
        acks = {f["message_id"]: f["sequence"] for f in [first, *frames] if f["type"] == "ack"}
        await asyncio.to_thread(server.start)
        async with RawClient(crowd.session, server.url, crowd.ann) as client:
            kept = {e["message_id"]: e["sequence"] for e in await client.sync_all(crowd.chat)}
    assert acks.items() <= kept.items()
    refused = [frame["code"] for frame in frames if frame["type"] == "refused"]
    assert set(refused) <= {"shutting_down"}


async def test_a_draining_server_takes_nobody_new(server: ServerProcess) -> None:
    """After SIGTERM a new connection is refused or told that the server is going away."""
    async with crowd_on(server) as crowd:
        deaf = await crowd.bare(crowd.ann)
        ending = asyncio.create_task(crowd.terminate())
        await asyncio.to_thread(server.wait_for_log, "draining")
        statuses = set()
        while not ending.done():
            with suppress(ClientError, OSError):
                statuses.add((await crowd.http.get("/readyz")).status)
        assert statuses <= {503}
        assert await ending < stretched(DRAIN_SECONDS_MAX)
        deaf.close()


async def test_a_second_server_on_the_same_folder_is_refused(server: ServerProcess) -> None:
    """It ends at once with a sentence that names the first, which goes on."""
    async with crowd_on(server) as crowd:
        second = ServerProcess(server.data)
        with pytest.raises(ServerFailed, match=f"another server \\(process {server.pid}\\)"):
            await asyncio.to_thread(second.start)
        assert second.wait() == 1
        assert "Traceback" not in "\n".join(second.stderr_lines())
        assert (await crowd.http.get("/readyz")).status == 200


async def test_a_folder_is_free_again_after_kill_minus_nine(server: ServerProcess) -> None:
    """A lock does not outlive its process."""
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)
    assert server.is_running


async def test_lines_of_single_messages_are_off_by_default(server: ServerProcess) -> None:
    """Sending, retrying and being refused leave no line each."""
    async with crowd_on(server) as crowd:
        async with RawClient(crowd.session, server.url, crowd.ann) as client:
            for _ in range(2):
                await client.send_message(crowd.chat, "x", "00000000-0000-4000-8000-000000000001")
            await client.send_message("chat_unknown", "x")
        await crowd.terminate()
    events = [line["event"] for line in server.log_lines()]
    assert events == ["ready", "draining", "stopped"]


async def test_secrets_are_never_logged(tmp_path: Path) -> None:
    """Neither passwords nor tokens appear in any log line, at the most talkative level."""
    with ServerProcess(tmp_path / "data", {"PARLEY_LOG_LEVEL": "debug"}) as server:
        async with ClientSession() as session:
            http = HttpClient(session, server.url)
            await http.register("ann", SECRET)
            ann = await http.login("ann", password=SECRET)
            await http.post("/v1/sessions", {"username": "ann", "password": SECRET + "!", "device_id": "x"})
            await http.post("/v1/accounts", {"username": SECRET, "password": SECRET})
            await http.post("/v1/accounts", f'{{"password": "{SECRET}"')
            body = {"old_password": SECRET, "new_password": SECRET + " new"}
            assert (await http.of(ann).post("/v1/me/password", body)).status == 204
            chat = await http.of(ann).create_group()
            async with RawClient(session, server.url, ann) as client:
                await client.send_message(chat, "hello")
                await client.request("hello", token=ann.token, device_id="phone")
            await hostile_sockets(server, ann)
            await http.of(ann).request("DELETE", f"/v1/sessions/{ann.session_id}")
            await http.of(ann).get("/v1/me")
        assert await asyncio.to_thread(server.terminate) == 0
    said = "\n".join([*server.stderr_lines(), *server.stdout_lines()])
    assert "Message persisted" in said, "the lines are there"
    assert SECRET not in said
    assert ann.token not in said
    assert not re.search(r"prl_[0-9a-f]{8}", said)


async def hostile_sockets(server: ServerProcess, person: Person) -> None:
    """Connections that break in every way, with a token in their hands."""
    hello = f'{{"type":"hello","token":"{person.token}","device_id":"phone"'.encode()
    for payload in (hello, hello + b"}}", b"[" + hello, hello.replace(b"phone", b"\xff"), b"\x00" + hello):
        bare = BareSocket(server.port)
        await bare.open()
        bare.send_raw(masked(TEXT, payload))
        assert (await bare.until_closed())[1] == 4200
        bare.close()
    bare = BareSocket(server.port)
    await bare.open(Cookie=f"token={person.token}")
    bare.send([{"type": "hello", "token": person.token, "device_id": "another"}])
    assert (await bare.until_closed())[1] == 4101
    bare.close()


async def test_a_clients_fault_never_logs_a_traceback(server: ServerProcess) -> None:
    """Broken requests, broken frames and broken connections leave no trace of an exception in the log."""
    async with crowd_on(server) as crowd:
        await hostile_sockets(server, crowd.ann)
        for data in BROKEN_STREAMS:
            await say_and_hang_up(server, data)
        for _ in range(3):
            socket = await crowd.bare(crowd.ben)
            socket.send([send(crowd.chat) for _ in range(50)])
            socket.close()
        gone = await crowd.bare(crowd.ben)
        gone.send_raw(b"\xff" * 100)
        await gone.until_closed()
        gone.close()
        await eventually(lambda: only_this_server_answers(crowd))
        assert await crowd.terminate() < stretched(DRAIN_SECONDS_MAX)
    said = "\n".join(server.stderr_lines())
    assert "Traceback" not in said
    assert not [line for line in server.log_lines() if line.get("level") in ("error", "critical")]


async def only_this_server_answers(crowd: Crowd) -> bool:
    return (await crowd.http.get("/readyz")).status == 200


POST_JSON = b"POST /v1/accounts HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BROKEN_STREAMS = [
    b"",
    b"\r\n\r\n",
    b"nonsense\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET /v1/ws HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    b"POST /v1/accounts HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
    b"POST /v1/accounts HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    POST_JSON + b"Content-Length: 1000\r\n\r\n{",
    POST_JSON + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    POST_JSON + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{",
    POST_JSON + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello",
    POST_JSON + b"Content-Encoding: br\r\nContent-Length: 5\r\n\r\nhello",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET /v1/me HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \xff\xfe\r\n\r\n",
]


async def say_and_hang_up(server: ServerProcess, data: bytes) -> None:
    """Say something, wait for whatever is answered within a moment, and leave without a word."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    with suppress(ConnectionError):
        writer.write(data)
        writer.write_eof()
        with suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await reader.read()
    writer.transport.abort()


async def test_an_operator_drains_a_node(server: ServerProcess) -> None:
    """It tells its clients to come back and ends with status 0; another node's name ends nothing."""
    async with crowd_on(server) as crowd:
        data = {"PARLEY_DATA": str(server.data)}
        await asyncio.to_thread(run_parley, "user", "add", "root", "--operator", environment=data)
        token = (await asyncio.to_thread(run_parley, "token", "root", environment=data)).stdout.strip()
        root = HttpClient(crowd.session, server.url, token)
        (node,) = (await root.get("/v1/admin/nodes")).body["nodes"]
        assert (await root.post("/v1/admin/nodes/node_0/drain", None)).status == 404
        async with RawClient(crowd.session, server.url, crowd.ann) as client:
            drained = await root.post(f"/v1/admin/nodes/{node['node_id']}/drain", None)
            assert (drained.status, drained.body) == (202, {"node_id": node["node_id"]})
            assert (await client.until_ended()).code == codes.GOING_AWAY.code
        assert await asyncio.to_thread(server.wait) == 0
