"""Ingest through the bus: the two ends of the topic of drafts. Imported only where configured."""

from __future__ import annotations

import random

from aiohttp import web

from parley.app.cluster import ClusterNode
from parley.bus.drafts import STORE
from parley.bus.kafka.drafts import DraftConsumer, KafkaDraftQueue
from parley.clock import Clock
from parley.cluster.outcomes import OutcomeReturner, outcome_routes
from parley.config import Config
from parley.core.cluster_keys import ClusterKeys
from parley.core.jobs import Job
from parley.sending.bus_ingest import BusIngest
from parley.sending.bus_sender import BusSender
from parley.sending.pending import PendingSends
from parley.sending.sender import LocalSender
from parley.store.ports import Engine
from parley.telemetry import Metrics


class BufferedIngest:
    """`sender` takes the drafts of this node. A node that appends also consumes the topic."""

    def __init__(
        self,
        *,
        config: Config,
        keys: ClusterKeys,
        cluster: ClusterNode,
        local: LocalSender,
        engine: Engine,
        pending: PendingSends,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        topic = STORE.name_in(config.kafka)
        self._queue = KafkaDraftQueue(config.kafka, topic, keys)
        self.sender = BusSender(
            cluster.forwarder, self._queue, lambda: cluster.address, pending, metrics, clock
        )
        self._returner = OutcomeReturner(cluster.target, self.sender.settle, cluster.calls, metrics)
        self._consumer = None
        if "ingest" in config.cluster.roles:
            ingest = BusIngest(local, self._returner.give_back, lambda: engine.available, random.random)
            self._consumer = DraftConsumer(
                kafka=config.kafka,
                topic=topic,
                keys=keys,
                append=ingest.append,
                metrics=metrics,
                clock=clock,
                chance=random.random,
            )

    @property
    def routes(self) -> list[web.RouteDef]:
        return outcome_routes(self.sender.settle)

    def jobs(self) -> list[Job]:
        if self._consumer is None:
            return []
        return [
            Job(
                name="ingest",
                does="appends the drafts that wait in Kafka",
                run=self._consumer.run,
                interval_seconds=None,
                timeout_seconds=None,
            )
        ]

    async def start(self) -> None:
        await self._queue.start()

    async def stop(self) -> None:
        await self._returner.stop()
        await self._queue.stop()
