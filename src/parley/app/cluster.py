"""One node of a cluster: its lease, its calls to other nodes, its server for theirs. Imported on demand."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from parley.bus.ports import Bus, Listener, ReplyAddress
from parley.clock import Clock
from parley.cluster.calls import SignedCalls
from parley.cluster.forget_calls import ForgetBodies, PeerForgets, forget_routes
from parley.cluster.notices import NoticeSender
from parley.cluster.operator_calls import PeerOperations, operator_routes
from parley.cluster.peers import DELIVERY, GATEWAY, ClusterPeers
from parley.cluster.router import Router
from parley.cluster.server import NodeServer
from parley.cluster.traces import PeerTraces
from parley.cluster.trust import client_tls, cluster_keys, server_tls
from parley.config import Config
from parley.core.cluster_keys import ClusterKeys
from parley.core.node_questions import NodeQuestion, NodeReply
from parley.ephemeral.ports import Ephemeral, Interests, Node
from parley.ephemeral.redis.check import check_redis
from parley.ephemeral.redis.engine import RedisEphemeral
from parley.errors import ConfigError
from parley.ids import Ids
from parley.model import Persisted
from parley.sending.forwarder import Forwarder
from parley.sending.pending import PendingSends
from parley.sending.sender import LocalSender
from parley.sequencing.service import Sequencer
from parley.store.ports import Directory, Engine
from parley.telemetry import Metrics

RUN_BYTES = 8
COMMAND_SECONDS_MAX = 3.0
"""How long a command waits for gateways to acknowledge what it tells them."""


class ClusterNode:
    """`local` is this node's own way into the log; None on a node that does not append.

    `listener` hears what the other nodes tell, and `hear` the entries that are routed here.
    """

    def __init__(
        self,
        config: Config,
        node_id: str,
        keys: ClusterKeys,
        *,
        clock: Clock,
        make_ids: Ids,
        metrics: Metrics,
        ephemeral: Ephemeral,
        local: LocalSender | None,
        pending: PendingSends,
        listener: Listener,
        hear: Callable[[list[Persisted]], None],
        is_ready: Callable[[], bool],
        routes: list[web.RouteDef],
    ) -> None:
        cluster = config.cluster
        self.target = target = f"{node_id}.{secrets.token_hex(RUN_BYTES)}"
        self.address = ReplyAddress("", target)
        """Where the other nodes reach this process, once it has started."""
        self.calls = SignedCalls(keys, clock=clock, random_bytes=secrets.token_bytes, tls=client_tls(cluster))
        self._peers = peers = ClusterPeers(
            node_id=node_id,
            roles=cluster.roles,
            nodes=ephemeral.nodes,
            calls=self.calls,
            metrics=metrics,
            is_ready=is_ready,
            target=target,
            since_ms=clock(),
        )
        self._notices = NoticeSender(self._peers, metrics, clock, make_ids)
        self._server = NodeServer(
            cluster,
            keys=keys,
            target=target,
            tls=server_tls(cluster),
            refused=metrics.unproven.labels("call").inc,
            clock=clock,
            sender=local,
            listener=listener,
            routes=routes,
            hear=hear,
            is_listed=lambda: peers.is_listed,
        )
        self.forwarder = Forwarder(node_id, local, self._peers, pending, metrics)
        self.traces = PeerTraces(ephemeral.nodes, self.calls, node_id)
        self.operations = PeerOperations(ephemeral.nodes, self.calls, node_id)

    def add_routes(self, routes: list[web.RouteDef]) -> None:
        """Other signed calls that this node answers, before it starts."""
        self._server.add_routes(routes)

    def answer_operators(self, answer: Callable[[NodeQuestion], NodeReply]) -> None:
        """What operators ask of this node by the others. Before it starts."""
        self.add_routes(operator_routes(answer))

    def others(self, role: str) -> list[Node]:
        """The other live nodes of a role, as far as this one knows."""
        return self._peers.others(role)

    def make_forgets(self, local: ForgetBodies) -> PeerForgets:
        """What tells every node of removed bodies, this one included. Before it starts."""
        self.add_routes(forget_routes(local))
        return PeerForgets(self._peers.told, self.calls, local)

    def is_told(self) -> bool:
        """Whether the other nodes tell this one of removed bodies."""
        return self._peers.is_told

    def has_router(self) -> bool:
        """Whether a node that is alive routes entries, as far as this one knows."""
        return self._peers.has(DELIVERY)

    def is_cut_off(self) -> bool:
        return self._peers.is_cut_off

    def make_router(
        self,
        node_id: str,
        interests: Interests,
        directory: Directory,
        deliver: Callable[[list[Persisted]], None] | None,
        metrics: Metrics,
    ) -> Router:
        """Of a node with the role delivery."""
        peers = self._peers
        return Router(
            node_id=node_id,
            interests=interests,
            directory=directory,
            peers=peers,
            gateways=lambda: [node.node_id for node in peers.others(GATEWAY)],
            deliver=deliver,
            metrics=metrics,
        )

    async def start(self, bus: Bus, forget_all: Callable[[], None]) -> None:
        """Known to the others when it returns.

        `forget_all` drops what this node keeps of bodies: it may not have been told that some are gone.
        """
        bus.subscribe(self._notices)
        url = await self._server.start()
        self.address = ReplyAddress(url, self.target)
        await self._peers.start(url, forget_all)

    async def withdraw(self) -> None:
        """The first step of going away: the others stop sending their drafts here."""
        await self._peers.withdraw()
        self._server.stop_accepting()

    async def stop(self) -> None:
        """The last step, when nothing is under way any more."""
        await self._notices.stop()
        await self._peers.stop()
        await self._server.close()
        await self.calls.close()


class CommandNotices:
    """Tells the gateways what a command has changed. The command itself is no node: it has no lease.

    `traces` asks every node what it remembers.
    """

    def __init__(self, config: Config, clock: Clock, make_ids: Ids, metrics: Metrics) -> None:
        keys = cluster_keys(config.cluster, config.cluster.host)
        self._ephemeral = RedisEphemeral(config.redis.url, keys, clock, prefix=config.redis.prefix)
        self._calls = SignedCalls(
            keys, clock=clock, random_bytes=secrets.token_bytes, tls=client_tls(config.cluster)
        )
        self.traces = PeerTraces(self._ephemeral.nodes, self._calls, "")
        peers = ClusterPeers(
            node_id="", roles=(), nodes=self._ephemeral.nodes, calls=self._calls, metrics=metrics
        )
        self._notices = NoticeSender(peers, metrics, clock, make_ids)

    @property
    def listener(self) -> Listener:
        return self._notices

    async def close(self) -> None:
        """Wait until every gateway has acknowledged, within limits: a gateway also finds out by reading."""
        await self._notices.stop(COMMAND_SECONDS_MAX)
        await self._calls.close()
        await self._ephemeral.close()


@asynccontextmanager
async def command_forgets(config: Config, clock: Clock) -> AsyncIterator[PeerForgets]:
    """Tells every node of bodies that a command removes. ConfigError when the list cannot be read."""
    keys = cluster_keys(config.cluster, config.cluster.host)
    ephemeral = RedisEphemeral(config.redis.url, keys, clock, prefix=config.redis.prefix)
    calls = SignedCalls(keys, clock=clock, random_bytes=secrets.token_bytes, tls=client_tls(config.cluster))

    async def listed() -> list[Node]:
        await check_redis(config.redis.url)  # without an answer the list would be empty
        return await ephemeral.nodes.alive()

    async def nothing_kept(chat_id: str, sequences: list[int] | None) -> None:
        """A command keeps no bodies."""

    try:
        yield PeerForgets(listed, calls, nothing_kept)
    finally:
        await calls.close()
        await ephemeral.close()


def sequencer_routes(
    config: Config, engine: Engine, keys: ClusterKeys, clock: Clock, metrics: Metrics
) -> list[web.RouteDef]:
    """What a node serves that also gives numbers: the Sequence Service, behind the node's own door."""
    if "sequencer" not in config.cluster.roles:
        return []
    allocator = engine.allocator
    if allocator is None or config.store.allocator == "sequencer":
        raise ConfigError('the role sequencer needs two_phase, with store.allocator = "store" or "redis"')
    sequencer = Sequencer(
        allocator,
        host=config.cluster.host,
        port=config.cluster.port,
        keys=keys,
        name="",
        clock=clock,
        metrics=metrics,
    )
    return sequencer.routes()
