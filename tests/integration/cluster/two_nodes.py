"""Nodes in one process that speak over real sockets, above one store in memory."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator, Iterator, Sequence

from parley.bus.embedded import EmbeddedBus
from parley.bus.ports import Bus
from parley.clock import wall_clock
from parley.cluster.calls import SignedCalls
from parley.cluster.notices import NoticeSender
from parley.cluster.peers import ClusterPeers
from parley.cluster.server import NodeServer
from parley.config import ClusterConfig
from parley.core.cluster_keys import ClusterKeys
from parley.ephemeral.ports import Node
from parley.errors import Refused
from parley.ids import Ids
from parley.model import AppendResult, Draft, Head, Persisted
from parley.sending.forwarder import Forwarder
from parley.sending.pending import PendingSends
from parley.sending.sender import LocalSender
from parley.store.ports import Log
from parley.telemetry import Metrics
from tests.fakes import PER_CHAT
from tests.harness.faulty_log import FaultyLog
from tests.unit.cluster.fakes import FakeNodes
from tests.unit.sending.nodes import SharedLog

SECRET = "what all nodes of this cluster share"


class SlowLog(FaultyLog):
    """`open`: while it is cleared, appends wait, as on a slow store."""

    def __init__(self, store: SharedLog) -> None:
        super().__init__(store.tables)
        self.open = asyncio.Event()
        self.open.set()

    async def append(self, drafts: Sequence[Draft]) -> AppendResult:
        await self.open.wait()
        return await super().append(drafts)


class Hearing:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.heard: list[object] = []
        self.failures = 0

    def persisted(self, news: list[Persisted]) -> None:
        if self.failures:
            self.failures -= 1
            raise ValueError("on purpose")
        self.heard += news

    def joined(self, chat_id: str, head: Head, user_ids: list[str]) -> None:
        self.heard.append((chat_id, head, user_ids))

    def sessions_ended(self, session_ids: list[str]) -> None:
        if self.failures:
            self.failures -= 1
            raise ValueError("on purpose")
        self.heard.append(session_ids)


class RunningNode:
    """Everything of a node but its gateway and its engine."""

    def __init__(
        self,
        name: str,
        nodes: FakeNodes,
        store: SharedLog,
        secret: str = SECRET,
        log: Log | None = None,
        bus: Bus | None = None,
    ) -> None:
        self.name = name
        self.metrics = Metrics(wall_clock)
        self.bus = EmbeddedBus()
        self.log = SlowLog(store)
        pending = PendingSends()
        self.sender = LocalSender(log or self.log, bus or EmbeddedBus(), pending, self.metrics, PER_CHAT)
        self.hearing = Hearing()
        keys, self.target = ClusterKeys(secret), f"{name}.{random.getrandbits(64):x}"
        self.server = NodeServer(
            ClusterConfig(),
            keys=keys,
            target=self.target,
            clock=wall_clock,
            sender=self.sender,
            listener=self.hearing,
            hear=self.hearing.persisted,
        )
        self.calls = SignedCalls(keys, clock=wall_clock, random_bytes=random.randbytes)
        self.peers = ClusterPeers(
            node_id=name,
            roles=("gateway", "ingest"),
            nodes=nodes,
            calls=self.calls,
            metrics=self.metrics,
            target=self.target,
        )
        self.forwarder = Forwarder(name, self.sender, self.peers, pending, self.metrics)
        self.notices = NoticeSender(self.peers, self.metrics, wall_clock, Ids(random.getrandbits))
        self.bus.subscribe(self.notices)
        self.url = ""

    async def start(self) -> None:
        self.url = await self.server.start()
        self.sender.start()
        await self.peers.start(self.url)

    async def stop(self) -> None:
        """As a server does on SIGTERM."""
        await self.peers.withdraw()
        self.server.stop_accepting()
        await self.forwarder.stop()
        await self.sender.stop()
        await self.notices.stop()
        await self.server.close()
        await self.peers.stop()
        await self.calls.close()

    async def code(self, draft: Draft) -> str:
        """How a send through this node ends, in one word."""
        try:
            appended = await self.forwarder.send(draft)
        except Refused as error:
            return error.refusal.code
        return "deduplicated" if appended.deduplicated else "stored"

    def chat_of(self, owner: str) -> str:
        """A chat that this node takes to be somebody's."""
        return next(f"chat {n}" for n in range(1_000) if self.peers.owner_of(f"chat {n}") == owner)

    def owners(self) -> set[str | None]:
        return {self.peers.owner_of(f"chat {n}") for n in range(100)}


class Place:
    """Two nodes that know each other, and the store below them."""

    def __init__(self, second_secret: str = SECRET, log: Log | None = None, bus: Bus | None = None) -> None:
        self.nodes = FakeNodes()
        self.store = SharedLog()
        self.one = RunningNode("one", self.nodes, self.store)
        self.two = RunningNode("two", self.nodes, self.store, second_secret, log, bus)


@contextlib.asynccontextmanager
async def two_nodes(
    second_secret: str = SECRET, log: Log | None = None, bus: Bus | None = None
) -> AsyncIterator[Place]:
    """`log` and `bus`: what the second one has instead of memory."""
    place = Place(second_secret, log, bus)
    await place.one.start()
    await place.two.start()
    await place.one.peers.refresh()
    try:
        yield place
    finally:
        await place.one.stop()
        await place.two.stop()


@contextlib.contextmanager
def a_stopped_node(nodes: FakeNodes, name: str = "stopped") -> Iterator[Node]:
    """A node as SIGSTOP leaves it: the kernel takes its calls, and nobody answers them."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        node = nodes.listed[name] = Node(name, url, ("gateway", "ingest"))
        yield node
        del nodes.listed[name]
