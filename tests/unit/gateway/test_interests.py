"""What a gateway registers, in which order, and what it does when the registry has forgotten it."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence

import pytest

from parley.ephemeral.local_interests import LocalInterests
from parley.ephemeral.ports import INTEREST_AGAIN_SECONDS, TENURE_LEASE_SECONDS, TENURE_RENEW_SECONDS
from parley.errors import StoreUnavailable
from parley.gateway.hub import Hub
from parley.gateway.interests import (
    CHECKS_PER_MEMBERSHIP_CHECK,
    HEADS_SECONDS,
    LOOK_SECONDS,
    PAUSES_PER_CHECK,
    UNROUTED,
    HeadsWatch,
    InterestKeeper,
)
from parley.gateway.subscribers import Subscribers
from parley.telemetry import Metrics
from tests.fakes import hub_over
from tests.harness.clock import VirtualClock, run_virtual
from tests.unit.gateway.test_hub import CHAT, Ear, OneChatLog, news

SOON = 2 * TENURE_RENEW_SECONDS


class ScriptedInterests(LocalInterests):
    """`is_away`: out of reach. `meanwhile` is called before a registration counts."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.is_away = False
        self.registrations = 0
        self.meanwhile: Callable[[Sequence[str]], None] = lambda _: None

    async def begin(self, tenure: str) -> bool:
        return not self.is_away and await super().begin(tenure)

    async def renew(self, tenure: str) -> bool | None:
        return None if self.is_away else await super().renew(tenure)

    async def register(self, tenure: str, subjects: Sequence[str]) -> list[str] | None:
        self.meanwhile(subjects)
        self.registrations += 1
        return None if self.is_away else await super().register(tenure, subjects)


class Node:
    """A gateway over one chat, whose entries nobody routes unless the test does."""

    def __init__(self, clock: VirtualClock) -> None:
        self.log = OneChatLog()
        self.interests = ScriptedInterests(clock)
        self.has_router = True
        self.tenures = 0
        subscribers = Subscribers()
        self.keeper = InterestKeeper(
            self.interests,
            subscribers,
            self._new_tenure,
            Metrics(clock),
        )
        self.hub: Hub = hub_over(
            self.log, self.log.directory, Metrics(clock), interest=self.keeper, subscribers=subscribers
        )
        self.ear = Ear()

    def _new_tenure(self) -> str:
        self.tenures += 1
        return f"here.{self.tenures}"

    async def start(self) -> None:
        await self.begin()
        await self.hub.subscribe(self.ear)

    async def begin(self) -> None:
        await self.keeper.start(lambda: self.hub.catch_up(), lambda: self.has_router)

    async def found(self, subject: str) -> bool:
        return bool((await self.interests.tenures([subject]) or {})[subject])

    async def close(self) -> None:
        await self.keeper.close()
        await self.hub.close()


def on_a_node(scenario: Callable[[Node], Awaitable[None]]) -> None:
    async def run(clock: VirtualClock) -> None:
        node = Node(clock)
        await node.start()
        try:
            await scenario(node)
        finally:
            await node.close()

    run_virtual(run)


class StoringInterest:
    """Something is stored while a chat is being registered: nobody routes it."""

    def __init__(self, log: OneChatLog) -> None:
        self._log = log

    async def hold(self, subjects: Iterable[str]) -> None:
        await asyncio.sleep(0.01)
        if CHAT in subjects:
            self._log.fill(1)

    def is_held(self, subject: str) -> bool:
        return False


def test_what_is_stored_while_it_registers_is_in_the_head() -> None:
    """The head is read after the interest is registered: everything after it will be routed."""

    async def scenario(clock: VirtualClock) -> None:
        log = OneChatLog()
        hub, ear = hub_over(log, log.directory, Metrics(clock), interest=StoringInterest(log)), Ear()
        await hub.subscribe(ear)
        assert ear.chats[CHAT].sent_through == 1
        await hub.close()

    run_virtual(scenario)


def test_a_connection_registers_its_person_before_its_chats_are_read() -> None:
    """A chat that the person joins meanwhile is either in the list or routed to the person's node."""

    async def scenario(clock: VirtualClock) -> None:
        node = Node(clock)
        await node.begin()
        order: list[list[str]] = []
        node.interests.meanwhile = lambda subjects: order.append(list(subjects))
        await node.hub.subscribe(node.ear)
        assert order == [["ann"], [CHAT]]
        await node.close()

    run_virtual(scenario)


def test_a_chat_that_is_joined_is_registered_and_then_read() -> None:
    """Who is told of a chat hears it at once, and what was stored before it was registered is found."""

    async def scenario(node: Node) -> None:
        def store(_: Sequence[str]) -> None:
            node.log.store("chat_2", 1, 2)

        node.interests.meanwhile = store
        node.log.chat("chat_2")
        node.hub.joined("chat_2", (await node.log.heads(["chat_2"]))["chat_2"], ["ann"])
        node.ear.frames.clear()
        await asyncio.sleep(1)
        assert await node.found("chat_2")
        assert node.ear.heard == [1, 2]

    async def run(clock: VirtualClock) -> None:
        node = Node(clock)
        node.ear.offer = MessagesOnly(node.ear)  # type: ignore[method-assign]
        await node.start()
        await scenario(node)
        await node.close()

    run_virtual(run)


class MessagesOnly:
    """Passes on the frames that have entries."""

    def __init__(self, ear: Ear) -> None:
        self._offer = ear.offer

    def __call__(self, data: bytes) -> None:
        if b'"entries"' in data:
            self._offer(data)


def test_what_nobody_hears_any_more_is_released() -> None:
    """And registered again for the next one who comes."""

    async def scenario(node: Node) -> None:
        assert await node.found(CHAT)
        node.hub.unsubscribe(node.ear)
        await asyncio.sleep(SOON)
        assert not await node.found(CHAT)
        assert not await node.found("ann")
        await node.hub.subscribe(node.ear)
        assert await node.found(CHAT)

    on_a_node(scenario)


def test_a_forgotten_node_registers_again_and_then_reads() -> None:
    """What was stored since, and while it registered, is sent; no head is read before it is registered."""

    async def scenario(node: Node) -> None:
        await node.interests.end()
        node.interests.meanwhile = lambda subjects: node.log.fill(2)
        await asyncio.sleep(SOON)
        assert await node.found(CHAT)
        assert node.ear.heard == [1, 2]
        assert (node.tenures, node.keeper.doubt) == (2, "")

    on_a_node(scenario)


def test_a_node_that_was_paused_reads_its_heads() -> None:
    """A tenure that ran out while the node slept is not renewed as if nothing had been."""

    async def scenario(node: Node) -> None:
        node.interests.is_away = True
        await asyncio.sleep(TENURE_LEASE_SECONDS + SOON)
        assert node.keeper.doubt
        node.log.fill(3)
        node.interests.is_away = False
        await asyncio.sleep(SOON)
        assert (node.ear.heard, node.keeper.doubt, node.tenures) == ([1, 2, 3], "", 2)

    on_a_node(scenario)


def test_a_single_interest_that_is_lost_is_noticed() -> None:
    """Everything is registered again in turn, and what turns out to be new was lost."""

    async def scenario(node: Node) -> None:
        await node.interests.release("here.1", [CHAT])
        node.log.fill(1)
        await asyncio.sleep(INTEREST_AGAIN_SECONDS + SOON)
        assert (node.ear.heard, node.tenures) == ([1], 2)

    on_a_node(scenario)


def test_a_quiet_node_asks_for_little() -> None:
    """It renews one lease, and registers each subject once in an hour."""

    async def scenario(node: Node) -> None:
        node.interests.registrations = 0
        reads = node.log.reads
        await asyncio.sleep(INTEREST_AGAIN_SECONDS)
        assert node.interests.registrations <= INTEREST_AGAIN_SECONDS / TENURE_RENEW_SECONDS
        assert node.log.reads == reads

    on_a_node(scenario)


def test_without_the_registry_people_connect_and_the_node_is_in_doubt() -> None:
    """Nobody waits for a registry that is away."""

    async def scenario(clock: VirtualClock) -> None:
        node = Node(clock)
        node.interests.is_away = True
        await node.start()
        assert (node.keeper.doubt != "", CHAT in node.ear.chats) == (True, True)
        node.interests.is_away = False
        await asyncio.sleep(SOON)
        assert (node.keeper.doubt, await node.found(CHAT)) == ("", True)
        await node.close()

    run_virtual(scenario)


def test_a_store_that_is_away_keeps_a_forgotten_node_in_doubt() -> None:
    """Until the heads were read nobody may say that nothing is missing."""

    async def scenario(node: Node) -> None:
        working = node.hub.catch_up

        async def fail() -> None:
            raise StoreUnavailable("on purpose")

        node.hub.catch_up = fail  # type: ignore[method-assign]
        await node.interests.end()
        await asyncio.sleep(SOON)
        assert node.keeper.doubt
        node.log.fill(1)
        node.hub.catch_up = working  # type: ignore[method-assign]
        await asyncio.sleep(20)
        assert (node.keeper.doubt, node.ear.heard) == ("", [1])

    on_a_node(scenario)


def test_what_makes_a_node_doubt() -> None:
    """No node that routes, or a node that says that events are late."""

    async def scenario(node: Node) -> None:
        await asyncio.sleep(SOON)
        assert node.keeper.doubt == ""
        node.has_router = False
        assert "role delivery" in node.keeper.doubt
        node.has_router = True
        await node.interests.suspect(SOON)
        await asyncio.sleep(SOON - 1)
        assert "late" in node.keeper.doubt
        await asyncio.sleep(SOON)
        assert node.keeper.doubt == ""

    on_a_node(scenario)


def test_heads_are_read_in_doubt_and_never_else() -> None:
    """At once when the doubt begins, then at every look while that is quick; memberships now and then."""

    async def scenario(clock: VirtualClock) -> None:
        log = OneChatLog()
        hub, ear, doubts = hub_over(log, log.directory, Metrics(clock)), Ear(), [""]
        await hub.subscribe(ear)
        checks: list[str] = []

        class Counted:
            async def check_heads(self) -> None:
                checks.append("heads")
                await hub.check_heads()

            async def catch_up(self) -> None:
                checks.append("all")
                await hub.catch_up()

            async def check_sessions(self) -> None:
                raise AssertionError("nobody asked for it")

        watch = HeadsWatch(Counted(), lambda: doubts[0])
        for _ in range(20):
            await asyncio.sleep(LOOK_SECONDS)
            await watch.look()
        assert checks == []
        doubts[0], began = "whatever the reason", asyncio.get_running_loop().time()
        log.fill(1)
        await watch.look()
        await asyncio.sleep(1)
        assert ear.heard == [1]
        while len(checks) < CHECKS_PER_MEMBERSHIP_CHECK:
            await asyncio.sleep(LOOK_SECONDS)
            await watch.look()
        assert checks == ["heads"] * (CHECKS_PER_MEMBERSHIP_CHECK - 1) + ["all"]
        each = (asyncio.get_running_loop().time() - began) / (CHECKS_PER_MEMBERSHIP_CHECK - 1)
        assert each <= LOOK_SECONDS + 1
        await hub.close()

    run_virtual(scenario)


@pytest.mark.parametrize(("why", "each_seconds"), [("slow", 20.0), (UNROUTED, HEADS_SECONDS)])
def test_slow_and_lasting_reads_of_heads_are_rarer(why: str, each_seconds: float) -> None:
    """A node with many chats, or one to which nothing is ever routed, looks within half a minute."""

    async def scenario(clock: VirtualClock) -> None:
        checks: list[float] = []

        class Slow:
            async def check_heads(self) -> None:
                checks.append(asyncio.get_running_loop().time())
                await asyncio.sleep(each_seconds / PAUSES_PER_CHECK if why != UNROUTED else 0)

            catch_up = check_heads

            async def check_sessions(self) -> None:
                raise AssertionError("nobody asked for it")

        watch = HeadsWatch(Slow(), lambda: why)
        while len(checks) < 5:
            await asyncio.sleep(LOOK_SECONDS)
            await watch.look()
        pauses = [later - earlier for earlier, later in itertools.pairwise(checks)]
        assert all(each_seconds <= pause <= each_seconds + 2 * LOOK_SECONDS for pause in pauses)

    run_virtual(scenario)


def test_the_first_entry_of_a_chat_lets_its_members_hear_it() -> None:
    """The notice of a new chat was lost: who is a member here hears it from its first entry on."""

    async def scenario(clock: VirtualClock) -> None:
        node = Node(clock)
        node.ear.offer = MessagesOnly(node.ear)  # type: ignore[method-assign]
        await node.start()
        node.hub.persisted_elsewhere([node.log.store("chat_2", 1)])
        await asyncio.sleep(1)
        node.hub.persisted_elsewhere([node.log.store("chat_2", 2)])
        assert node.ear.heard == [1, 2]
        assert await node.found("chat_2")
        await node.close()

    run_virtual(scenario)


def test_routed_news_is_heard_once() -> None:
    """What is routed here twice, as after a worker's death, is sent once."""

    async def scenario(node: Node) -> None:
        for _ in range(2):
            node.hub.persisted_elsewhere([news(1)])
        assert node.ear.heard == [1]

    on_a_node(scenario)
