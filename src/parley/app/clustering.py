"""This node among the others: found by them, called by them, calling them. Imported only where configured."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from aiohttp import web

from parley.app.engines import Engine
from parley.bus.ports import Bus, Listener
from parley.chats.forwarding import AfterAnswers, Forwarding
from parley.chats.sending import Sending
from parley.clock import Clock
from parley.cluster.calls import SignedCalls
from parley.cluster.notices import Herald
from parley.cluster.peers import ClusterPeers
from parley.cluster.server import NodeServer
from parley.config import Config
from parley.ephemeral.ports import Ephemeral
from parley.errors import ConfigError
from parley.ids import Ids
from parley.sequencing.service import Sequencer
from parley.telemetry import Metrics


class Clustering:
    """`sending` is this node's own way into the log; None on a node that does not append.

    `listener` hears what the others tell, and what the bus does: news of a chat after its senders' answers.
    """

    def __init__(
        self,
        config: Config,
        node_id: str,
        *,
        clock: Clock,
        make_ids: Ids,
        metrics: Metrics,
        ephemeral: Ephemeral,
        sending: Sending | None,
        listener: Listener,
        is_ready: Callable[[], bool],
        routes: list[web.RouteDef],
    ) -> None:
        cluster = config.cluster
        self._calls = SignedCalls(cluster.secret, clock=clock, random_bytes=secrets.token_bytes)
        self._peers = peers = ClusterPeers(
            node_id, cluster.roles, ephemeral.nodes, self._calls, metrics, is_ready
        )
        self._herald = Herald(self._peers, metrics, clock, make_ids)
        self._server = NodeServer(
            cluster,
            clock=clock,
            sending=sending,
            listener=listener,
            routes=routes,
            is_listed=lambda: peers.is_listed,
        )
        self.forwarding = Forwarding(node_id, sending, self._peers, metrics)
        self._listener = AfterAnswers(listener, self.forwarding)

    async def start(self, bus: Bus) -> None:
        """Known to the others when it returns."""
        bus.subscribe(self._listener)
        bus.subscribe(self._herald)
        url = await self._server.start()
        await self._peers.start(url)

    async def withdraw(self) -> None:
        """The first step of going away: the others stop sending their drafts here."""
        await self._peers.withdraw()
        self._server.stop_accepting()

    async def stop(self) -> None:
        """The last step, when nothing is under way any more."""
        await self._herald.stop()
        await self._peers.stop()
        await self._server.close()
        await self._calls.close()


def sequencer_routes(config: Config, engine: Engine, clock: Clock, metrics: Metrics) -> list[web.RouteDef]:
    """What a node serves that also gives numbers: the Sequence Service, behind the node's own door."""
    if "sequencer" not in config.cluster.roles:
        return []
    allocator = getattr(engine, "allocator", None)
    if allocator is None or config.store.allocator == "sequencer":
        raise ConfigError('the role sequencer needs two_phase, with store.allocator = "dynamodb" or "redis"')
    sequencer = Sequencer(
        allocator,
        host=config.cluster.host,
        port=config.cluster.port,
        secret=config.cluster.secret,
        clock=clock,
        metrics=metrics,
    )
    return sequencer.routes()
