"""The Cassandra engine: tables that many nodes read and write."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Sequence

from parley.clock import Clock
from parley.core.jobs import Job
from parley.ids import EVENT, Ids
from parley.model import Head
from parley.store.cassandra.append import MESSAGES_PER_BATCH_MAX, AppendPlanner
from parley.store.cassandra.atomic import CassandraAtomicAppends
from parley.store.cassandra.batches import ChatBatches
from parley.store.cassandra.chat_state import CassandraChatStates
from parley.store.cassandra.client import Cassandra
from parley.store.cassandra.consents import CassandraConsents
from parley.store.cassandra.counters import LogCounters
from parley.store.cassandra.cursors import CassandraCursors
from parley.store.cassandra.deliveries import CassandraDeliveryQueues
from parley.store.cassandra.diagnosis import diagnose
from parley.store.cassandra.directory import CassandraDirectory
from parley.store.cassandra.entry_changes import CassandraEntries
from parley.store.cassandra.inspection import CassandraInspection
from parley.store.cassandra.log import CassandraLog
from parley.store.cassandra.member_states import CassandraMemberStates
from parley.store.cassandra.moved import move_to_records
from parley.store.cassandra.outbox import CassandraOutbox
from parley.store.cassandra.overview import CassandraOverviews
from parley.store.cassandra.prefixes import CassandraPrefixes
from parley.store.cassandra.record_rows import RecordRows
from parley.store.cassandra.records import CassandraRecords
from parley.store.cassandra.repairs import CassandraRepairs
from parley.store.cassandra.schema import BUCKET_POSITIONS, check_tables, create_tables
from parley.store.cassandra.transfer import CassandraTransfer
from parley.store.cassandra.two_phase import CassandraTwoPhaseAppends
from parley.store.copy_mark import check_copied
from parley.store.ports import APPEND_SECONDS_MAX, Allocator, Batching
from parley.store.rows import Finding
from parley.store.shared import SEAL_AFTER_MS, check_allocator, probe_job
from parley.store.subscriptions import Subscriptions
from parley.store.two_phase import FaultPoint, no_fault
from parley.telemetry import Metrics

APPENDS_AT_ONCE_MAX = 64
REPLICATION = "{'class': 'NetworkTopologyStrategy', 'datacenter1': 3}"


class CassandraStore:
    """`allocator`: allocates in two_phase; None is `atomic`. The store closes it.

    `counters_elsewhere`: the allocator has its counters in another service, not in the fences.
    `publishes`: whether there is a shared bus, so that appends list their chats in the outbox.
    `replication`: of a keyspace that is created. `append_seconds`: how long an append waits for others.
    """

    feed = None

    def __init__(
        self,
        cassandra: Cassandra,
        *,
        clock: Clock,
        ids: Ids,
        metrics: Metrics,
        allocator: Allocator | None = None,
        counters_elsewhere: bool = False,
        publishes: bool = False,
        replication: str = REPLICATION,
        bucket_positions: int = BUCKET_POSITIONS,
        seal_after_ms: int = SEAL_AFTER_MS,
        append_seconds: float = APPEND_SECONDS_MAX,
        drafts_max: int = MESSAGES_PER_BATCH_MAX,
        random_bits: Callable[[int], int] = random.getrandbits,
        chance: Callable[[], float] = random.random,
        fault_point: FaultPoint = no_fault,
    ) -> None:
        self.cassandra = cassandra
        self.allocator = allocator
        self.batching = Batching(
            per_chat=True, appends_at_once_max=APPENDS_AT_ONCE_MAX, drafts_max=drafts_max
        )
        self.available = True
        self._replication = replication
        self._is_connected = False
        self.records = records = CassandraRecords(cassandra, clock, self._connect)
        self._states = states = CassandraChatStates(cassandra, records, allocator is None, bucket_positions)
        consents = CassandraConsents(cassandra, states, records, lambda: ids.next(EVENT, clock()))
        planner = AppendPlanner(states, consents, clock, random_bits)
        prefixes = CassandraPrefixes(states, clock, metrics, seal_after_ms)
        self.outbox = CassandraOutbox(states, self._heads, clock, ids)
        batches = ChatBatches(planner, self.outbox if publishes else None)
        appends: CassandraAtomicAppends | CassandraTwoPhaseAppends
        if allocator is None:
            appends = CassandraAtomicAppends(
                planner=planner,
                batches=batches,
                prefixes=prefixes,
                metrics=metrics,
                random=chance,
                fault_point=fault_point,
                append_seconds=append_seconds,
            )
        else:
            appends = CassandraTwoPhaseAppends(
                planner=planner,
                batches=batches,
                allocator=allocator,
                prefixes=prefixes,
                metrics=metrics,
                fault_point=fault_point,
                append_seconds=append_seconds,
            )
        self.log = CassandraLog(planner, appends, prefixes, metrics)
        self.directory = CassandraDirectory(cassandra, states, records, consents, allocator, chance)
        self.member_states = CassandraMemberStates(cassandra)
        self.cursors = CassandraCursors(cassandra)
        self.queues = CassandraDeliveryQueues(cassandra)
        self.overviews = CassandraOverviews(cassandra, planner.rows, self.log.heads, self.cursors)
        counters = LogCounters(states, allocator if counters_elsewhere else None)
        self.inspection = CassandraInspection(counters, planner.rows, self._connect)
        self.repairs = CassandraRepairs(counters, prefixes, planner.rows, self._connect, clock)
        kept = RecordRows(counters, consents, self.queues, clock)
        self.transfer = CassandraTransfer(kept, self._connect, counters, consents, clock)
        self.entries = CassandraEntries(states, self.queues)

    async def _heads(self, chat_ids: Sequence[str]) -> dict[str, Head]:
        return await self.log.heads(chat_ids)

    async def _connect(self) -> None:
        """For ports that may be used without `open`: ConfigError unless the tables have this version."""
        if not self._is_connected:
            await self.cassandra.connect()
            self._states.bucket_positions = await check_tables(self.cassandra)
            self._is_connected = True

    async def create(self, report: Callable[[str], None]) -> list[str]:
        await self.cassandra.connect()

        async def upgrade(version: int, report: Callable[[str], None]) -> None:
            await move_to_records(self.records, version, report)

        size = self._states.bucket_positions
        return await create_tables(self.cassandra, self._replication, report, size, upgrade)

    def diagnose(self) -> AsyncIterator[Finding]:
        return diagnose(self.cassandra)

    async def open(self) -> None:
        await self._connect()
        await check_copied(self.records)
        await check_allocator(self.allocator)

    def jobs(self, subscriptions: Subscriptions) -> list[Job]:
        """What other nodes write is routed to the gateways: no job here looks for it."""
        return [probe_job(self)]

    async def close(self) -> None:
        if self._is_connected:
            await self.cursors.close()
            await self.outbox.close()
        if self.allocator is not None:
            await self.allocator.close()
        await self.cassandra.close()
