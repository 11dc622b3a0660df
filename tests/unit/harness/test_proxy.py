"""The proxy passes bytes on unless its chaos says otherwise, and then does exactly that."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest
from aiohttp import ClientError, ClientSession, ClientWebSocketResponse, WSMsgType, web
from aiohttp.test_utils import TestServer

from tests.harness.proxy import Balancer, Chaos, ChaosProxy

DEADLINE_SECONDS = 10


async def echo(request: web.Request) -> web.WebSocketResponse:
    wire = web.WebSocketResponse(compress=False)
    await wire.prepare(request)
    async for message in wire:
        if message.type is WSMsgType.TEXT:
            await wire.send_str(message.data)
    return wire


async def greet(request: web.Request) -> web.Response:
    return web.Response(text="hello")


@asynccontextmanager
async def echoing(chaos: Chaos, seed: int = 1) -> AsyncIterator[tuple[ChaosProxy, ClientSession]]:
    """An echo server behind a proxy, and a session to speak to it."""
    app = web.Application()
    app.add_routes([web.get("/ws", echo), web.get("/", greet)])
    async with TestServer(app) as server, ClientSession() as session:
        assert server.port is not None
        async with ChaosProxy(server.port, Random(seed), chaos) as proxy:
            yield proxy, session


async def heard(wire: ClientWebSocketResponse) -> str:
    return await asyncio.wait_for(wire.receive_str(), DEADLINE_SECONDS)


def named(kind: str, number: int = 0) -> str:
    return f'{{"type":"{kind}","number":{number}}}'


async def test_a_calm_proxy_changes_nothing() -> None:
    """Without chaos, HTTP and WebSocket work as without a proxy."""
    async with echoing(Chaos()) as (proxy, session):
        async with session.get(proxy.url) as answer:
            assert await answer.text() == "hello"
        async with session.ws_connect(proxy.url + "/ws") as wire:
            texts = [named("send_message", number) for number in range(50)]
            for text in texts:
                await wire.send_str(text)
            assert [await heard(wire) for _ in texts] == texts
        assert not +proxy.happened


async def test_splits_and_delays_keep_every_byte() -> None:
    """Bytes that come in crumbs and late are still the same bytes in the same order."""
    async with echoing(Chaos(split_bytes_max=3, delay_ms_max=1)) as (proxy, session):
        async with session.ws_connect(proxy.url + "/ws") as wire:
            texts = [named("ack", number) for number in range(20)]
            for text in texts:
                await wire.send_str(text)
            assert [await heard(wire) for _ in texts] == texts
        assert proxy.happened["split"] > 0


async def test_dropped_messages_vanish_whole() -> None:
    """Messages of the kinds hit are dropped, others and the connection live on."""
    async with echoing(Chaos()) as (proxy, session), session.ws_connect(proxy.url + "/ws") as wire:
        proxy.chaos.drop_share = 1
        await wire.send_str(named("send_message"))
        await wire.send_str(named("heartbeat"))
        assert await heard(wire) == named("heartbeat")
        assert proxy.happened["drop"] == 1


async def test_duplicated_messages_come_twice() -> None:
    """A message of a kind that is hit is doubled on its way there, and each again on its way back."""
    chaos = Chaos(duplicate_share=1)
    async with echoing(chaos) as (proxy, session), session.ws_connect(proxy.url + "/ws") as wire:
        await wire.send_str(named("send_message"))
        await wire.send_str(named("heartbeat"))
        texts = [await heard(wire) for _ in range(5)]
        assert texts == [named("send_message")] * 4 + [named("heartbeat")]


async def test_a_cut_ends_the_connection() -> None:
    """A cut is seen by the client as a broken connection, and a new one works."""
    async with echoing(Chaos()) as (proxy, session):
        async with session.ws_connect(proxy.url + "/ws") as wire:
            await wire.send_str("stands")
            assert await heard(wire) == "stands"
            assert proxy.link_count == 1
            proxy.cut_all()
            ended = await asyncio.wait_for(wire.receive(), DEADLINE_SECONDS)
            assert ended.type in {WSMsgType.CLOSED, WSMsgType.ERROR, WSMsgType.CLOSE}
        async with session.ws_connect(proxy.url + "/ws") as wire:
            await wire.send_str("again")
            assert await heard(wire) == "again"


@pytest.mark.parametrize("reset_share", [0, 1], ids=["close", "reset"])
async def test_chance_cuts(reset_share: float) -> None:
    """With a share of 1 the first bytes cut the connection, politely or not."""
    async with echoing(Chaos(cut_share=1, reset_share=reset_share)) as (proxy, session):
        with pytest.raises(ClientError):
            await session.ws_connect(proxy.url + "/ws")
        assert proxy.happened["cut"] >= 1


async def test_a_stall_holds_everything_until_it_ends() -> None:
    """Nothing comes through while the proxy is stalled, and all of it afterwards."""
    async with echoing(Chaos()) as (proxy, session), session.ws_connect(proxy.url + "/ws") as wire:
        proxy.stall()
        await wire.send_str("late")
        answer = asyncio.ensure_future(wire.receive_str())
        done, _ = await asyncio.wait([answer], timeout=0.05)
        assert not done
        proxy.resume()
        assert await asyncio.wait_for(answer, DEADLINE_SECONDS) == "late"


async def test_refused_connections_fail() -> None:
    """While connections are refused none is made, and afterwards they are."""
    async with echoing(Chaos(refuse_connections=True)) as (proxy, session):
        with pytest.raises(ClientError):
            await session.get(proxy.url)
        proxy.chaos.refuse_connections = False
        async with session.get(proxy.url) as answer:
            assert answer.status == 200


async def test_a_reader_that_does_not_read_stops_the_flow() -> None:
    """The proxy keeps little of what a slow side does not take: the sender has to wait."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        await assert_flow_stops(silent.getsockname()[1])


async def assert_flow_stops(silent_port: int) -> None:
    async with ChaosProxy(silent_port, Random(1)) as proxy:
        _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.transport.set_write_buffer_limits(high=0)
        chunks = 0
        while await could_write(writer, b"x" * 65_536):
            chunks += 1
            assert chunks < 1_000
        writer.transport.abort()


async def could_write(writer: asyncio.StreamWriter, data: bytes) -> bool:
    """Whether the network took it in a time in which an open one would have."""
    writer.write(data)
    try:
        await asyncio.wait_for(writer.drain(), 0.3)
    except TimeoutError:
        return False
    return True


async def test_the_same_seed_drops_the_same_messages() -> None:
    """Chance is the passed one: two runs with one seed lose the same messages."""
    assert await survivors(seed=3) == await survivors(seed=3)


async def survivors(seed: int) -> list[str]:
    chaos = Chaos(drop_share=0.5, kinds_hit=frozenset({"send_message"}))
    async with echoing(chaos, seed) as (proxy, session), session.ws_connect(proxy.url + "/ws") as wire:
        back: list[str] = []
        for number in range(20):
            await wire.send_str(named("send_message", number))
            await wire.send_str(named("mark"))
            while (text := await heard(wire)) != named("mark"):
                back.append(text)
        return back


async def test_a_balancer_passes_over_a_server_that_is_gone() -> None:
    """Connections go to the servers in turn, and to the other one when one does not listen."""
    app = web.Application()
    app.add_routes([web.get("/", greet)])
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        async with TestServer(app) as server:
            assert server.port is not None
            async with Balancer([nobody.getsockname()[1], server.port], Random(1)) as proxy:
                assert [await greeting(proxy) for _ in range(4)] == ["hello"] * 4
                assert proxy.happened["passed over"] > 0


async def greeting(proxy: ChaosProxy) -> str:
    """What is said on a connection of its own."""
    async with ClientSession() as session, session.get(proxy.url) as answer:
        return await answer.text()


class NeverConnecting(ChaosProxy):
    """A proxy whose server never answers."""

    def __init__(self) -> None:
        super().__init__(1, Random(1), Chaos())
        self.is_connecting = asyncio.Event()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self.is_connecting.set()
        await asyncio.Event().wait()
        raise AssertionError("it waits for ever")


async def test_what_was_just_accepted_is_closed_with_the_proxy() -> None:
    """A connection whose way to the server is not there yet ends with the proxy, and nothing is left open."""
    async with NeverConnecting() as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        await proxy.is_connecting.wait()
    try:
        assert await asyncio.wait_for(reader.read(), DEADLINE_SECONDS) == b""
    except ConnectionError:
        pass  # as good an end as any
    finally:
        writer.close()
