"""The DynamoDB engine: tables that many nodes read and write."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Sequence

from parley.clock import Clock
from parley.core.jobs import Job
from parley.ids import Ids
from parley.model import Head
from parley.store.copy_mark import check_copied
from parley.store.dynamodb.append import MESSAGES_PER_TRANSACTION_MAX, Planner
from parley.store.dynamodb.atomic import AtomicAppends
from parley.store.dynamodb.chat_state import DynamoChatStates
from parley.store.dynamodb.consents import DynamoConsents
from parley.store.dynamodb.counters import Counters
from parley.store.dynamodb.cursors import DynamoCursors
from parley.store.dynamodb.delivery_queues import DynamoDeliveryQueues
from parley.store.dynamodb.diagnosis import diagnose
from parley.store.dynamodb.directory import DynamoDirectory
from parley.store.dynamodb.driver import Dynamo
from parley.store.dynamodb.entry_changes import DynamoEntries
from parley.store.dynamodb.inspection import DynamoInspection
from parley.store.dynamodb.keys import IdempotencyKeys
from parley.store.dynamodb.log import DynamoLog
from parley.store.dynamodb.member_states import DynamoMemberStates
from parley.store.dynamodb.moved import move_to_records
from parley.store.dynamodb.outbox import DynamoOutbox
from parley.store.dynamodb.overview import DynamoOverviews
from parley.store.dynamodb.prefixes import DynamoPrefixes
from parley.store.dynamodb.records import DynamoRecords
from parley.store.dynamodb.repairs import DynamoRepairs
from parley.store.dynamodb.schema import CHATS, COUNTERS, check_tables, check_version, create_tables
from parley.store.dynamodb.transfer import DynamoTransfer
from parley.store.dynamodb.two_phase import TwoPhaseAppends
from parley.store.ports import APPEND_SECONDS_MAX, Allocator, Batching
from parley.store.rows import Finding
from parley.store.shared import SEAL_AFTER_MS, check_allocator, probe_job
from parley.store.subscriptions import Subscriptions
from parley.store.two_phase import FaultPoint, no_fault
from parley.telemetry import Metrics

APPENDS_AT_ONCE_MAX = 256


class DynamoStore:
    """`allocator`: allocates in two_phase; None is `atomic`. The store closes it.

    `counters_elsewhere`: the allocator has its counters in another service, not in `chat_counters`.
    `publishes`: whether there is a shared bus, so that appends list their chats in the outbox.
    `append_seconds`: how long an append waits for others.
    """

    feed = None

    def __init__(
        self,
        dynamo: Dynamo,
        *,
        clock: Clock,
        ids: Ids,
        metrics: Metrics,
        allocator: Allocator | None = None,
        counters_elsewhere: bool = False,
        publishes: bool = False,
        seal_after_ms: int = SEAL_AFTER_MS,
        append_seconds: float = APPEND_SECONDS_MAX,
        drafts_max: int = MESSAGES_PER_TRANSACTION_MAX,
        random_bits: Callable[[int], int] = random.getrandbits,
        chance: Callable[[], float] = random.random,
        fault_point: FaultPoint = no_fault,
    ) -> None:
        self.dynamo = dynamo
        self.allocator = allocator
        self.batching = Batching(
            per_chat=True, appends_at_once_max=APPENDS_AT_ONCE_MAX, drafts_max=drafts_max
        )
        self.available = True
        is_atomic = allocator is None
        self.records = DynamoRecords(dynamo, clock, ids, self._connect)
        states = DynamoChatStates(dynamo, self.records, is_atomic)
        consents = DynamoConsents(dynamo, self.records)
        keys = IdempotencyKeys(dynamo, clock, is_atomic)
        planner = Planner(dynamo, states, consents, keys, clock, random_bits)
        prefixes = DynamoPrefixes(dynamo, states, clock, ids, metrics, seal_after_ms)
        self.outbox = DynamoOutbox(
            dynamo, COUNTERS if is_atomic else CHATS, None if is_atomic else self._heads
        )
        marks = self.outbox if publishes else None
        appends: AtomicAppends | TwoPhaseAppends
        if allocator is None:
            appends = AtomicAppends(
                planner=planner,
                prefixes=prefixes,
                make_ids=ids,
                metrics=metrics,
                marks=marks,
                random=chance,
                fault_point=fault_point,
                append_seconds=append_seconds,
            )
        else:
            appends = TwoPhaseAppends(
                planner=planner,
                allocator=allocator,
                prefixes=prefixes,
                make_ids=ids,
                metrics=metrics,
                marks=marks,
                fault_point=fault_point,
                append_seconds=append_seconds,
            )
        self.log = DynamoLog(planner, appends, prefixes, metrics)
        self.directory = DynamoDirectory(dynamo, states, consents, clock, ids, allocator)
        self.member_states = DynamoMemberStates(dynamo)
        self.cursors = DynamoCursors(dynamo)
        self.queues = DynamoDeliveryQueues(dynamo)
        self.overviews = DynamoOverviews(dynamo, self.log.heads, self.cursors)
        marks_table = COUNTERS if is_atomic else CHATS
        self.entries = DynamoEntries(dynamo, states, clock, ids, marks_table)
        counters = Counters(dynamo, allocator if counters_elsewhere else None, is_atomic)
        self.inspection = DynamoInspection(dynamo, counters, clock)
        self.repairs = DynamoRepairs(dynamo, self._connect, counters, clock, random_bits)
        self.transfer = DynamoTransfer(dynamo, self._connect, counters, clock, ids)
        self._is_connected = False

    async def _heads(self, chat_ids: Sequence[str]) -> dict[str, Head]:
        return await self.log.heads(chat_ids)

    async def _connect(self) -> None:
        """For ports that may be used without `open`: ConfigError unless the tables have this version."""
        if not self._is_connected:
            await self.dynamo.open()
            await self.dynamo.check()
            await check_version(self.dynamo)
            self._is_connected = True

    async def create(self, report: Callable[[str], None]) -> list[str]:
        await self.dynamo.open()
        return await create_tables(self.dynamo, report, move_to_records)

    def diagnose(self) -> AsyncIterator[Finding]:
        return diagnose(self.dynamo)

    async def open(self) -> None:
        await self.dynamo.open()
        await self.dynamo.check()
        await check_tables(self.dynamo)
        await check_copied(self.records)
        await check_allocator(self.allocator)

    def jobs(self, subscriptions: Subscriptions) -> list[Job]:
        """What other nodes write is routed to the gateways: no job here looks for it."""
        return [probe_job(self)]

    async def close(self) -> None:
        await self.cursors.close()
        await self.records.close()
        await self.outbox.close()
        if self.allocator is not None:
            await self.allocator.close()
        await self.dynamo.close()
