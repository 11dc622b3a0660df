"""Asking the other nodes what they remember: in time, and with a name for each that does not say."""

import asyncio

import msgspec

from parley.cluster.calls import NodeSilent, NodeUnreachable
from parley.cluster.traces import ALL_SECONDS_MAX, TRACE, PeerTraces
from parley.core.timeline import NodeTrace, TraceQuestion
from parley.ephemeral.ports import Node
from tests.harness.clock import VirtualClock, run_virtual
from tests.unit.cluster.fakes import FakeNodes

QUESTION = TraceQuestion("chat_1", 5, ["ann"])


def listed(*names: str) -> FakeNodes:
    return FakeNodes(*(Node(name, f"http://{name}", ("gateway",), f"{name}.1") for name in names))


class MoodyCalls:
    """What each node does when it is asked, by its name."""

    async def post(self, url: str, body: bytes, timeout: float, target: str = "") -> bytes:
        name = target.removesuffix(".1")
        assert url == f"http://{name}{TRACE}"
        assert msgspec.msgpack.decode(body, type=TraceQuestion) == QUESTION
        match name:
            case "gone":
                raise NodeUnreachable("it cannot be reached")
            case "silent":
                await asyncio.sleep(timeout)
                raise NodeSilent("it gave no answer")
            case "garbled":
                return b"\xc1"
            case "stuck":
                await asyncio.sleep(3_600)
        return msgspec.msgpack.encode(NodeTrace(node_id=name, since_ms=1))


def test_every_node_that_does_not_say_is_named() -> None:
    """The others are heard, this one is not asked, and the answer is there in time."""

    async def scenario(clock: VirtualClock) -> None:
        nodes = listed("me", "well", "gone", "silent", "garbled", "stuck")
        loop = asyncio.get_running_loop()
        began = loop.time()
        answers = await PeerTraces(nodes, MoodyCalls(), "me").ask(QUESTION)
        assert loop.time() - began <= ALL_SECONDS_MAX + 0.1
        assert [trace.node_id for trace in answers.traces] == ["well"]
        assert set(answers.silent) == {"gone", "silent", "garbled", "stuck"}
        assert answers.silent["gone"] == "it cannot be reached"
        assert answers.silent["stuck"] == "it was not reached in time"

    run_virtual(scenario)


def test_a_node_without_others_asks_nobody() -> None:
    """It has its own memory."""

    async def scenario(clock: VirtualClock) -> None:
        answers = await PeerTraces(listed("me"), MoodyCalls(), "me").ask(QUESTION)
        assert (answers.traces, answers.silent) == ([], {})

    run_virtual(scenario)
