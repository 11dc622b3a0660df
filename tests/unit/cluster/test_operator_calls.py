"""What operators ask of other nodes: the node that is meant answers, and one that does not is named."""

import asyncio

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from msgspec import Raw

from parley.cluster.calls import NodeRefused, NodeSilent, NodeUnreachable
from parley.cluster.operator_calls import ALL_SECONDS_MAX, OPERATE, PeerOperations, operator_routes
from parley.core.node_questions import CloseOrder, DrainOrder, NodeQuestion, NodeReply, StateQuestion
from parley.ephemeral.ports import Node
from parley.errors import NOT_FOUND, Refused
from tests.harness.clock import VirtualClock, run_virtual
from tests.unit.cluster.fakes import FakeNodes

FOUND = Raw(msgspec.msgpack.encode("well"))


def listed(*names: str) -> FakeNodes:
    return FakeNodes(*(Node(name, f"http://{name}", ("gateway",), f"{name}.1") for name in names))


class MoodyCalls:
    """What each node does when it is asked, by its name."""

    def __init__(self) -> None:
        self.asked: list[NodeQuestion] = []

    async def post(self, url: str, body: bytes, timeout: float, target: str = "") -> bytes:
        name = target.removesuffix(".1")
        assert url == f"http://{name}{OPERATE}"
        self.asked.append(msgspec.msgpack.decode(body, type=NodeQuestion))
        match name:
            case "gone":
                raise NodeUnreachable("it cannot be reached")
            case "old":
                raise NodeRefused(404, b"")
            case "silent":
                raise NodeSilent("it gave no answer")
            case "garbled":
                return b"\xc1"
            case "strict":
                return msgspec.msgpack.encode(NodeReply(refusal=NOT_FOUND))
            case "stuck":
                await asyncio.sleep(3_600)
        return msgspec.msgpack.encode(NodeReply(FOUND))


def test_the_node_that_is_meant_is_asked() -> None:
    """It alone; what it refuses comes back as it said it."""

    async def scenario(clock: VirtualClock) -> None:
        calls = MoodyCalls()
        peers = PeerOperations(listed("me", "well", "strict"), calls, "me")
        assert (await peers.ask("well", CloseOrder("ses_1.7f"))).found == FOUND
        assert (await peers.ask("strict", StateQuestion())).refusal == NOT_FOUND
        assert calls.asked == [CloseOrder("ses_1.7f"), StateQuestion()]
        for name in ("me", "nobody"):
            with pytest.raises(Refused, match="no such node"):
                await peers.ask(name, StateQuestion())

    run_virtual(scenario)


def test_of_an_order_that_is_lost_nobody_knows_whether_it_was_done() -> None:
    """Unless it was never sent, or refused; a question is only silent, whatever was lost."""

    async def scenario(clock: VirtualClock) -> None:
        peers = PeerOperations(listed("me", "gone", "old", "silent", "garbled"), MoodyCalls(), "me")

        async def code(name: str, question: NodeQuestion) -> str:
            with pytest.raises(Refused) as refused:
                await peers.ask(name, question)
            return refused.value.refusal.code

        for name in ("gone", "old", "silent", "garbled"):
            assert await code(name, StateQuestion()) == "node_silent"
            known = "node_silent" if name in ("gone", "old") else "outcome_unknown"
            assert await code(name, DrainOrder()) == known

    run_virtual(scenario)


def test_every_node_is_asked_within_limits_of_time() -> None:
    """Each that does not say is there with why."""

    async def scenario(clock: VirtualClock) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        peers = PeerOperations(listed("me", "well", "gone", "stuck"), MoodyCalls(), "me")
        replies = await peers.ask_all(StateQuestion())
        assert loop.time() - began <= ALL_SECONDS_MAX + 0.1
        assert {name: reply.refusal and reply.refusal.reason for name, reply in replies.items()} == {
            "well": None,
            "gone": "it cannot be reached",
            "stuck": "it was not reached in time",
        }
        assert await PeerOperations(listed("me"), MoodyCalls(), "me").ask_all(StateQuestion()) == {}

    run_virtual(scenario)


async def test_a_body_that_makes_no_sense_is_refused_and_does_nothing() -> None:
    """With status 400; a good one is answered."""
    asked: list[NodeQuestion] = []

    def answer(question: NodeQuestion) -> NodeReply:
        asked.append(question)
        return NodeReply(FOUND)

    app = web.Application()
    app.router.add_routes(operator_routes(answer))
    pack = msgspec.msgpack.encode
    async with TestClient(TestServer(app)) as client:
        for body in (b"", b"\xc1", pack({"type": "drain", "x": [1]})[:-1], pack({"type": "erase"}), pack([])):
            assert (await client.post(OPERATE, data=body)).status == 400
        assert asked == []
        told = await client.post(OPERATE, data=pack(DrainOrder()))
        assert msgspec.msgpack.decode(await told.read(), type=NodeReply).found == FOUND
    assert asked == [DrainOrder()]
