"""Notices: told to every other gateway until it acknowledges them, and to nobody for ever."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
import structlog

from parley.bus.embedded import EmbeddedBus
from parley.cluster import bodies, notices
from parley.cluster.bodies import Joined, Notice, SessionsEnded
from parley.cluster.notices import RETRY_SECONDS_MAX, TELL_SECONDS_MAX, WAITING_MAX, NoticeSender
from parley.cluster.peers import ClusterPeers
from parley.ids import Ids
from parley.model import Head, Persisted, StoredEntry
from parley.telemetry import Metrics
from parley.wire.limits import CHAT_MEMBERS_MAX
from tests.harness.clock import VirtualClock, run_virtual
from tests.unit.cluster.fakes import FakeCalls, FakeNodes, Handler, hang, node


class World:
    """One node named `here` and its notices, other nodes, and what each of those has heard."""

    def __init__(self, *others: str) -> None:
        self.nodes = FakeNodes(*(node(name) for name in others))
        self.calls = FakeCalls()
        self.metrics = Metrics(VirtualClock())
        self.peers = ClusterPeers(
            node_id="here", roles=["gateway"], nodes=self.nodes, calls=self.calls, metrics=self.metrics
        )
        self.notices = NoticeSender(
            self.peers, self.metrics, VirtualClock(), Ids(random.Random(1).getrandbits)
        )
        self.bus = EmbeddedBus()
        self.bus.subscribe(self.notices)
        self.heard: dict[str, list[Notice]] = {name: [] for name in others}
        for name in others:
            self.serve(name)

    def serve(self, name: str, handler: Handler | None = None) -> None:
        async def hear(body: bytes) -> bytes:
            self.heard.setdefault(name, []).extend(bodies.read_notices(body))
            return b""

        self.calls.answer(f"http://{name}", bodies.NOTICES, handler or hear)

    def lost(self) -> float:
        return self.metrics.registry.get_sample_value("parley_notices_lost_total") or 0


def run(world: World, scenario: Callable[[], Awaitable[None]]) -> None:
    async def play() -> None:
        await world.peers.start("http://here")
        try:
            await scenario()
        finally:
            await world.notices.stop()
            await world.peers.stop()

    with structlog.testing.capture_logs():
        run_virtual(lambda _: play())


def test_every_other_gateway_hears() -> None:
    """New chats and ended sessions reach all gateways but this one; the log's news does not go this way."""
    world = World("one", "two")
    world.nodes.listed["store"] = node("store", "ingest")

    async def scenario() -> None:
        world.bus.publish_joined("chat", Head(1, 0), ["ann", "ben"])
        world.bus.publish_sessions_ended(["ses_1"])
        world.bus.publish([Persisted("chat", 1, [StoredEntry(1, b"{}")])])
        await asyncio.sleep(0.1)
        for name in ("one", "two"):
            joined, ended = world.heard[name]
            assert isinstance(joined, Joined)
            assert (joined.chat_id, joined.head, joined.user_ids) == ("chat", Head(1, 0), ["ann", "ben"])
            assert isinstance(ended, SessionsEnded)
            assert ended.session_ids == ["ses_1"]
            assert joined.notice_id != ended.notice_id
        assert world.lost() == 0

    run(world, scenario)


def test_a_node_that_has_just_come_hears_too() -> None:
    """The list is read anew: a node that came after the last renewal may already serve people."""
    world = World()

    async def scenario() -> None:
        world.nodes.listed["new"] = node("new")
        world.serve("new")
        world.bus.publish_sessions_ended(["ses_1"])
        await asyncio.sleep(0.1)
        assert len(world.heard["new"]) == 1

    run(world, scenario)


@pytest.mark.parametrize("trouble", [None, hang])
def test_a_notice_is_told_until_it_is_heard(trouble: Handler | None) -> None:
    """A node that is unreachable or hangs for a while hears everything in order when it is back."""
    world = World("one", "two")
    if trouble is None:
        del world.calls.handlers["http://one" + bodies.NOTICES]
    else:
        world.serve("one", trouble)

    async def scenario() -> None:
        for n in range(25):
            world.bus.publish_sessions_ended([f"ses_{n}"])
            await asyncio.sleep(0.5)
        assert len(world.heard["two"]) == 25
        world.serve("one")
        await asyncio.sleep(2 * RETRY_SECONDS_MAX)
        assert world.heard["one"] == world.heard["two"]
        assert world.lost() == 0

    run(world, scenario)


def test_a_node_that_never_answers_is_given_up() -> None:
    """After a minute a notice is counted as lost, and nothing is under way any more."""
    world = World("one")
    world.serve("one", hang)

    async def scenario() -> None:
        world.bus.publish_sessions_ended(["ses_1"])
        await asyncio.sleep(TELL_SECONDS_MAX + 2 * RETRY_SECONDS_MAX)
        assert world.lost() == 1
        calls = len(world.calls.made)
        await asyncio.sleep(TELL_SECONDS_MAX)
        assert len(world.calls.made) == calls

    run(world, scenario)


def test_what_waits_is_bounded() -> None:
    """Beyond the limit notices are counted as lost, instead of filling the memory."""
    world = World("one")
    world.serve("one", hang)

    async def scenario() -> None:
        for n in range(WAITING_MAX + 5):
            world.bus.publish_sessions_ended([f"ses_{n}"])
        assert world.lost() == 5
        await asyncio.sleep(1)
        for n in range(7):
            world.bus.publish_sessions_ended([f"more_{n}"])
        await asyncio.sleep(1)
        assert world.lost() == 12

    run(world, scenario)


def test_large_chats_fill_more_calls() -> None:
    """However many members the chats have that are told of at once, a call stays small."""
    world = World("one")
    sizes: list[int] = []

    async def hear(body: bytes) -> bytes:
        sizes.append(len(body))
        world.heard["one"] += bodies.read_notices(body)
        return b""

    world.serve("one", hear)

    async def scenario() -> None:
        members = [f"user_{n:026}" for n in range(CHAT_MEMBERS_MAX)]
        for n in range(7):
            world.bus.publish_joined(f"chat_{n}", Head(1, 0), members)
        await asyncio.sleep(1)
        assert len(world.heard["one"]) == 7
        assert max(sizes) < bodies.BODY_BYTES_MAX / 2
        assert len(sizes) < 7

    run(world, scenario)


def test_stopping_gives_notices_a_last_chance() -> None:
    """What was published just before the end is still told, and a hanging node does not hold it up."""
    world = World("one", "two")
    world.serve("two", hang)

    async def scenario() -> None:
        world.bus.publish_sessions_ended(["ses_1"])
        started = asyncio.get_running_loop().time()
        await world.notices.stop()
        assert len(world.heard["one"]) == 1
        assert asyncio.get_running_loop().time() - started <= notices.STOP_SECONDS_MAX

    run(world, scenario)
