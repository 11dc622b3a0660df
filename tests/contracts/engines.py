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

from parley.app.engines import Store
from parley.ids import Ids
from parley.store.sqlite.check import check_folder
from parley.store.sqlite.database import FILE_NAME
from parley.store.sqlite.repair import recover
from parley.store.sqlite.store import SqliteStore
from parley.telemetry import Metrics
from parley.testing.clock import VirtualClock
from tests.contracts.dynamodb_engine import DynamoEngine
from tests.contracts.ports import PortsOfStore

FOREIGN_BUSY_MS_MAX = 5_000


class OpenStore(Store, Protocol):
    """The ports of one engine, and what another program may do to its store meanwhile."""

    clock: VirtualClock
    ids: Ids
    metrics: Metrics

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

    async def open(self) -> None:
        self.store = SqliteStore(
            self._folder, clock=self.clock, ids=self.ids, metrics=self.metrics, **self._options
        )
        await self.store.open()

    async def close(self) -> None:
        await self.store.close()

    async def reopen(self) -> None:
        await self.close()
        await self.open()

    def foreign(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """One statement as another program would make it, on a connection of its own.

        With the store's own SQLite: a second copy of it in one process would break the first one's locks.
        """
        with closing(apsw.Connection(str(self._folder / FILE_NAME))) as connection:
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

    def recover_counter(self, chat_id: str) -> None:
        recover(self._folder, chat_id, self.clock, apply=True)

    def breaches(self) -> list[str]:
        return [str(breach) for breach in check_folder(self._folder).breaches]

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
        self.path = folder / FILE_NAME
        self._folder = folder

    @asynccontextmanager
    async def opened(self, **options: Any) -> AsyncIterator[SqliteOpenStore]:
        store = SqliteOpenStore(self._folder, self.sequencing, options)
        await store.open()
        try:
            yield store
        finally:
            await store.close()


ENGINES: dict[str, Callable[[Path], Engine]] = {
    "sqlite-atomic": lambda folder: SqliteEngine("atomic", folder),
    "sqlite-two_phase": lambda folder: SqliteEngine("two_phase", folder),
    "dynamodb-atomic": lambda _: DynamoEngine(None),
    "dynamodb-two_phase": lambda _: DynamoEngine("dynamodb"),
    "dynamodb-redis": lambda _: DynamoEngine("redis"),
    "dynamodb-sequencer": lambda _: DynamoEngine("sequencer"),
}
