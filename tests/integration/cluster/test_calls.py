"""Signed calls between two ends in one process, over real sockets."""

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
import structlog
from aiohttp import web

from parley.cluster.calls import (
    ANSWER_PROOF,
    CALL_PROOF,
    CALL_TARGET,
    NodeRefused,
    NodeSilent,
    NodeUnreachable,
    SignedCalls,
    trusted,
)
from parley.core.cluster_keys import ClusterKeys
from parley.core.node_trust import CALL_AGE_MS_MAX, CallKeys, NodeCall, prove_call
from tests.harness.clock import VirtualClock

SECRET = "a secret of some length"
TARGET = "node_7.1"
SECONDS = 5.0

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Node:
    """A node that echoes what it is told, and counts how often it was."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.heard: list[bytes] = []


@asynccontextmanager
async def a_node(
    *secrets: str, clock: VirtualClock | None = None, answer: Answer | None = None
) -> AsyncIterator[Node]:
    node = Node("")

    async def echo(request: web.Request) -> web.StreamResponse:
        node.heard.append(await request.read())
        return await answer(request) if answer else web.Response(body=b"heard " + node.heard[-1])

    app = web.Application(
        middlewares=[trusted(ClusterKeys(*secrets or (SECRET,)), TARGET, clock or VirtualClock())]
    )
    app.router.add_post("/v1/told", echo)
    app.router.add_get("/healthz", echo)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        node.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield node
    finally:
        await runner.cleanup()


@asynccontextmanager
async def calls_with(*secrets: str, clock: VirtualClock | None = None) -> AsyncIterator[SignedCalls]:
    calls = SignedCalls(
        ClusterKeys(*secrets or (SECRET,)),
        clock=clock or VirtualClock(),
        random_bytes=random.Random(7).randbytes,
    )
    try:
        yield calls
    finally:
        await calls.close()


def proof_of(clock: VirtualClock, body: bytes = b"hello") -> dict[str, str]:
    """The headers of a call as another program would make it."""
    proof = prove_call(
        CallKeys(ClusterKeys(SECRET)), NodeCall(TARGET, "POST", "/v1/told", body), clock(), b"once"
    )
    return {CALL_TARGET: TARGET, CALL_PROOF: proof}


async def raw_post(url: str, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.post(url, data=body, headers=headers) as response:
        return response.status, await response.text()


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


async def test_a_signed_call_is_answered() -> None:
    """Two ends with the same secret understand each other."""
    async with a_node() as node, calls_with() as calls:
        assert await calls.post(f"{node.url}/v1/told?a=b%20c", b"hello", SECONDS, TARGET) == b"heard hello"


@pytest.mark.parametrize(
    ("caller", "called"),
    [(["old", "new"], ["old"]), (["old", "new"], ["new", "old"]), (["new", "old"], ["new"])],
)
async def test_nodes_between_two_secrets_understand_each_other(caller: list[str], called: list[str]) -> None:
    """At each step of changing the secret, a node that took it calls one that did not, and is answered."""
    for asking, asked in ((caller, called), (called, caller)):
        async with a_node(*asked) as node, calls_with(*asking) as calls:
            assert await calls.post(f"{node.url}/v1/told", b"hello", SECONDS, TARGET) == b"heard hello"


async def test_a_process_that_is_known_by_its_address_tells_its_name() -> None:
    """A caller without a name is told it, and calls again: the handler hears the call once."""
    async with a_node() as node, calls_with() as calls:
        for body in (b"one", b"two"):
            assert await calls.post(f"{node.url}/v1/told", body, SECONDS) == b"heard " + body
        assert node.heard == [b"one", b"two"]


async def test_a_call_by_name_is_made_to_nobody_else() -> None:
    """Whoever means one process does not call another that has taken its address."""
    async with a_node() as node, calls_with() as calls:
        with pytest.raises(NodeRefused, match="meant for another node"):
            await calls.post(f"{node.url}/v1/told", b"hello", SECONDS, "node_8.1")
        assert node.heard == []


async def test_health_needs_no_proof() -> None:
    """A balancer can ask whether a node is well."""
    async with a_node() as node, aiohttp.ClientSession() as session:
        assert (await session.get(f"{node.url}/healthz")).status == 200


async def test_an_unsigned_call_is_refused() -> None:
    """Without a proof nothing reaches the handler."""
    async with a_node() as node:
        assert (await raw_post(f"{node.url}/v1/told", b"hello", {}))[0] == 401
        assert node.heard == []


async def test_a_call_with_another_secret_is_refused() -> None:
    """Nothing reaches the handler, and the caller does not know that: a stranger could have said so."""
    async with a_node() as node, calls_with("another secret of some length") as calls:
        with pytest.raises(NodeSilent, match="the signature is wrong"):
            await calls.post(f"{node.url}/v1/told", b"hello", SECONDS, TARGET)
        assert node.heard == []


async def test_a_replayed_call_is_refused() -> None:
    """What went over the network once is worth nothing to whoever saw it."""
    clock = VirtualClock()
    async with a_node(clock=clock) as node:
        proof = proof_of(clock)
        first = await raw_post(f"{node.url}/v1/told", b"hello", proof)
        second = await raw_post(f"{node.url}/v1/told", b"hello", proof)
        assert (first[0], second[0]) == (200, 401)
        assert node.heard == [b"hello"]


async def test_a_tampered_call_is_refused() -> None:
    """A body that was changed on its way does not reach the handler."""
    clock = VirtualClock()
    async with a_node(clock=clock) as node:
        proof = proof_of(clock)
        assert (await raw_post(f"{node.url}/v1/told", b"hullo", proof))[0] == 401
        assert node.heard == []


@pytest.mark.parametrize("skew_ms", [-CALL_AGE_MS_MAX - 1, CALL_AGE_MS_MAX + 1])
async def test_a_call_of_another_time_is_refused(skew_ms: int) -> None:
    """A call that is too old, or from a clock that is too far ahead, does not reach the handler."""
    here, there = VirtualClock(), VirtualClock()
    async with a_node(clock=there) as node, calls_with(clock=here) as calls:
        there.advance(10 * CALL_AGE_MS_MAX)
        here.set(there() + skew_ms)
        with pytest.raises(NodeRefused, match="401"):
            await calls.post(f"{node.url}/v1/told", b"hello", SECONDS, TARGET)
        assert node.heard == []


async def test_nobody_listening_is_unreachable() -> None:
    """A refused connection says that nothing was sent."""
    async with calls_with() as calls:
        with pytest.raises(NodeUnreachable):
            await calls.post(f"http://127.0.0.1:{closed_port()}/v1/told", b"hello", SECONDS)


async def test_an_unknown_name_is_unreachable() -> None:
    """A node whose name resolves to nothing was sent nothing."""
    async with calls_with() as calls:
        with pytest.raises(NodeUnreachable):
            await calls.post("http://nobody.invalid:7070/v1/told", b"hello", SECONDS)


async def test_no_answer_in_time_is_silence() -> None:
    """After the time is up, the call may have been done."""

    async def never(request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        return web.Response()

    async with a_node(answer=never) as node, calls_with() as calls:
        with pytest.raises(NodeSilent):
            await calls.post(f"{node.url}/v1/told", b"hello", 0.2, TARGET)
        assert node.heard == [b"hello"]


async def test_a_broken_connection_is_silence() -> None:
    """A node that dies over a call may have done it."""

    async def die(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with a_node(answer=die) as node, calls_with() as calls:
        with pytest.raises(NodeSilent):
            await calls.post(f"{node.url}/v1/told", b"hello", SECONDS, TARGET)


async def test_a_crashed_handler_is_silence() -> None:
    """An error that nobody foresaw says nothing about what was done before it."""

    async def crash(request: web.Request) -> web.StreamResponse:
        raise RuntimeError("boom")

    async with a_node(answer=crash) as node, calls_with() as calls:
        with pytest.raises(NodeSilent):
            await calls.post(f"{node.url}/v1/told", b"hello", SECONDS, TARGET)


@pytest.mark.parametrize("status", [200, 401, 404, 502])
async def test_an_answer_of_a_stranger_is_silence(status: int) -> None:
    """Whoever stands at the address without the secret cannot answer for the node."""

    async def strange(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, body=b"fine", headers={ANSWER_PROOF: "00" * 32})

    app = web.Application()
    app.router.add_post("/v1/told", strange)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with calls_with() as calls:
        with pytest.raises(NodeSilent):
            await calls.post(f"http://127.0.0.1:{runner.addresses[0][1]}/v1/told", b"hello", SECONDS)
    await runner.cleanup()


async def test_a_refusal_of_the_node_carries_its_body() -> None:
    """What the handler answered with another status is told, whether returned or raised."""

    async def busy(request: web.Request) -> web.StreamResponse:
        return web.Response(status=503, body=b"draining")

    async with a_node(answer=busy) as node, calls_with() as calls:
        with pytest.raises(NodeRefused) as refused:
            await calls.post(f"{node.url}/v1/told", b"hello", SECONDS, TARGET)
        assert (refused.value.status, refused.value.body) == (503, b"draining")
        with pytest.raises(NodeRefused, match="404"):
            await calls.post(f"{node.url}/v1/elsewhere", b"hello", SECONDS, TARGET)


async def test_an_answer_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that is larger than any node gives is not taken in."""
    monkeypatch.setattr("parley.cluster.calls.ANSWER_BYTES_MAX", 10)
    async with a_node() as node, calls_with() as calls:
        with pytest.raises(NodeSilent):
            await calls.post(f"{node.url}/v1/told", b"more than ten", SECONDS, TARGET)


async def test_the_secret_is_told_to_nobody() -> None:
    """Neither logs nor errors nor refusals show the secret or a usable proof."""
    with structlog.testing.capture_logs() as lines:
        async with a_node() as node, calls_with("another secret of some length") as calls:
            with pytest.raises(NodeSilent) as refused:
                await calls.post(f"{node.url}/v1/told", b"hello", SECONDS, TARGET)
    assert [line["event"] for line in lines] == ["node call refused"]
    told = f"{lines} {refused.value!r} {vars(refused.value)}"
    assert SECRET not in told
    assert "another secret" not in told
