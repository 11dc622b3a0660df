"""Two whole nodes in the test's own process, on DynamoDB, Redis and Kafka, used like one server.

async def test_something(nodes: TwoNodes) -> None:
    async with nodes.serving() as served:
        ann, ben = await served.people("ann", "ben")        # each uses another node
"""

import asyncio
import itertools
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from parley import config
from parley.app.kafka import TOPICS
from parley.bus.kafka.admin import ensure_topics
from parley.clock import Clock, wall_clock
from parley.ephemeral.signals import UserChangedSignal
from parley.store.dynamodb.driver import Dynamo
from parley.store.dynamodb.schema import create_tables
from tests.clusters import shared_environment
from tests.harness.clients import HttpClient, Person, RawClient
from tests.integration.gateway.serving import Place, Served
from tests.services import dynamodb_endpoint
from tests.waiting import eventually

NAMES = ("n1", "n2")
Pick = Callable[[Person], Served]
"""Which node somebody uses now."""


class ServedByTwo(Served):
    """Both nodes behind the words for one; `pick` says whom to ask. By itself each person has a node."""

    def __init__(self, nodes: Sequence[Served], pick: Pick | None = None) -> None:
        super().__init__(nodes[0].app, nodes[0].port, nodes[0].session)
        self.nodes = nodes
        self._pick = pick or self._at_home
        self._homes: dict[str, Served] = {}
        self._turns = itertools.cycle(nodes)

    def _at_home(self, person: Person) -> Served:
        if person.user_id not in self._homes:
            self._homes[person.user_id] = next(self._turns)
        return self._homes[person.user_id]

    def as_(self, person: Person) -> HttpClient:
        return self._pick(person).as_(person)

    def client(self, person: Person, **options: Any) -> RawClient:
        return self._pick(person).client(person, **options)

    async def settle(self, heads: Mapping[str, int]) -> None:
        """What happened on either node is known on the other, up to these positions of chats."""
        await eventually(lambda: all(self._has_told(node) for node in self.nodes))
        await self._hear_signals()
        await eventually(lambda: all(self._has_told(node) for node in self.nodes))
        await eventually(lambda: all(self._has_heard(node, heads) for node in self.nodes))

    @staticmethod
    def _has_told(node: Served) -> bool:
        """No receipt waits to be told, to the other node or to a socket."""
        receipts = node.app.social.receipts
        return receipts._worker is None and not receipts._tasks

    @staticmethod
    def _has_heard(node: Served, heads: Mapping[str, int]) -> bool:
        chats = node.app.hub._chats
        return all(chats[chat_id].sent_through >= head for chat_id, head in heads.items() if chat_id in chats)

    async def _hear_signals(self) -> None:
        """What either node has told the other by now, the other has heard."""
        for teller, hearer in itertools.permutations(self.nodes):
            probe, heard = UserChangedSignal(f"probe {secrets.token_hex(4)}"), asyncio.Event()

            def hear(
                signal: UserChangedSignal, probe: UserChangedSignal = probe, heard: asyncio.Event = heard
            ) -> None:
                if signal == probe:
                    heard.set()

            end = hearer.app.ephemeral.signals.subscribe(UserChangedSignal, hear)
            teller.app.ephemeral.signals.publish(probe)
            await heard.wait()
            end()


class TwoNodes:
    """Data folders, tables, topics and keys of their own."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        dynamodb_endpoint()  # puts the credentials into the environment of this process
        self.settings = {
            **shared_environment(),
            "PARLEY_STORE_ENGINE": "dynamodb",
            "PARLEY_CLUSTER_SECRET": secrets.token_hex(16),
            "PARLEY_CLUSTER_HOST": "127.0.0.1",
            **settings,
        }
        self._settings = {name: value for name, value in self.settings.items() if not name.startswith("AWS_")}
        self._folder = folder
        self._is_made = False

    async def _make(self) -> None:
        """Tables and topics, once."""
        chosen, _ = config.load(None, self._settings)
        dynamo = Dynamo(chosen.dynamodb.endpoint, chosen.dynamodb.region, prefix=chosen.dynamodb.prefix)
        await dynamo.open()
        try:
            await create_tables(dynamo)
        finally:
            await dynamo.close()
        await ensure_topics(chosen.kafka, TOPICS)
        self._is_made = True

    @asynccontextmanager
    async def serving(
        self, clock: Clock = wall_clock, pick: Callable[[Sequence[Served]], Pick] | None = None
    ) -> AsyncIterator[ServedByTwo]:
        """Serve until the end of the block, once both know each other."""
        if not self._is_made:
            await self._make()
        async with AsyncExitStack() as stack:
            nodes = []
            for name in NAMES:
                place = Place(self._folder / name, {**self._settings, "PARLEY_CLUSTER_NODE": name})
                nodes.append(await stack.enter_async_context(place.serving(clock=clock)))
            await eventually(lambda: all(node.metric("parley_nodes") == len(NAMES) for node in nodes))
            yield ServedByTwo(nodes, pick(nodes) if pick is not None else None)
