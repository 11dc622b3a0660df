"""Cassandra under contract: one keyspace for each process of the run, which every test leaves empty."""

import asyncio
import random
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import cassandra.cluster
from redis import Redis

from parley.ids import EVENT, Ids
from parley.sequencing.redis import RedisAllocator, key_of
from parley.store.cassandra.allocator import CassandraAllocator
from parley.store.cassandra.client import Cassandra
from parley.store.cassandra.connection import Address, CassandraConnection, Row, Statement
from parley.store.cassandra.schema import (
    IMPORTED_IDS,
    KEYS,
    LOG,
    SCHEMA,
    create_tables,
)
from parley.store.cassandra.store import CassandraStore
from parley.store.ports import Allocator
from parley.telemetry import Metrics
from tests.contracts.cassandra_rows import CassandraRows
from tests.contracts.ports import PortsOfStore
from tests.harness.clock import VirtualClock
from tests.services import cassandra_address, redis_url

REPLICATION = "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1}"
BUCKET_POSITIONS = 64
"""Few, so that longer logs of the suites go from one bucket to the next."""
APPEND_SECONDS = 20.0
START_MS = 1_900_000_000_000
cassandra.cluster.random = random.Random().random
"""The driver's threads live as long as the process and draw delays when another process defines tables. From
the generator that all share, Hypothesis would take it for a property that draws outside its strategies."""
KEPT = frozenset({LOG, KEYS, IMPORTED_IDS, SCHEMA})
"""Read by id alone."""


class WatchedConnection(CassandraConnection):
    """Knows which tables were written to since they were last emptied."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self.written: set[str] = set()

    def send(self, statements: Sequence[Statement], *arguments: Any, **options: Any) -> None:
        self.written.update(filter(None, (written_table(cql) for cql, _ in statements)))
        super().send(statements, *arguments, **options)

    def execute(self, cql: str) -> list[Row]:
        self.written.update(filter(None, [written_table(cql)]))
        return super().execute(cql)

    def take_written(self) -> set[str]:
        taken, self.written = self.written, set()
        return taken


@cache
def written_table(cql: str) -> str | None:
    """The table that a statement writes to; None if it reads, or defines something."""
    words = cql.split(maxsplit=5)
    before = {"INSERT": "INTO", "DELETE": "FROM", "UPDATE": "UPDATE"}.get(words[0])
    return None if before is None else words[words.index(before) + 1]


@cache
def shared_connection() -> WatchedConnection:
    """One for all tests of this process: to connect takes longer than most of them. It creates the tables."""
    host, port = cassandra_address()
    keyspace = f"t{secrets.token_hex(5)}"
    connection = WatchedConnection(Address(contact_points=(host,), port=port, keyspace=keyspace))
    connection.connect()

    async def create() -> None:
        await create_tables(Cassandra(connection), REPLICATION, bucket_positions=BUCKET_POSITIONS)

    asyncio.run(create())
    return connection


def end_shared_connection() -> None:
    """Each table costs the server memory, so its keyspace goes with the process."""
    if shared_connection.cache_info().currsize:
        connection = shared_connection()
        connection.execute(f"DROP KEYSPACE {connection.address.keyspace}")
        connection.shutdown()
        shared_connection.cache_clear()


@cache
def redis_program() -> Redis:
    return Redis.from_url(redis_url())


class CassandraOpenStore(PortsOfStore):
    """`options` go to the store as they are, for tests that look inside."""

    def __init__(
        self, connection: CassandraConnection, allocator: str | None, options: dict[str, Any]
    ) -> None:
        self.connection = connection
        self.clock = VirtualClock(START_MS)
        self.ids = Ids(random.SystemRandom().getrandbits)
        self.metrics = Metrics(self.clock)
        self.rows = CassandraRows(connection, BUCKET_POSITIONS)
        self._allocator_name = allocator
        # One process: what it has not under way itself is abandoned, so nothing has to be waited for.
        self._options = {"seal_after_ms": 0, "append_seconds": APPEND_SECONDS, **options}
        self.allocator: Allocator | None = None
        self.store: CassandraStore

    async def open(self) -> None:
        cassandra = Cassandra(self.connection, is_shared=True)
        self.allocator = self._make_allocator(cassandra)
        self.store = CassandraStore(
            cassandra,
            clock=self.clock,
            ids=self.ids,
            metrics=self.metrics,
            allocator=self.allocator,
            bucket_positions=BUCKET_POSITIONS,
            **self._options,
        )
        await self.store.open()

    def _make_allocator(self, cassandra: Cassandra) -> Allocator | None:
        match self._allocator_name:
            case "cassandra":
                return CassandraAllocator(cassandra, clock=self.clock, random=random.random)
            case "redis":
                return RedisAllocator(redis_url())
        return None

    def make_operator(self) -> CassandraStore:
        cassandra = Cassandra(self.connection, is_shared=True)
        return CassandraStore(
            cassandra,
            clock=self.clock,
            ids=self.ids,
            metrics=Metrics(self.clock),
            allocator=self._make_allocator(cassandra),
            counters_elsewhere=self._allocator_name == "redis",
            bucket_positions=BUCKET_POSITIONS,
        )

    async def close(self) -> None:
        await self.kinds.close()
        await self.store.close()

    async def reopen(self) -> None:
        await self.close()
        await self.open()

    async def empty(self) -> None:
        """Leave nothing to the next test that it would find: its people and chats have other ids.

        For the same reason tombstones hide nothing of it.
        """
        written = shared_connection().take_written()
        await asyncio.gather(*(asyncio.to_thread(self.rows.empty, name) for name in sorted(written - KEPT)))

    # What another program does

    def counter(self, chat_id: str) -> int | None:
        if self._allocator_name == "redis":
            given: Any = redis_program().get(key_of(chat_id))
            return None if given is None else int(given)
        return self.rows.counter(chat_id)

    def set_counter(self, chat_id: str, counter: int | None) -> None:
        if self._allocator_name == "redis":
            if counter is None:
                redis_program().delete(key_of(chat_id))
            else:
                redis_program().set(key_of(chat_id), counter)
            return
        self.rows.set_counter(chat_id, counter)

    def durable_positions(self, user_id: str, chat_id: str) -> tuple[int, int]:
        return self.rows.positions(user_id, chat_id)

    def remove_member(self, chat_id: str, user_id: str) -> None:
        self.rows.remove_member(chat_id, user_id, self.ids.next(EVENT, self.clock()))

    def abandon(self, chat_id: str, sequence: int, allocated_at_ms: int) -> None:
        self.set_counter(chat_id, sequence)


class CassandraEngine:
    def __init__(self, allocator: str | None) -> None:
        self.sequencing = "atomic" if allocator is None else "two_phase"
        self._allocator = allocator

    @asynccontextmanager
    async def opened(self, **options: Any) -> AsyncIterator[CassandraOpenStore]:
        connection = await asyncio.to_thread(shared_connection)
        store = CassandraOpenStore(connection, self._allocator, options)
        await store.open()
        try:
            yield store
        finally:
            await store.close()
            await store.empty()
