"""What operators see of the servers: jobs, nodes, topics, and the numbers that a console shows first."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING

from prometheus_client import Counter, Histogram

from parley import __version__
from parley.bus.ports import TopicState
from parley.clock import Clock
from parley.core.jobs import Job, JobRecord
from parley.ephemeral.ports import Ephemeral, Node
from parley.errors import StoreError
from parley.gateway.known_operators import STORE_SECONDS_MAX
from parley.gateway.series import STEP_SECONDS, SeriesRecorder
from parley.jobs.supervisor import Supervisor
from parley.records.account_admin import AccountAdmin
from parley.store.damage import note_damage
from parley.store.rows import StoreCounts
from parley.telemetry import Metrics

if TYPE_CHECKING:
    from parley.gateway.connection import Connection

SAMPLE_SECONDS = STEP_SECONDS
SAMPLES_MAX = 13
"""The rate of messages is that of the last minute."""
STALLED_SECONDS_MAX = 10.0
"""A bus that has taken nothing of what waits for so long is not available."""
STORED = "parley_messages_stored_total"


class MessageRate:
    """Messages that this node stored in a second, over the last minute or since its start."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._samples: deque[tuple[float, float]] = deque(maxlen=SAMPLES_MAX)

    def note(self) -> None:
        stored = self._metrics.registry.get_sample_value(STORED) or 0.0
        self._samples.append((asyncio.get_running_loop().time(), stored))

    @property
    def per_second(self) -> float:
        if len(self._samples) < 2:
            return 0.0
        (began, before), (ended, after) = self._samples[0], self._samples[-1]
        return (after - before) / (ended - began) if ended > began else 0.0


class OperatorView:
    """`connections` and `store_available` are those of this node; so is the rate of messages."""

    def __init__(
        self,
        node_id: str,
        roles: Sequence[str],
        *,
        supervisor: Supervisor,
        ephemeral: Ephemeral,
        admin: AccountAdmin,
        topics: Callable[[], Awaitable[list[TopicState]]],
        connections: Collection[Connection],
        store_available: Callable[[], bool],
        drain: Callable[[], None],
        webhooks_reached: Callable[[], dict[str, int]],
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self.drain = drain
        self.webhooks_reached = webhooks_reached
        """When each was last reached from this node, in milliseconds."""
        self.is_draining = False
        self.loop_delay_seconds = 0.0
        """How long others had to wait for the event loop, when that was last measured."""
        self.node_id = node_id
        self.topics = topics
        self.connections = connections
        self._store_available = store_available
        self.clock = clock
        self.rate = MessageRate(metrics)
        self.series = SeriesRecorder(
            {
                "connections": lambda: float(len(connections)),
                "lag": lambda: float(self.lag),
                "persist_seconds_p50": metrics.persist.p50,
                "persist_seconds_p99": metrics.persist.p99,
                "dead_letters": lambda: self._value("dlq_size"),
                "outbox_bytes": lambda: self._value("parley_outbox_bytes"),
                "webhooks_paused": lambda: self._value("parley_webhooks_paused"),
                "memory_bytes": lambda: float(self.memory_bytes),
                "loop_delay_seconds": lambda: self.loop_delay_seconds,
            },
            {
                "requests_per_second": lambda: _sum(metrics.requests),
                "refusals_per_second": lambda: _sum(metrics.refusals),
                "deliveries_per_second": lambda: _sum(metrics.delivery_outcomes, "delivered"),
                "delivery_failures_per_second": lambda: _sum(metrics.delivery_outcomes, "retried"),
                "pushes_per_second": lambda: _sum(metrics.push_outcomes),
                "messages_per_second": lambda: self._value(STORED),
                "voids_per_second": lambda: self._value("parley_voids_sealed_total"),
                "commit_failures_per_second": lambda: self._value("parley_commit_failures_total"),
            },
            {"fanout_seconds": lambda: _sum_and_count(metrics.fanout_seconds)},
        )
        self.last_runs = supervisor.last_runs
        self.run_soon = supervisor.run_soon
        self._itself = Node(node_id, "", tuple(roles), version=__version__, since_ms=clock())
        self._supervisor = supervisor
        self._ephemeral = ephemeral
        self._admin = admin
        self._metrics = metrics
        self._counts = StoreCounts(0, 0)

    @property
    def job(self) -> Job:
        return Job(
            name="message_rate",
            does="keeps the numbers of the last hour that operators see",
            run=self._sample,
            interval_seconds=SAMPLE_SECONDS,
            timeout_seconds=None,
            first_seconds=0.0,
        )

    async def _sample(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.sleep(0)
        self.loop_delay_seconds = loop.time() - began
        self.rate.note()
        self.series.sample()

    def _value(self, name: str) -> float:
        return self._metrics.registry.get_sample_value(name) or 0.0

    @property
    def memory_bytes(self) -> int:
        """What the process has of the machine's memory."""
        return round(self._value("process_resident_memory_bytes"))

    @property
    def rings(self) -> dict[str, dict[str, int]]:
        """What became of notifications since this node started, by provider."""
        found: dict[str, dict[str, int]] = {}
        for metric in self._metrics.push_outcomes.collect():
            for sample in metric.samples:
                if sample.name.endswith("_total") and sample.value:
                    outcomes = found.setdefault(sample.labels["provider"], {})
                    outcomes[sample.labels["outcome"]] = round(sample.value)
        return found

    async def jobs(self) -> list[JobRecord]:
        return await self._supervisor.records()

    async def nodes(self) -> list[Node]:
        """The nodes of the cluster, by id; this one is among them also where it has no others."""
        alive = {node.node_id: node for node in await self._ephemeral.nodes.alive()}
        found = {self.node_id: self._itself} | alive
        return [node for _, node in sorted(found.items())]

    async def counts(self) -> StoreCounts:
        """Those of the store; while it does not answer, the last that it gave this node."""
        try:
            async with asyncio.timeout(STORE_SECONDS_MAX):
                self._counts = await self._admin.counts()
        except (StoreError, TimeoutError) as error:
            note_damage(self._metrics, error)
        return self._counts

    def store_available(self) -> bool:
        """Whether it can be used, and writes have not met damage."""
        return self._store_available() and not self._metrics.damage.stops_writes(self._metrics.now())

    @property
    def lag(self) -> int:
        """Events that the readers on this node have not handled yet."""
        return round(sum(lag for _, lag in self._metrics.consumer_lag.values()))

    @property
    def ephemeral_available(self) -> bool:
        return self._ephemeral.available

    @property
    def bus_available(self) -> bool:
        stalled = self._metrics.publish_stalled_seconds.values()
        return all(seconds < STALLED_SECONDS_MAX for _, seconds in stalled)


def _sum_and_count(histogram: Histogram) -> tuple[float, float]:
    samples = [sample for metric in histogram.collect() for sample in metric.samples]
    spent = sum(sample.value for sample in samples if sample.name.endswith("_sum"))
    return spent, sum(sample.value for sample in samples if sample.name.endswith("_count"))


def _sum(counter: Counter, outcome: str = "") -> float:
    """Of all its labels; of one outcome."""
    return sum(
        sample.value
        for metric in counter.collect()
        for sample in metric.samples
        if sample.name.endswith("_total") and outcome in ("", sample.labels.get("outcome"))
    )
