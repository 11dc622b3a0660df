"""The router alone: who gets an event, in which order, and when it is done."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from parley.cluster import router as router_module
from parley.cluster.calls import NodeUnreachable
from parley.cluster.router import NODE_QUEUE_BYTES_MAX, UNCONFIRMED_SECONDS_MAX, Router
from parley.ephemeral.local_interests import LocalInterests
from parley.model import Action, Change, Persisted, StoredEntry
from parley.telemetry import Metrics
from tests.harness.clock import VirtualClock, run_virtual
from tests.harness.scripted_log import ScriptedLog
from tests.memory.people import MemoryDirectory

CALL_SECONDS = 0.01


class AwayInterests(LocalInterests):
    """`is_away`: out of reach."""

    is_away = False

    async def tenures(self, subjects: Sequence[str]) -> dict[str, list[str]] | None:
        return None if self.is_away else await super().tenures(subjects)

    async def end(self, tenure: str = "") -> bool:
        return not self.is_away and await super().end(tenure)


class World:
    """Nodes n1, n2 and n3, of which n1 routes; each remembers what it was told."""

    def __init__(self, clock: VirtualClock) -> None:
        self.log = ScriptedLog("ann", "ben")
        self.interests = AwayInterests(clock)
        self.heard: dict[str, list[tuple[str, int]]] = {"n1": [], "n2": [], "n3": []}
        self.calls: list[str] = []
        self.away: set[str] = set()
        self.metrics = Metrics(clock)
        self.router = Router(
            node_id="n1",
            interests=self.interests,
            directory=MemoryDirectory(self.log.tables),
            peers=self,
            gateways=lambda: ["n2", "n3"],
            deliver=lambda news: self._hear("n1", news),
            metrics=self.metrics,
        )

    def _hear(self, node_id: str, news: Sequence[Persisted]) -> None:
        self.heard[node_id] += [(item.chat_id, stored.sequence) for item in news for stored in item.positions]

    async def tell_news(self, node_id: str, news: Sequence[Persisted]) -> None:
        self.calls.append(node_id)
        await asyncio.sleep(CALL_SECONDS)
        if node_id in self.away:
            raise NodeUnreachable("on purpose")
        self._hear(node_id, news)

    async def register(self, **subjects: list[str]) -> None:
        for node_id, some in subjects.items():
            await self.interests.begin(f"{node_id}.1")
            await self.interests.register(f"{node_id}.1", some)

    def stored(self, chat_id: str, *sequences: int, told_by: str = "") -> Persisted:
        news = self.log.store(chat_id, *sequences)
        news.told_by = told_by
        return news


def routing(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def run(clock: VirtualClock) -> None:
        world = World(clock)
        try:
            await scenario(world)
        finally:
            await world.router.close()

    run_virtual(run)


async def keep(world: World, *tenures: str) -> None:
    """Those nodes renew their leases for ever."""
    while True:
        for tenure in tenures:
            await world.interests.renew(tenure)
        await asyncio.sleep(1)


def test_only_who_hears_a_chat_is_told() -> None:
    """A node whose clients are in none of the chats gets no call at all."""

    async def scenario(world: World) -> None:
        await world.register(n1=["chat_1"], n2=["chat_1", "chat_2"], n3=["chat_9"])
        await (await world.router.route([world.stored("chat_1", 2), world.stored("chat_2", 2)]))
        assert world.heard == {"n1": [("chat_1", 2)], "n2": [("chat_1", 2), ("chat_2", 2)], "n3": []}
        assert world.calls == ["n2"]

    routing(scenario)


def test_the_node_that_told_its_own_clients_is_left_out() -> None:
    """It delivered its commit within the process, at once."""

    async def scenario(world: World) -> None:
        await world.register(n2=["chat_1"], n3=["chat_1"])
        await (await world.router.route([world.stored("chat_1", 2, told_by="n2")]))
        assert (world.heard["n2"], world.heard["n3"]) == ([], [("chat_1", 2)])

    routing(scenario)


def test_who_joins_is_told_where_they_are() -> None:
    """A change of members goes to the nodes of the person whom it is about, too."""

    async def scenario(world: World) -> None:
        await world.register(n2=["chat_1"], n3=["user_7"])
        joining = StoredEntry(2, b"{}", Change(Action.JOINED, "user_7"))
        await (await world.router.route([Persisted("chat_1", 1, [joining])]))
        assert world.heard["n2"] == world.heard["n3"] == [("chat_1", 2)]

    routing(scenario)


def test_the_first_entry_goes_to_every_member() -> None:
    """A gateway that missed the notice of a new chat hears of it when something is said there."""

    async def scenario(world: World) -> None:
        await world.register(n2=["ann"], n3=["ben"])
        await (await world.router.route([world.stored("chat_1", 1)]))
        await (await world.router.route([world.stored("chat_1", 2)]))
        assert world.heard["n2"] == world.heard["n3"] == [("chat_1", 1)]

    routing(scenario)


def test_what_waits_goes_in_one_batch_and_in_order() -> None:
    """While a call is under way later chunks gather behind it."""

    async def scenario(world: World) -> None:
        await world.register(n2=["chat_1"])
        done = [await world.router.route([world.stored("chat_1", number)]) for number in range(2, 102)]
        await asyncio.gather(*done)
        assert world.heard["n2"] == [("chat_1", number) for number in range(2, 102)]
        assert len(world.calls) <= 3

    routing(scenario)


def test_an_event_is_done_when_the_node_has_confirmed() -> None:
    """Not before, however long it takes within the lease."""

    async def scenario(world: World) -> None:
        await world.register(n2=["chat_1"], n3=["chat_1"])
        world.away.add("n2")
        confirmed = await world.router.route([world.stored("chat_1", 2)])
        await asyncio.sleep(3)
        assert (confirmed.done(), world.heard["n3"]) == (False, [("chat_1", 2)])
        world.away.clear()
        await asyncio.sleep(2)
        assert (confirmed.done(), world.heard["n2"]) == (True, [("chat_1", 2)])

    routing(scenario)


def test_a_node_that_does_not_confirm_delays_nobody_else() -> None:
    """The others get later events at once, and the silent one loses its tenure in time."""

    async def scenario(world: World) -> None:
        await world.register(n2=["chat_1"], n3=["chat_1"])
        keeping = asyncio.create_task(keep(world, "n2.1", "n3.1"))
        world.away.add("n2")
        done = [await world.router.route([world.stored("chat_1", number)]) for number in range(2, 12)]
        await asyncio.sleep(0.5)
        assert world.heard["n3"] == [("chat_1", number) for number in range(2, 12)]
        assert not any(confirmed.done() for confirmed in done)
        await asyncio.sleep(UNCONFIRMED_SECONDS_MAX + 2)
        assert all(confirmed.done() for confirmed in done)
        assert await world.interests.renew("n2.1") is False
        assert await world.interests.renew("n3.1") is True
        keeping.cancel()

    routing(scenario)


def test_what_waits_for_a_node_is_bounded() -> None:
    """A router takes no more events than fit, until the node confirms or is given up."""

    async def scenario(world: World) -> None:
        await world.register(n2=["chat_1"])
        world.away.add("n2")
        large = StoredEntry(2, bytes(NODE_QUEUE_BYTES_MAX // 4))
        taken = 0

        async def route() -> None:
            nonlocal taken
            while True:
                await world.router.route([Persisted("chat_1", 1, [large])])
                taken += 1

        routing_on = asyncio.create_task(route())
        await asyncio.sleep(UNCONFIRMED_SECONDS_MAX / 2)
        assert 3 <= taken <= 5
        routing_on.cancel()
        await asyncio.wait([routing_on])

    routing(scenario)


def test_without_the_registry_every_gateway_is_told_and_nothing_is_done() -> None:
    """When it is back all tenures are ended first: who was not on the list reads its heads."""

    async def scenario(world: World) -> None:
        await world.register(n2=["chat_1"], n3=["chat_9"])
        world.interests.is_away = True
        confirmed = await world.router.route([world.stored("chat_1", 2)])
        later = await world.router.route([world.stored("chat_1", 3)])
        await asyncio.sleep(1)
        assert world.heard == {node_id: [("chat_1", 2), ("chat_1", 3)] for node_id in world.heard}
        assert (confirmed.done(), later.done()) == (False, False)
        world.interests.is_away = False
        await asyncio.sleep(router_module.REGISTRY_RETRY_SECONDS * 2)
        assert (confirmed.done(), later.done()) == (True, True)
        assert await world.interests.tenures(["chat_1"]) == {"chat_1": []}

    routing(scenario)


def test_a_node_given_up_while_the_registry_is_away_is_not_forgotten() -> None:
    """Its events are done only once its tenure is known to have ended."""

    async def scenario(world: World) -> None:
        await world.register(n2=["chat_1"])
        world.away.add("n2")
        confirmed = await world.router.route([world.stored("chat_1", 2)])
        world.interests.is_away = True
        await asyncio.sleep(UNCONFIRMED_SECONDS_MAX + 3)
        assert not confirmed.done()
        world.interests.is_away = False
        await asyncio.sleep(3)
        assert confirmed.done()

    routing(scenario)
