"""Every node is told of removed bodies at once, and the call ends in time whatever the nodes do."""

import asyncio
import contextlib

import msgspec
import pytest

from parley.cluster.forget_calls import (
    COMPARE_SECONDS_MAX,
    FORGET,
    FORGET_SECONDS_MAX,
    NODES_AT_ONCE_MAX,
    ForgetCall,
    PeerForgets,
)
from parley.ephemeral.ports import Node
from parley.errors import StoreUnavailable
from tests.harness.clock import run_virtual
from tests.unit.cluster.fakes import FakeCalls, Handler, fine, hang, node, refuse

LATENCY_SECONDS = 1.0


class World:
    """This node, and others that answer as they are told to."""

    def __init__(self) -> None:
        self.calls = FakeCalls()
        self.others: list[Node] = []
        self.here: list[ForgetCall] = []
        self.failure: Exception | None = None
        self.forgets = PeerForgets(self._told, self.calls, self._forget)

    def add(self, name: str, handler: Handler) -> None:
        self.others.append(node(name))
        self.calls.answer(f"http://{name}", FORGET, handler)

    async def _told(self) -> list[Node]:
        return self.others

    async def _forget(self, chat_id: str, sequences: list[int] | None) -> None:
        self.here.append(ForgetCall(chat_id, sequences))
        if self.failure is not None:
            raise self.failure


async def slow(_: bytes) -> bytes:
    await asyncio.sleep(LATENCY_SECONDS)
    return b""


async def seconds_of(world: World) -> float:
    """How long a call took that may fail."""
    began = asyncio.get_running_loop().time()
    with contextlib.suppress(StoreUnavailable):
        await world.forgets.forget("chat", [1])
    return asyncio.get_running_loop().time() - began


def test_every_node_and_this_one_are_told_what_to_forget() -> None:
    """The chat and the numbers of the messages, or that the whole chat is to be compared."""
    world, heard = World(), list[ForgetCall]()

    async def hear(body: bytes) -> bytes:
        heard.append(msgspec.msgpack.decode(body, type=ForgetCall))
        return b""

    async def play() -> None:
        world.add("two", hear)
        world.add("three", hear)
        await world.forgets.forget("chat", [3, 5])
        await world.forgets.compare("chat")

    run_virtual(lambda _: play())
    named, whole = ForgetCall("chat", [3, 5]), ForgetCall("chat", None)
    assert heard == [named, named, whole, whole]
    assert world.here == [named, whole]


def test_nodes_are_called_at_the_same_time() -> None:
    """As many as may be called at once take as long as one."""
    world = World()

    async def play() -> float:
        for number in range(NODES_AT_ONCE_MAX):
            world.add(f"n{number}", slow)
        return await seconds_of(world)

    assert run_virtual(lambda _: play()) == pytest.approx(LATENCY_SECONDS)


def test_a_cluster_of_one_calls_nobody() -> None:
    """It forgets by itself, without a wait."""
    world = World()
    assert run_virtual(lambda _: seconds_of(world)) == 0
    assert world.calls.made == []
    assert len(world.here) == 1


@pytest.mark.parametrize("count", [1, 3 * NODES_AT_ONCE_MAX])
def test_silence_ends_in_time_however_many_are_silent(count: int) -> None:
    """The bound is for all nodes together."""
    world = World()

    async def play() -> float:
        for number in range(count):
            world.add(f"n{number}", hang)
        return await seconds_of(world)

    assert run_virtual(lambda _: play()) == pytest.approx(FORGET_SECONDS_MAX)


@pytest.mark.parametrize(
    "handler", [hang, refuse(503), refuse(404), None], ids=["silent", "refused", "old", "away"]
)
def test_a_node_that_has_not_confirmed_is_an_error_that_names_it(handler: Handler | None) -> None:
    """The others have forgotten all the same."""
    world, others = World(), list[str]()

    async def well(_: bytes) -> bytes:
        others.append("well")
        return b""

    async def play() -> None:
        world.add("well", well)
        world.others.append(node("ill"))
        if handler is not None:
            world.calls.answer("http://ill", FORGET, handler)
        with pytest.raises(StoreUnavailable, match="ill"):
            await world.forgets.forget("chat", [1])

    run_virtual(lambda _: play())
    assert others == ["well"]
    assert len(world.here) == 1


def test_a_failure_of_this_node_keeps_no_other_from_forgetting() -> None:
    """Its own failure is told when all were told."""
    world = World()
    world.failure = StoreUnavailable("the index is in use")

    async def play() -> None:
        world.add("two", slow)
        with pytest.raises(StoreUnavailable, match="in use"):
            await world.forgets.forget("chat", [1])

    run_virtual(lambda _: play())
    assert world.calls.made == [f"http://two{FORGET}"]


def test_a_comparison_may_take_longer() -> None:
    """A chat is read from its beginning: nobody waits for the answer as for that of a delete."""
    world = World()

    async def late(body: bytes) -> bytes:
        await asyncio.sleep(COMPARE_SECONDS_MAX - 1)
        confirmed.append(msgspec.msgpack.decode(body, type=ForgetCall))
        return await fine(body)

    async def play() -> None:
        world.add("two", late)
        await world.forgets.compare("chat")

    confirmed: list[ForgetCall] = []
    run_virtual(lambda _: play())
    assert confirmed == world.here == [ForgetCall("chat", None)]
