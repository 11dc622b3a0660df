"""A thin asynchronous client of Cassandra. The driver's threads call back through `call_soon_threadsafe`.

What it promises:

* **Outcome.** A write that returns is durable at LOCAL_QUORUM. `StoreUnavailable` means that nothing was
  written, `OutcomeUnknown` that it may have been. No error of the driver leaves this module.
* **Retries.** A read is repeated after every temporary failure. So is a plain write: every one here writes
  the same again, with a time of its own (`USING TIMESTAMP`) or at a place that is written once. A conditional
  write is never repeated here: its caller resolves it, see `Cas` and `resolve`.
* **Reading what was written.** A condition is decided at LOCAL_SERIAL and committed at LOCAL_QUORUM before it
  is answered, so a read at LOCAL_QUORUM finds every write that was acknowledged. Only what became of a write
  without an answer needs a read at LOCAL_SERIAL, which also ends whatever is left half done.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import structlog
from cassandra import DriverException, InvalidRequest, OperationTimedOut, Unavailable
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionException
from cassandra.protocol import ErrorMessage, IsBootstrappingErrorMessage, OverloadedErrorMessage
from msgspec import Struct

from parley.concurrency import map_concurrently
from parley.core.backoff import backoff
from parley.errors import ConfigError, OutcomeUnknown, StoreUnavailable
from parley.store.cassandra.connection import ROWS_PER_PAGE, CassandraConnection, Row, Statement, Values

DEADLINE_SECONDS = 10.0
REQUESTS_AT_ONCE_MAX = 256
PAUSE_SECONDS = 0.02
PAUSE_SECONDS_MAX = 0.5
KEY_BYTES_MAX = 1_024
APPLIED = "[applied]"

NOT_SENT = (NoHostAvailable, Unavailable, OverloadedErrorMessage, IsBootstrappingErrorMessage)
"""Errors after which nothing was written: no replica, or not enough of them, has got the request."""
DRIVER_ERRORS = (DriverException, ConnectionException, ErrorMessage, NoHostAvailable, OSError)

T = TypeVar("T")

log = structlog.get_logger("parley.store")


class Cas(Struct):
    """What became of a conditional write. If it was not applied, `rows` is what it met."""

    is_applied: bool
    rows: list[Row]

    @property
    def row(self) -> Row:
        return self.rows[0] if self.rows else {}


class Cassandra:
    """`connection` may be shared: then it is left open."""

    def __init__(
        self,
        connection: CassandraConnection,
        *,
        is_shared: bool = False,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        self.connection = connection
        self.keyspace = connection.address.keyspace
        self._is_shared = is_shared
        self._deadline_seconds = deadline_seconds
        self._gate = asyncio.Semaphore(REQUESTS_AT_ONCE_MAX)

    @property
    def where(self) -> str:
        address = self.connection.address
        return f"{','.join(address.contact_points)}:{address.port}"

    async def connect(self) -> None:
        """StoreUnavailable if no node of the cluster answers; ConfigError if none lets us in."""
        try:
            await asyncio.to_thread(self.connection.connect)
        except NoHostAvailable as error:
            if any("Authentication" in type(one).__name__ for one in error.errors.values()):
                raise ConfigError(f"Cassandra at {self.where} refuses the user and password") from error
            raise StoreUnavailable(f"Cassandra at {self.where} does not answer: {error}") from error
        except DRIVER_ERRORS as error:
            raise StoreUnavailable(f"Cassandra at {self.where} cannot be used: {error}") from error

    async def use_keyspace(self) -> None:
        try:
            await asyncio.to_thread(self.connection.use_keyspace)
        except InvalidRequest as error:
            raise ConfigError(f"there is no keyspace {self.keyspace} at {self.where}") from error
        except DRIVER_ERRORS as error:
            raise StoreUnavailable(f"Cassandra at {self.where} does not answer: {error}") from error

    async def define(self, cql: str) -> list[Row]:
        """Create a keyspace or a table. May be repeated: each says IF NOT EXISTS."""
        try:
            return await asyncio.to_thread(self.connection.execute, cql)
        except DRIVER_ERRORS as error:
            raise StoreUnavailable(f"Cassandra refused `{cql.split('(')[0].strip()}`: {error}") from error

    async def close(self) -> None:
        if not self._is_shared:
            await asyncio.to_thread(self.connection.shutdown)

    # Reading

    async def rows(self, cql: str, *values: object, is_serial: bool = False) -> list[Row]:
        """All rows, page by page."""
        found: list[Row] = []
        page: bytes | None = None
        while True:
            some, page = await self._read((cql, values), is_serial, page, ROWS_PER_PAGE)
            found += some
            if page is None:
                return found

    async def row(self, cql: str, *values: object, is_serial: bool = False) -> Row | None:
        rows = await self.rows(cql, *values, is_serial=is_serial)
        return rows[0] if rows else None

    async def pages(
        self, cql: str, *values: object, page_size: int = ROWS_PER_PAGE
    ) -> AsyncIterator[list[Row]]:
        page: bytes | None = None
        while True:
            rows, page = await self._read((cql, values), False, page, page_size)
            yield rows
            if page is None:
                return

    async def rows_of(self, cql: str, keys: Iterable[Values]) -> list[Row]:
        """The rows of many partitions: one read for each, many at once."""
        found = await map_concurrently(lambda key: self.rows(cql, *key), keys, REQUESTS_AT_ONCE_MAX)
        return [row for rows in found for row in rows]

    async def pages_of(self, cql: str, names: Iterable[str]) -> AsyncIterator[list[Row]]:
        """The rows of these partitions, as far as they can be, as one page."""
        yield await self.rows_of(cql, [(name,) for name in dict.fromkeys(names) if is_key(name)])

    async def _read(
        self, statement: Statement, is_serial: bool, page: bytes | None, page_size: int
    ) -> tuple[list[Row], bytes | None]:
        async def read() -> tuple[list[Row], bytes | None]:
            return await self._send([statement], is_serial, page, page_size)

        try:
            return await self._until_done(read)
        except OutcomeUnknown as error:  # nothing can have been written
            raise StoreUnavailable(str(error)) from error

    # Writing

    async def write(self, cql: str, *values: object) -> None:
        """A plain write, at a place or with a time that makes it harmless to repeat."""
        await self._until_done(lambda: self._send([(cql, values)]))

    async def write_all(self, statements: Iterable[Statement]) -> None:
        """Many of these at once, in no order."""
        await map_concurrently(lambda one: self.write(one[0], *one[1]), statements, REQUESTS_AT_ONCE_MAX)

    async def cas(self, *statements: Statement) -> Cas:
        """One conditional write, or several of one partition: all of them, or none."""
        rows, _ = await self._send(statements)
        if not rows:
            raise OutcomeUnknown("Cassandra gave no answer to a condition")
        return Cas(bool(rows[0][APPLIED]), rows)

    async def repeat(self, *statements: Statement) -> Cas:
        """A conditional write for callers that alone write there, and look again if it was not applied."""
        return await self._until_done(lambda: self.cas(*statements))

    async def resolve(
        self, attempt: Callable[[], Awaitable[Cas]], is_done: Callable[[], Awaitable[bool]]
    ) -> Cas:
        """A conditional write with a known outcome, unless the store does not answer in time.

        If the answer is lost, `is_done` looks, by a read at LOCAL_SERIAL, whether it was applied. If not, a
        server may still be about to apply it, so the identical write is made again: its condition holds only
        if it was not. If it was, it fails, and `is_done` finds it.
        """
        loop = asyncio.get_running_loop()
        deadline, was_lost = loop.time() + self._deadline_seconds, False
        while True:
            try:
                cas = await attempt()
                if cas.is_applied or not was_lost:
                    return cas
                return Cas(await is_done(), cas.rows)
            except OutcomeUnknown as error:
                was_lost, reason = True, str(error)
            except StoreUnavailable as error:
                if not was_lost:
                    raise
                reason = str(error)
            if loop.time() > deadline:
                raise OutcomeUnknown(reason)
            if await self._is_done_by_now(is_done):
                return Cas(True, [])
            await asyncio.sleep(PAUSE_SECONDS)

    async def _is_done_by_now(self, is_done: Callable[[], Awaitable[bool]]) -> bool:
        try:
            return await is_done()
        except StoreUnavailable:
            return False

    async def _until_done(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat until it is done or the time is over."""
        loop, failures, is_unknown = asyncio.get_running_loop(), 0, False
        deadline = loop.time() + self._deadline_seconds
        while True:
            try:
                return await attempt()
            except (StoreUnavailable, OutcomeUnknown) as error:
                failures += 1
                is_unknown = is_unknown or isinstance(error, OutcomeUnknown)
                if loop.time() > deadline:
                    raise (OutcomeUnknown if is_unknown else StoreUnavailable)(str(error)) from error
            await asyncio.sleep(backoff(failures, PAUSE_SECONDS, PAUSE_SECONDS_MAX))

    async def _send(
        self,
        statements: Sequence[Statement],
        is_serial: bool = False,
        page: bytes | None = None,
        page_size: int = ROWS_PER_PAGE,
    ) -> tuple[list[Row], bytes | None]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[tuple[list[Row], bytes | None]] = loop.create_future()

        def settle(rows: list[Row], next_page: bytes | None) -> None:
            if not answer.done():
                answer.set_result((rows, next_page))

        def fail(error: Exception) -> None:
            if not answer.done():
                answer.set_exception(error)

        def call(function: Callable[..., None], *arguments: object) -> None:
            """From a thread of the driver. A loop that has ended waits for no answer."""
            if not loop.is_closed():
                loop.call_soon_threadsafe(function, *arguments)

        connection = self.connection
        try:
            async with self._gate:
                if not connection.is_prepared(statements):
                    await asyncio.to_thread(connection.prepare, statements)
                connection.send(
                    statements,
                    lambda rows, next_page: call(settle, rows, next_page),
                    lambda error: call(fail, error),
                    is_serial=is_serial,
                    page=page,
                    page_size=page_size,
                )
                return await answer
        except NOT_SENT as error:
            raise StoreUnavailable(f"Cassandra cannot serve this now: {error}") from error
        except InvalidRequest as error:
            raise StoreUnavailable(f"Cassandra does not accept this: {error}") from error
        except OperationTimedOut as error:
            raise OutcomeUnknown("Cassandra did not answer in time") from error
        except DRIVER_ERRORS as error:
            raise OutcomeUnknown(f"Cassandra did not say what became of a request: {error}") from error


def is_key(*texts: str) -> bool:
    """Whether these can be parts of a key: not empty, not too long, and text of Unicode."""
    try:
        return all(0 < len(text.encode()) <= KEY_BYTES_MAX for text in texts)
    except UnicodeEncodeError:
        return False
