"""One node of a cluster: its lease, its calls to other nodes, its server for theirs. Imported on demand."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from aiohttp import web

from parley.bus.ports import Bus, Listener
from parley.chats.forwarder import Forwarder
from parley.chats.pending import PendingSends
from parley.chats.sender import LocalSender
from parley.clock import Clock
from parley.cluster.calls import SignedCalls
from parley.cluster.notices import NoticeSender
from parley.cluster.peers import ClusterPeers
from parley.cluster.server import NodeServer
from parley.cluster.trust import client_tls, cluster_keys, server_tls
from parley.config import Config
from parley.core.cluster_keys import ClusterKeys
from parley.ephemeral.ports import Ephemeral
from parley.ephemeral.redis.engine import RedisEphemeral
from parley.errors import ConfigError
from parley.ids import Ids
from parley.sequencing.service import Sequencer
from parley.store.ports import Engine
from parley.telemetry import Metrics

RUN_BYTES = 8
COMMAND_SECONDS_MAX = 3.0
"""How long a command waits for gateways to acknowledge what it tells them."""


class ClusterNode:
    """`local` is this node's own way into the log; None on a node that does not append.

    `listener` hears what the other nodes tell.
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
        is_ready: Callable[[], bool],
        routes: list[web.RouteDef],
    ) -> None:
        cluster = config.cluster
        target = f"{node_id}.{secrets.token_hex(RUN_BYTES)}"
        self._calls = SignedCalls(
            keys, clock=clock, random_bytes=secrets.token_bytes, tls=client_tls(cluster)
        )
        self._peers = peers = ClusterPeers(
            node_id, cluster.roles, ephemeral.nodes, self._calls, metrics, is_ready, target, clock()
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
            is_listed=lambda: peers.is_listed,
        )
        self.forwarder = Forwarder(node_id, local, self._peers, pending, metrics)

    async def start(self, bus: Bus) -> None:
        """Known to the others when it returns."""
        bus.subscribe(self._notices)
        url = await self._server.start()
        await self._peers.start(url)

    async def withdraw(self) -> None:
        """The first step of going away: the others stop sending their drafts here."""
        await self._peers.withdraw()
        self._server.stop_accepting()

    async def stop(self) -> None:
        """The last step, when nothing is under way any more."""
        await self._notices.stop()
        await self._peers.stop()
        await self._server.close()
        await self._calls.close()


class CommandNotices:
    """Tells the gateways what a command has changed. The command itself is no node: it has no lease."""

    def __init__(self, config: Config, clock: Clock, make_ids: Ids, metrics: Metrics) -> None:
        keys = cluster_keys(config.cluster, config.cluster.host)
        self._ephemeral = RedisEphemeral(config.redis.url, keys, clock, prefix=config.redis.prefix)
        self._calls = SignedCalls(
            keys, clock=clock, random_bytes=secrets.token_bytes, tls=client_tls(config.cluster)
        )
        peers = ClusterPeers("", (), self._ephemeral.nodes, self._calls, metrics)
        self._notices = NoticeSender(peers, metrics, clock, make_ids)

    @property
    def listener(self) -> Listener:
        return self._notices

    async def close(self) -> None:
        """Wait until every gateway has acknowledged, within limits: a gateway also finds out by reading."""
        await self._notices.stop(COMMAND_SECONDS_MAX)
        await self._calls.close()
        await self._ephemeral.close()


def sequencer_routes(
    config: Config, engine: Engine, keys: ClusterKeys, clock: Clock, metrics: Metrics
) -> list[web.RouteDef]:
    """What a node serves that also gives numbers: the Sequence Service, behind the node's own door."""
    if "sequencer" not in config.cluster.roles:
        return []
    allocator = engine.allocator
    if allocator is None or config.store.allocator == "sequencer":
        raise ConfigError('the role sequencer needs two_phase, with store.allocator = "dynamodb" or "redis"')
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
