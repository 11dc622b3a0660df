"""This node among the others: whose chat is whose, who is doubted, and until when."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import structlog

from parley.cluster import bodies
from parley.cluster.peers import APPEND_SECONDS_MAX, PING_SECONDS_MAX, SILENCE_SECONDS, ClusterPeers
from parley.core.rendezvous import owner
from parley.ephemeral.ports import NODE_LEASE_SECONDS, NODE_RENEW_SECONDS, Node
from parley.errors import SHUTTING_DOWN, OutcomeUnknown, StoreUnavailable
from parley.model import Appended, Draft, Outcome
from parley.telemetry import Metrics
from tests.harness.clock import VirtualClock, run_virtual
from tests.unit.cluster.fakes import FakeCalls, FakeNodes, Handler, fine, hang, listed, node, refuse

A_RENEWAL_SECONDS = NODE_RENEW_SECONDS + 0.1
CHATS = [f"chat_{n}" for n in range(200)]
DRAFT = Draft(chat_id="chat", sender_id="ann", content="hello")
STORED = Appended(message_id="msg", sequence=7, epoch=1, created_at="")


class World:
    """One node named `here` among others."""

    def __init__(self, *others: str, roles: tuple[str, ...] = ("gateway", "ingest")) -> None:
        self.nodes = FakeNodes(*(node(name) for name in others))
        self.calls = FakeCalls()
        self.metrics = Metrics(VirtualClock())
        self.is_ready = True
        self.forgotten: list[float] = []
        self.peers = ClusterPeers(
            node_id="here",
            roles=roles,
            nodes=self.nodes,
            calls=self.calls,
            metrics=self.metrics,
            is_ready=lambda: self.is_ready,
        )

    def forget_all(self) -> None:
        self.forgotten.append(asyncio.get_running_loop().time())

    def serve(self, name: str, append: Handler, ping: Handler = fine) -> None:
        self.calls.answer(f"http://{name}", bodies.APPEND, append)
        self.calls.answer(f"http://{name}", bodies.PING, ping)

    def owners(self) -> set[str | None]:
        return {self.peers.owner_of(chat_id) for chat_id in CHATS}

    async def failure(self, name: str) -> type[Exception]:
        """How an append to a node fails."""
        try:
            await self.peers.append(name, [DRAFT])
        except (OutcomeUnknown, StoreUnavailable) as error:
            return type(error)
        raise AssertionError("it did not fail")


def run(world: World, scenario: Callable[[], Awaitable[None]]) -> list[str]:
    """Join, play, stop, in virtual time; returns what was logged."""

    async def play() -> None:
        await world.peers.start("http://here", world.forget_all)
        try:
            await scenario()
        finally:
            await world.peers.stop()

    with structlog.testing.capture_logs() as lines:
        run_virtual(lambda _: play())
    return [line["event"] for line in lines]


def answering(*outcomes: Outcome) -> Handler:
    async def append(body: bytes) -> bytes:
        assert bodies.read_drafts(body) == [DRAFT] * len(outcomes)
        return bodies.pack_outcomes(outcomes)

    return append


def test_nodes_agree_on_whose_chat_is_whose() -> None:
    """The owner is the rendezvous over all live nodes that append, this one included."""
    world = World("one", "two")
    world.nodes.listed["front"] = node("front", "gateway")

    async def scenario() -> None:
        expected = [owner(chat_id, ["here", "one", "two"]) for chat_id in CHATS]
        assert [world.peers.owner_of(chat_id) for chat_id in CHATS] == expected

    run(world, scenario)


def test_a_node_that_does_not_append_owns_nothing() -> None:
    """A gateway alone has nobody; with a node that appends, everything is that node's."""
    world = World(roles=("gateway",))

    async def scenario() -> None:
        assert world.owners() == {None}
        world.nodes.listed["one"] = node("one")
        await asyncio.sleep(A_RENEWAL_SECONDS)
        assert world.owners() == {"one"}

    run(world, scenario)


def test_nodes_come_and_go() -> None:
    """Within one renewal a node that came gets its chats, and those of one that went are given away."""
    world = World("one")

    async def scenario() -> None:
        world.nodes.listed["two"] = node("two")
        del world.nodes.listed["one"]
        await asyncio.sleep(A_RENEWAL_SECONDS)
        assert world.owners() == {"here", "two"}
        assert "parley_nodes 2.0" in world.metrics.text().decode()

    assert {"node joined", "node left"} <= set(run(world, scenario))


def test_without_the_list_the_last_known_nodes_count() -> None:
    """While the list is out of reach, or its engine fails, nothing moves."""
    world = World("one")

    async def scenario() -> None:
        before = [world.peers.owner_of(chat_id) for chat_id in CHATS]
        world.nodes.is_away = True
        world.nodes.listed.clear()
        await asyncio.sleep(10 * NODE_RENEW_SECONDS)
        world.nodes.failure = ValueError("on purpose")
        await asyncio.sleep(10 * NODE_RENEW_SECONDS)
        assert [world.peers.owner_of(chat_id) for chat_id in CHATS] == before

    run(world, scenario)


def test_a_node_whose_lease_ran_out_leaves_its_chats_to_those_who_are_listed() -> None:
    """It is on nobody's list any more; as soon as it is back there, its share is its own again."""
    world = World("one", "two")
    world.serve("one", answering(STORED), ping=listed)
    world.serve("two", answering(STORED))

    async def scenario() -> None:
        world.nodes.is_away = True
        await asyncio.sleep(NODE_LEASE_SECONDS - NODE_RENEW_SECONDS)
        assert world.owners() == {"here", "one", "two"}
        await asyncio.sleep(2 * NODE_RENEW_SECONDS)
        assert world.owners() == {"one"}
        world.nodes.is_away = False
        await asyncio.sleep(A_RENEWAL_SECONDS)
        assert world.owners() == {"here", "one", "two"}

    run(world, scenario)


def test_when_nobody_is_listed_the_last_known_nodes_count() -> None:
    """Redis is gone for all: each would leave its chats to another one for ever, so nothing moves."""
    world = World("one", "two")
    for name in ("one", "two"):
        world.serve(name, answering(STORED))

    async def scenario() -> None:
        before = [world.peers.owner_of(chat_id) for chat_id in CHATS]
        world.nodes.is_away = True
        await asyncio.sleep(3 * NODE_LEASE_SECONDS)
        assert not world.peers.is_listed
        assert [world.peers.owner_of(chat_id) for chat_id in CHATS] == before

    run(world, scenario)


def test_a_node_that_is_listed_and_cannot_be_reached_is_no_owner() -> None:
    """Without a lease and without another node that can be trusted, this one appends."""
    world = World("one")
    world.serve("one", refuse(503), ping=listed)

    async def scenario() -> None:
        world.nodes.is_away = True
        await asyncio.sleep(NODE_LEASE_SECONDS + NODE_RENEW_SECONDS)
        assert world.owners() == {"one"}
        assert await world.failure("one") is StoreUnavailable
        assert world.owners() == {"here"}

    run(world, scenario)


def test_a_node_that_is_not_listed_keeps_no_bodies() -> None:
    """It drops them at the end of its lease, and what it read until it is listed again."""
    world = World("one")
    world.serve("one", answering(STORED))

    async def scenario() -> None:
        until = asyncio.get_running_loop().time() + NODE_LEASE_SECONDS
        assert len(world.forgotten) == 1
        told = [world.peers.is_told]
        world.nodes.is_away = True
        await asyncio.sleep(NODE_LEASE_SECONDS - 0.1)
        told.append(world.peers.is_told)
        assert len(world.forgotten) == 1
        await asyncio.sleep(NODE_LEASE_SECONDS)
        told.append(world.peers.is_told)
        assert world.forgotten[1:] == [pytest.approx(until)]
        world.nodes.is_away = False
        await asyncio.sleep(A_RENEWAL_SECONDS)
        told.append(world.peers.is_told)
        assert told == [True, True, False, True]
        assert len(world.forgotten) == 3
        await asyncio.sleep(10 * NODE_LEASE_SECONDS)
        assert len(world.forgotten) == 3

    run(world, scenario)


def test_a_node_that_withdraws_keeps_no_bodies() -> None:
    """Nobody tells it of removed ones from then on."""
    world = World("one")

    async def scenario() -> None:
        await world.peers.withdraw()
        assert len(world.forgotten) == 2
        assert not world.peers.is_told

    run(world, scenario)


def test_whoever_is_listed_now_is_told() -> None:
    """Also one that joined since the list was last read, or is suspected; never this node."""
    world = World("one")
    world.serve("one", hang, ping=hang)

    async def scenario() -> None:
        await world.failure("one")
        await world.nodes.announce(node("two"))
        assert [one.node_id for one in await world.peers.told()] == ["one", "two"]

    run(world, scenario)


@pytest.mark.parametrize("others", [[], ["one"]])
def test_a_node_that_is_cut_off_does_not_know_whom_to_tell(others: list[str]) -> None:
    """Others may have joined: what it cannot know it does not claim."""
    world = World(*others)
    for name in others:
        world.serve(name, answering(STORED), ping=listed)

    async def scenario() -> None:
        world.nodes.is_away = True
        await asyncio.sleep(NODE_LEASE_SECONDS + A_RENEWAL_SECONDS)
        with pytest.raises(StoreUnavailable):
            await world.peers.told()

    run(world, scenario)


def test_while_redis_is_away_for_all_the_last_known_nodes_are_told() -> None:
    """No node can have joined meanwhile."""
    world = World("one")
    world.serve("one", answering(STORED))

    async def scenario() -> None:
        world.nodes.is_away = True
        await asyncio.sleep(NODE_LEASE_SECONDS + A_RENEWAL_SECONDS)
        assert [one.node_id for one in await world.peers.told()] == ["one"]

    run(world, scenario)


def test_a_lease_is_renewed_until_the_node_withdraws() -> None:
    """A node says that it is alive well before its lease ends, and never after it has withdrawn."""
    world = World()

    async def scenario() -> None:
        await asyncio.sleep(NODE_LEASE_SECONDS)
        assert len(world.nodes.announced) >= NODE_LEASE_SECONDS / NODE_RENEW_SECONDS
        await world.peers.withdraw()
        count = len(world.nodes.announced)
        await asyncio.sleep(NODE_LEASE_SECONDS)
        assert len(world.nodes.announced) == count
        assert "here" not in world.nodes.listed

    run(world, scenario)


def test_a_withdrawal_is_not_overtaken_by_a_renewal() -> None:
    """A renewal that is under way when a node withdraws does not put it back on the list."""
    world = World()

    async def scenario() -> None:
        for turns in range(10):
            await asyncio.sleep(NODE_RENEW_SECONDS)
            for _ in range(turns):
                await asyncio.sleep(0)
        await asyncio.gather(world.peers._renew(), world.peers.withdraw())
        assert "here" not in world.nodes.listed

    run(world, scenario)


def test_a_node_without_its_store_offers_nobody_to_append() -> None:
    """Its chats go to the others within a renewal, also those of its own people, and come back."""
    world = World("one")

    async def scenario() -> None:
        assert world.owners() == {"here", "one"}
        world.is_ready = False
        await asyncio.sleep(A_RENEWAL_SECONDS)
        assert world.nodes.listed["here"].roles == ("gateway",)
        assert world.owners() == {"one"}
        world.is_ready = True
        await asyncio.sleep(A_RENEWAL_SECONDS)
        assert world.owners() == {"here", "one"}

    run(world, scenario)


def test_outcomes_travel_as_they_are() -> None:
    """A position and a refusal come back in the order of their drafts."""
    world = World("one")
    refusal = SHUTTING_DOWN.because("in other words").after(77)
    world.serve("one", answering(STORED, refusal))

    async def scenario() -> None:
        assert await world.peers.append("one", [DRAFT, DRAFT]) == [STORED, refusal]

    run(world, scenario)


def test_an_unreachable_node_is_passed_over_until_it_answers() -> None:
    """Nothing was sent; its chats are somebody else's from now on, and its own again after a ping."""
    world = World("one")

    async def scenario() -> None:
        assert await world.failure("one") is StoreUnavailable
        assert world.owners() == {"here"}
        await asyncio.sleep(3 * NODE_RENEW_SECONDS)
        assert world.owners() == {"here"}
        world.serve("one", answering(STORED))
        await asyncio.sleep(A_RENEWAL_SECONDS)
        assert world.owners() == {"here", "one"}

    assert run(world, scenario).count("node suspected") == 1


def test_a_silent_node_is_passed_over_for_a_lease() -> None:
    """A node that answers nothing is found out in two seconds, and trusted again after its lease."""
    world = World("one")
    world.serve("one", hang, hang)

    async def scenario() -> None:
        now = asyncio.get_running_loop().time
        assert await world.failure("one") is OutcomeUnknown
        assert now() <= SILENCE_SECONDS + PING_SECONDS_MAX
        world.serve("one", answering(STORED))
        await asyncio.sleep(NODE_LEASE_SECONDS - NODE_RENEW_SECONDS)
        assert world.owners() == {"here"}
        await asyncio.sleep(2 * NODE_RENEW_SECONDS)
        assert world.owners() == {"here", "one"}

    run(world, scenario)


def test_a_slow_node_that_answers_pings_is_waited_for() -> None:
    """Going elsewhere would only double the work of a store that is slow."""
    world = World("one")

    async def slow(_: bytes) -> bytes:
        await asyncio.sleep(APPEND_SECONDS_MAX - 0.5)
        return bodies.pack_outcomes([STORED])

    world.serve("one", slow)

    async def scenario() -> None:
        assert await world.peers.append("one", [DRAFT]) == [STORED]
        assert world.owners() == {"here", "one"}

    run(world, scenario)


@pytest.mark.parametrize("ping", [fine, refuse(503)])
def test_a_node_that_is_too_slow_leaves_the_outcome_open(ping: Handler) -> None:
    """It is there, so nothing is known of the draft; and it is not doubted for being slow."""
    world = World("one")
    world.serve("one", hang, ping)

    async def scenario() -> None:
        assert await world.failure("one") is OutcomeUnknown
        assert asyncio.get_running_loop().time() == pytest.approx(APPEND_SECONDS_MAX)
        assert world.owners() == {"here", "one"}

    run(world, scenario)


@pytest.mark.parametrize("status", [401, 503, 400])
def test_a_node_that_refuses_took_nothing(status: int) -> None:
    """Draining, another secret or another version: its drafts go elsewhere, and so do the next ones."""
    world = World("one")
    world.serve("one", refuse(status), refuse(status))

    async def scenario() -> None:
        assert await world.failure("one") is StoreUnavailable
        await asyncio.sleep(3 * NODE_RENEW_SECONDS)
        assert world.owners() == {"here"}

    run(world, scenario)


def test_a_node_that_is_going_away_is_passed_over() -> None:
    """One refusal of a draining node is enough to go elsewhere."""
    world = World("one")
    world.serve("one", answering(STORED, SHUTTING_DOWN), refuse(503))

    async def scenario() -> None:
        await world.peers.append("one", [DRAFT, DRAFT])
        assert world.owners() == {"here"}

    run(world, scenario)


@pytest.mark.parametrize("answer", [b"", b"\xc1", b"\x90", b"\x91\x80", b"\x92\x80\x80"])
def test_an_answer_without_sense_leaves_the_outcome_open(answer: bytes) -> None:
    """Whatever it meant, it may have stored the draft."""
    world = World("one")

    async def senseless(_: bytes) -> bytes:
        return answer

    world.serve("one", senseless)

    async def scenario() -> None:
        assert await world.failure("one") is OutcomeUnknown

    run(world, scenario)


def test_somebody_doubtful_is_better_than_nobody() -> None:
    """When every node that appends is doubted, they are asked all the same."""
    world = World("one", roles=("gateway",))
    world.serve("one", hang, hang)

    async def scenario() -> None:
        await world.failure("one")
        assert world.owners() == {"one"}
        world.nodes.listed["two"] = node("two")
        await asyncio.sleep(NODE_RENEW_SECONDS + PING_SECONDS_MAX)
        assert world.owners() == {"two"}

    run(world, scenario)


def test_a_node_that_has_gone_is_sent_nothing() -> None:
    """A batch for a node that is off the list goes elsewhere without a call."""
    world = World()

    async def scenario() -> None:
        assert await world.failure("one") is StoreUnavailable
        assert world.calls.made == []

    run(world, scenario)


def test_a_node_that_goes_while_it_fails_is_forgotten() -> None:
    """Doubt about somebody who is off the list disturbs nothing."""
    world = World("one")
    world.serve("one", hang, hang)

    async def scenario() -> None:
        failing = asyncio.create_task(world.failure("one"))
        await asyncio.sleep(0)
        del world.nodes.listed["one"]
        await world.peers.refresh()
        assert await failing is OutcomeUnknown
        await asyncio.sleep(NODE_LEASE_SECONDS)
        assert world.owners() == {"here"}

    assert "the list of nodes could not be kept" not in run(world, scenario)


def test_a_name_taken_twice_is_told() -> None:
    """Two nodes under one name are a mistake that an operator can mend."""
    world = World()

    async def scenario() -> None:
        world.nodes.listed["here"] = Node("here", "http://elsewhere", ("gateway",))
        await world.peers.refresh()

    assert "another node has this name: give each its own cluster.node" in run(world, scenario)
