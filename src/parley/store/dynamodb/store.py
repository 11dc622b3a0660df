"""The whole store on DynamoDB, put together. Only the composition root names it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from parley.clock import Clock
from parley.ids import Ids
from parley.model import Head
from parley.store.dynamodb.accounts import DynamoAccounts
from parley.store.dynamodb.appending import Desk
from parley.store.dynamodb.atomic import AtomicAppends
from parley.store.dynamodb.client import Dynamo
from parley.store.dynamodb.cursors import DynamoCursors
from parley.store.dynamodb.directory import DynamoDirectory
from parley.store.dynamodb.log import DynamoLog
from parley.store.dynamodb.outbox import DynamoOutbox
from parley.store.dynamodb.prefixes import Prefixes
from parley.store.dynamodb.relating import Relating
from parley.store.dynamodb.relations import DynamoRelations
from parley.store.dynamodb.schema import check_tables
from parley.store.dynamodb.standings import DynamoStandings
from parley.store.dynamodb.states import CHATS, COUNTERS, ChatStates
from parley.store.dynamodb.two_phase import Hold, TwoPhaseAppends
from parley.store.ports import APPEND_SECONDS_MAX, Allocator
from parley.telemetry import Metrics

SEAL_AFTER_MS = 10_000
"""How long a number may be taken without being written, on a store that other nodes write to as well."""


def nowhere(_: str) -> None:
    """No fault is injected at any point."""


class DynamoStore:
    """Log, directory, accounts, relations, cursors, standings and outbox over one set of tables.

    `allocator`: who gives the numbers in two_phase; None is `atomic`. `publishes`: whether there is a bus
    beyond this process, for which appends are marked. `append_seconds`: how long an append waits for others.
    """

    def __init__(
        self,
        dynamo: Dynamo,
        *,
        clock: Clock,
        ids: Ids,
        metrics: Metrics,
        allocator: Allocator | None = None,
        publishes: bool = False,
        seal_after_ms: int = SEAL_AFTER_MS,
        append_seconds: float = APPEND_SECONDS_MAX,
        random_bits: Callable[[int], int] = random.getrandbits,
        chance: Callable[[], float] = random.random,
        reach: Callable[[str], None] = nowhere,
        hold: Hold = nowhere,
    ) -> None:
        self.dynamo = dynamo
        is_atomic = allocator is None
        states = ChatStates(dynamo, is_atomic)
        desk = Desk(dynamo, states, clock, random_bits)
        prefixes = Prefixes(dynamo, states, clock, ids, metrics, seal_after_ms)
        self.outbox = DynamoOutbox(
            dynamo, COUNTERS if is_atomic else CHATS, None if is_atomic else self._heads
        )
        marks = self.outbox if publishes else None
        appends: AtomicAppends | TwoPhaseAppends
        if allocator is None:
            appends = AtomicAppends(desk, prefixes, ids, metrics, marks, chance, reach, append_seconds)
        else:
            appends = TwoPhaseAppends(
                desk, allocator, prefixes, ids, metrics, marks, reach, hold, append_seconds
            )
        self.log = DynamoLog(desk, appends, prefixes, metrics)
        self.directory = DynamoDirectory(dynamo, clock, ids, allocator)
        self.accounts = DynamoAccounts(dynamo, clock, ids)
        relating = Relating(dynamo, states, clock, ids)
        self.relations = DynamoRelations(dynamo, relating, self.directory.chat_ids_of)
        self.standings = DynamoStandings(dynamo)
        self.cursors = DynamoCursors(dynamo, self.log.heads)

    async def _heads(self, chat_ids: Sequence[str]) -> dict[str, Head]:
        return await self.log.heads(chat_ids)

    async def open(self) -> None:
        """Ready to serve; ConfigError in one sentence when the tables are not there or not these."""
        await self.dynamo.open()
        await self.dynamo.check()
        await check_tables(self.dynamo)

    async def close(self) -> None:
        await self.cursors.close()
        await self.outbox.close()
        await self.dynamo.close()
