"""The real hub, interests and router in virtual time, with everything between them failing at random.

No head is polled here: whatever a gateway does not get by routing it must find by what the protocol says.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from random import Random

import msgspec
import pytest

from parley.cluster.calls import NodeSilent, NodeUnreachable
from parley.cluster.router import Router
from parley.ephemeral.local_interests import LocalInterests
from parley.gateway.interests import InterestKeeper
from parley.gateway.subscribers import LiveChat, Subscribers
from parley.model import Persisted, Scope
from parley.telemetry import Metrics
from parley.wire.codec import JSON, Codec
from parley.wire.codes import Close
from tests.fakes import hub_over
from tests.harness.clock import VirtualClock, run_virtual
from tests.harness.scripted_log import ScriptedLog
from tests.memory.people import MemoryDirectory
from tests.seeds import try_seed

CHATS = tuple(f"chat_{number}" for number in range(150))
"""In each something is said once: a later entry would show what was lost before it."""
PEOPLE = {"n1": "ann", "n2": "ben"}
RUNS = 50
KINDS = ("gone", "forgotten", "away", "silent", "cut off", "worker cut off", "worker dead", "zombie")
KINDS_PER_RUN_MAX = 3
"""Few in each run: one fault may heal what another one broke."""
TROUBLE_SECONDS = 12.0
FAULT_PAUSE_SECONDS = 0.8
CALM_SECONDS = 40.0
"""Longer than a lease, a give-up and a recovery together."""


class Ear:
    """A connection that remembers every position."""

    def __init__(self, user_id: str) -> None:
        self.user_id, self.session_id, self.live = user_id, "ses_1", True
        self.device_id, self.heard_from_ms = "phone", 0
        self.scopes: frozenset[Scope] | None = None
        self.codec: Codec = JSON
        self.chats: dict[str, LiveChat] = {}
        self.heard: dict[str, list[int]] = defaultdict(list)

    def offer(self, data: bytes) -> None:
        frame = msgspec.json.decode(data[data.index(b"{") :])
        if frame["type"] == "messages":
            self.heard[frame["chat_id"]] += [one["sequence"] for one in frame["entries"]]

    def close(self, close: Close) -> None:
        raise AssertionError(close)

    async def verify(self) -> None:
        """Its session never ends."""


class FaultyInterests:
    """The registry as one node sees it: slow, and sometimes out of reach."""

    def __init__(self, shared: LocalInterests, random: Random) -> None:
        self._shared = shared
        self._random = random
        self.is_cut = False

    async def _travel(self) -> bool:
        await asyncio.sleep(self._random.random() * 0.05)
        return not self.is_cut

    async def begin(self, tenure: str) -> bool:
        return await self._travel() and await self._shared.begin(tenure) and await self._travel()

    async def renew(self, tenure: str) -> bool | None:
        lasts = await self._shared.renew(tenure) if await self._travel() else None
        return lasts if await self._travel() else None

    async def register(self, tenure: str, subjects: Sequence[str]) -> list[str] | None:
        added = await self._shared.register(tenure, subjects) if await self._travel() else None
        return added if await self._travel() else None

    async def release(self, tenure: str, subjects: Sequence[str]) -> None:
        if await self._travel():
            await self._shared.release(tenure, subjects)

    async def tenures(self, subjects: Sequence[str]) -> dict[str, list[str]] | None:
        found = await self._shared.tenures(subjects) if await self._travel() else None
        return found if await self._travel() else None

    async def end(self, tenure: str = "") -> bool:
        return await self._travel() and await self._shared.end(tenure) and await self._travel()

    async def suspect(self, seconds: float) -> None:
        """Heads are not polled here."""

    async def is_suspected(self) -> bool:
        return False


class SimulatedGateway:
    """One node with clients; `is_away`: calls do not reach it; `is_silent`: answers do not come back."""

    def __init__(self, world: "World", node_id: str) -> None:
        self.world = world
        self.node_id = node_id
        self.is_away = self.is_silent = False
        self.interests = FaultyInterests(world.shared, world.random)
        subscribers = Subscribers()
        self._number = 0
        self.keeper = InterestKeeper(
            self.interests,
            subscribers,
            self._new_tenure,
            Metrics(world.clock),
        )
        self.hub = hub_over(
            world.log,
            world.directory,
            Metrics(world.clock),
            interest=self.keeper,
            subscribers=subscribers,
        )
        self.ear = Ear(PEOPLE[node_id])
        self.connecting: asyncio.Task[None] | None = None

    def _new_tenure(self) -> str:
        self._number += 1
        return f"{self.node_id}.{self._number}"

    async def start(self) -> None:
        await self.keeper.start(self.hub.catch_up, lambda: True)
        await self.hub.subscribe(self.ear)

    def reconnect(self) -> None:
        if self.connecting is None or self.connecting.done():
            self.connecting = asyncio.create_task(self._reconnect())

    async def _reconnect(self) -> None:
        self.hub.unsubscribe(self.ear)
        await asyncio.sleep(self.world.random.random() * 4)
        self.ear = Ear(self.ear.user_id)
        await self.hub.subscribe(self.ear)

    async def tell(self, news: Sequence[Persisted]) -> None:
        await asyncio.sleep(self.world.random.random() * 0.02)
        if self.is_away:
            raise NodeUnreachable("on purpose")
        self.hub.persisted_elsewhere(list(news))
        await asyncio.sleep(self.world.random.random() * 0.02)
        if self.is_silent:
            raise NodeSilent("on purpose")

    def missing(self) -> list[str]:
        """What this node's client should have heard and has not, or not in order."""
        found = []
        for chat_id in CHATS:
            heard, head = self.ear.heard[chat_id], self.world.log.head(chat_id)
            last = heard[-1] if heard else self.ear.chats[chat_id].sent_through
            if heard != list(range(heard[0] if heard else 0, last + 1))[: len(heard)] or last != head:
                found.append(f"{self.node_id} {chat_id}: heard {heard}, the head is {head}")
        return found

    async def close(self) -> None:
        await self.keeper.close()
        await self.hub.close()


class SimulatedWorker:
    """A member of the group: reads the topic from the committed offset, and commits what is confirmed."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.interests = FaultyInterests(world.shared, world.random)
        self.router = Router(
            node_id="worker",
            interests=self.interests,
            directory=world.directory,
            peers=world,
            gateways=lambda: [node_id for node_id in world.gateways if world.random.random() < 0.7],
            deliver=None,
            metrics=Metrics(world.clock),
        )
        self._confirmed: dict[int, asyncio.Future[None]] = {}
        self._task = asyncio.create_task(self._work(world.committed))

    async def _work(self, at: int) -> None:
        while True:
            while at >= len(self._world.topic):
                self._world.stored.clear()
                await self._world.stored.wait()
            chunk = self._world.topic[at : at + self._world.random.randint(1, 3)]
            await asyncio.sleep(self._world.random.random() * 0.02)
            confirmed = await self.router.route(chunk)
            at += len(chunk)
            self._confirmed[at] = confirmed
            confirmed.add_done_callback(lambda _: self._commit())

    def _commit(self) -> None:
        """The offsets of all chunks that are done, up to the first that is not."""
        for at, confirmed in list(self._confirmed.items()):
            if not confirmed.done():
                return
            del self._confirmed[at]
            if self._world.worker is self:  # a broker refuses the offsets of who was put out of the group
                self._world.committed = at

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.router.close()


class World:
    def __init__(self, clock: VirtualClock, random: Random) -> None:
        self.clock, self.random = clock, random
        self._kinds = random.sample(KINDS, random.randint(1, KINDS_PER_RUN_MAX))
        self.log = ScriptedLog(*PEOPLE.values())
        self.directory = MemoryDirectory(self.log.tables)
        self.shared = LocalInterests(clock)
        self.topic: list[Persisted] = []
        self.stored = asyncio.Event()
        self.committed = 0
        for chat_id in CHATS:
            self.log.store(chat_id, 1)
        self.gateways = {node_id: SimulatedGateway(self, node_id) for node_id in PEOPLE}
        self.worker = SimulatedWorker(self)
        self.zombies: list[SimulatedWorker] = []
        self._healing: set[asyncio.Task[None]] = set()

    async def tell_news(self, node_id: str, news: Sequence[Persisted]) -> None:
        await self.gateways[node_id].tell(news)

    async def talk(self) -> None:
        """Every chat gets its entry."""
        for chat_id in self.random.sample(CHATS, len(CHATS)):
            await asyncio.sleep(self.random.random() * 2 * TROUBLE_SECONDS / len(CHATS))
            self.topic.append(self.log.store(chat_id, 2))
            self.stored.set()

    async def fail(self) -> None:
        """One thing goes wrong."""
        gateway = self.random.choice(list(self.gateways.values()))
        match self.random.choice(self._kinds):
            case "gone":
                gateway.reconnect()
            case "forgotten":
                await self.shared.end()
            case "away":
                self._for_a_while(gateway, "is_away")
            case "silent":
                self._for_a_while(gateway, "is_silent")
            case "cut off":
                self._for_a_while(gateway.interests, "is_cut")
            case "worker cut off":
                self._for_a_while(self.worker.interests, "is_cut")
            case "worker dead":
                await self.worker.close()
                self.worker = SimulatedWorker(self)
            case "zombie":
                self.zombies.append(self.worker)
                self.worker = SimulatedWorker(self)

    def _for_a_while(self, broken: SimulatedGateway | FaultyInterests, how: str) -> None:
        async def heal() -> None:
            await asyncio.sleep(self.random.random() * 10)
            setattr(broken, how, False)

        setattr(broken, how, True)
        task = asyncio.create_task(heal())
        self._healing.add(task)
        task.add_done_callback(self._healing.discard)

    async def close(self) -> None:
        for worker in (self.worker, *self.zombies):
            await worker.close()
        for gateway in self.gateways.values():
            await gateway.close()


def simulate(seed: int) -> list[str]:
    """What somebody misses after some minutes of trouble and a while of calm."""

    async def scenario(clock: VirtualClock) -> list[str]:
        world = World(clock, Random(seed))
        for gateway in world.gateways.values():
            await gateway.start()
        talking = asyncio.create_task(world.talk())
        while not talking.done():
            await asyncio.sleep(world.random.random() * 2 * FAULT_PAUSE_SECONDS)
            await world.fail()
        await asyncio.sleep(CALM_SECONDS)
        missing = [line for gateway in world.gateways.values() for line in gateway.missing()]
        if world.committed < len(world.topic):
            missing.append(f"committed {world.committed} of {len(world.topic)}")
        await world.close()
        return missing

    return run_virtual(scenario)


@pytest.mark.timeout(300)
def test_everybody_hears_everything_whatever_fails(seed: int) -> None:
    """Registries that forget, nodes and workers that die, are cut off or do not answer: nothing is lost."""
    for run in range(RUNS):
        try_seed()
        assert simulate(seed + run) == [], f"seed {seed + run}"
