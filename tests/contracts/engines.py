"""The engines under contract. A new engine is one more class and one more name in `ENGINES`.

A test opens the store itself, because ports belong to a running loop:

    async def test_something(engine: Engine) -> None:
        async with engine.opened() as store:
            await store.log.append([...])
            await store.reopen()
"""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path
from typing import Any, Protocol

import apsw

from parley.ids import Ids
from parley.records.account_admin import AccountAdmin
from parley.records.accounts import Accounts
from parley.records.attachments import Attachments
from parley.records.deliveries import DeliveryRecords
from parley.records.invitations import Invitations
from parley.records.kinds import Kinds
from parley.records.push import PushRecords
from parley.records.relations import Relations
from parley.records.sessions import Sessions
from parley.store import ports
from parley.store.folder import DATABASE_NAME
from parley.store.sqlite.store import SqliteStore
from parley.store.tables import R, RecordTable
from parley.telemetry import Metrics
from tests.contracts.cassandra_engine import CassandraEngine
from tests.contracts.dynamodb_engine import DynamoEngine
from tests.contracts.ports import PortsOfStore
from tests.contracts.row_editors import MemoryRows, RowEditor, SqliteRows
from tests.harness.clock import VirtualClock
from tests.memory.engine import MemoryStore
from tests.memory.tables import Tables

FOREIGN_BUSY_MS_MAX = 5_000


class OpenStore(ports.Store, Protocol):
    """The ports of one engine, and what another program may do to its store meanwhile."""

    clock: VirtualClock
    ids: Ids
    metrics: Metrics

    @property
    def accounts(self) -> Accounts:
        """People."""
        ...

    @property
    def account_admin(self) -> AccountAdmin:
        """What operators do to people."""
        ...

    @property
    def sessions(self) -> Sessions:
        """The sessions of devices."""
        ...

    @property
    def deliveries(self) -> DeliveryRecords:
        """Only of engines that have them."""
        ...

    @property
    def push(self) -> PushRecords:
        """What an engine keeps for push."""
        ...

    @property
    def attachments(self) -> Attachments:
        """The files that messages refer to."""
        ...

    @property
    def records(self) -> ports.Records:
        """The tables of records."""
        ...

    @property
    def relations(self) -> Relations:
        """The contacts and blocks of people."""
        ...

    @property
    def invitations(self) -> Invitations:
        """Who was invited to chats."""
        ...

    @property
    def kinds(self) -> Kinds:
        """What is in the tables of records."""
        ...

    @property
    def engine(self) -> ports.Engine:
        """The engine that is open."""
        ...

    @property
    def rows(self) -> RowEditor:
        """What a person with the store's own tools can do to it."""
        ...

    def operator(self) -> AbstractAsyncContextManager[ports.Engine]:
        """The engine as a command has it: made beside this one, not opened, closed at the end."""
        ...

    async def reopen(self) -> None:
        """Close it properly, and open what it left behind."""
        ...

    def counter(self, chat_id: str) -> int | None:
        """What another program finds as the counter of a chat."""
        ...

    def set_counter(self, chat_id: str, counter: int | None) -> None:
        """Another program writes the counter of a chat, or deletes it."""
        ...

    def recover_counter(self, chat_id: str) -> None:
        """The operator's procedure puts a lost counter back."""
        ...

    def load(self, table: RecordTable[R], *records: R) -> None:
        """Write these as they are, as an operator would."""
        ...

    def breaches(self) -> list[str]:
        """What the operator's check finds wrong."""
        ...

    def durable_positions(self, user_id: str, chat_id: str) -> tuple[int, int]:
        """What another program finds as how far a person's messages are delivered and read."""
        ...

    def remove_member(self, chat_id: str, user_id: str) -> None:
        """Another program takes somebody out of a chat."""
        ...

    def abandon(self, chat_id: str, sequence: int, allocated_at_ms: int) -> None:
        """A process took the next number of a chat and died before it wrote anything there."""
        ...


class Engine(Protocol):
    """One way to keep things, in one sequencing mode."""

    sequencing: str

    def opened(self, **options: Any) -> AbstractAsyncContextManager[OpenStore]:
        """A fresh, empty store; it is closed at the end. `options` go to it as they are."""
        ...


class SqliteOpenStore(PortsOfStore):
    """SQLite; `options` go to the store as they are, for tests that look inside."""

    def __init__(self, folder: Path, sequencing: str, options: dict[str, Any]) -> None:
        self.clock = VirtualClock()
        self.ids = Ids(random.Random(7).getrandbits)
        self.metrics = Metrics(self.clock)
        self._folder = folder
        self._options = {"sequencing": sequencing, **options}
        self.store: SqliteStore

        self.rows = SqliteRows(self.foreign)

    async def open(self) -> None:
        self.store = SqliteStore(
            self._folder, clock=self.clock, ids=self.ids, metrics=self.metrics, **self._options
        )
        await self.store.open()

    def make_operator(self) -> SqliteStore:
        return SqliteStore(
            self._folder,
            clock=self.clock,
            ids=self.ids,
            metrics=Metrics(self.clock),
            sequencing=self._options["sequencing"],
            beside=True,
        )

    async def close(self) -> None:
        await self.kinds.close()
        await self.store.close()

    async def reopen(self) -> None:
        await self.close()
        await self.open()

    def foreign(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """One statement as another program would make it, on a connection of its own.

        With the store's own SQLite: a second copy of it in one process would break the first one's locks.
        """
        with closing(apsw.Connection(str(self._folder / DATABASE_NAME))) as connection:
            connection.set_busy_timeout(FOREIGN_BUSY_MS_MAX)
            return connection.execute(sql, values).fetchall()

    def counter(self, chat_id: str) -> int | None:
        found = self.foreign("SELECT sequence_counter FROM chat_counters WHERE chat_id = ?", (chat_id,))
        return int(found[0][0]) if found else None

    def set_counter(self, chat_id: str, counter: int | None) -> None:
        if counter is None:
            self.foreign("DELETE FROM chat_counters WHERE chat_id = ?", (chat_id,))
        else:
            self.foreign(
                "INSERT INTO chat_counters (chat_id, sequence_counter) VALUES (?, ?)"
                " ON CONFLICT DO UPDATE SET sequence_counter = excluded.sequence_counter",
                (chat_id, counter),
            )

    def durable_positions(self, user_id: str, chat_id: str) -> tuple[int, int]:
        ((delivered, read),) = self.foreign(
            "SELECT last_acked_sequence, read_up_to FROM delivery_state WHERE user_id = ? AND chat_id = ?",
            (user_id, chat_id),
        )
        return delivered, read

    def remove_member(self, chat_id: str, user_id: str) -> None:
        self.foreign("DELETE FROM chat_memberships WHERE chat_id = ? AND user_id = ?", (chat_id, user_id))

    def abandon(self, chat_id: str, sequence: int, allocated_at_ms: int) -> None:
        self.set_counter(chat_id, sequence)
        self.foreign(
            "INSERT INTO open_allocations (chat_no, sequence, allocated_at_ms)"
            " SELECT chat_no, ?, ? FROM chats WHERE chat_id = ?",
            (sequence, allocated_at_ms, chat_id),
        )


class SqliteEngine:
    def __init__(self, sequencing: str, folder: Path) -> None:
        self.sequencing = sequencing
        self.path = folder / DATABASE_NAME
        self._folder = folder

    @asynccontextmanager
    async def opened(self, **options: Any) -> AsyncIterator[SqliteOpenStore]:
        store = SqliteOpenStore(self._folder, self.sequencing, options)
        await store.open()
        try:
            yield store
        finally:
            await store.close()


class MemoryOpenStore(PortsOfStore):
    def __init__(self, sequencing: str, options: dict[str, Any]) -> None:
        self.clock = VirtualClock()
        self.ids = Ids(random.Random(7).getrandbits)
        self.metrics = Metrics(self.clock)
        self.tables = Tables()
        self._options = {"sequencing": sequencing, **options}
        self.rows = MemoryRows(self.tables)
        self.store: MemoryStore

    async def open(self) -> None:
        self.store = MemoryStore(
            self.tables, clock=self.clock, ids=self.ids, metrics=self.metrics, **self._options
        )
        await self.store.open()

    def make_operator(self) -> MemoryStore:
        return MemoryStore(self.tables, clock=self.clock, ids=self.ids, metrics=Metrics(self.clock))

    async def close(self) -> None:
        await self.kinds.close()
        await self.store.close()

    async def reopen(self) -> None:
        await self.close()
        await self.open()

    def counter(self, chat_id: str) -> int | None:
        chat = self.tables.chats.get(chat_id)
        return None if chat is None else chat.counter

    def set_counter(self, chat_id: str, counter: int | None) -> None:
        self.tables.chats[chat_id].counter = counter

    def durable_positions(self, user_id: str, chat_id: str) -> tuple[int, int]:
        state = self.tables.states[user_id, chat_id]
        return state.delivered[0], state.read[0]

    def remove_member(self, chat_id: str, user_id: str) -> None:
        del self.tables.chats[chat_id].members[user_id]

    def abandon(self, chat_id: str, sequence: int, allocated_at_ms: int) -> None:
        self.set_counter(chat_id, sequence)
        self.tables.chats[chat_id].taken[sequence] = allocated_at_ms


class MemoryEngine:
    def __init__(self, sequencing: str) -> None:
        self.sequencing = sequencing

    @asynccontextmanager
    async def opened(self, **options: Any) -> AsyncIterator[MemoryOpenStore]:
        store = MemoryOpenStore(self.sequencing, options)
        await store.open()
        try:
            yield store
        finally:
            await store.close()


ENGINES: dict[str, Callable[[Path], Engine]] = {
    "memory-atomic": lambda _: MemoryEngine("atomic"),
    "memory-two_phase": lambda _: MemoryEngine("two_phase"),
    "sqlite-atomic": lambda folder: SqliteEngine("atomic", folder),
    "sqlite-two_phase": lambda folder: SqliteEngine("two_phase", folder),
    "cassandra-atomic": lambda _: CassandraEngine(None),
    "cassandra-two_phase": lambda _: CassandraEngine("cassandra"),
    "cassandra-redis": lambda _: CassandraEngine("redis"),
    "dynamodb-atomic": lambda _: DynamoEngine(None),
    "dynamodb-two_phase": lambda _: DynamoEngine("dynamodb"),
    "dynamodb-redis": lambda _: DynamoEngine("redis"),
    "dynamodb-sequencer": lambda _: DynamoEngine("sequencer"),
}
