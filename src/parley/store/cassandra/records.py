"""The port `Records` on Cassandra: a table for each, with the JSON of a record in one column.

Records are written under conditions only: a plain write by a clock that is ahead would hide the next one. The
number that rises is written plainly, with itself as its time, and so never falls.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from parley.clock import MS_PER_SECOND, Clock
from parley.concurrency import map_concurrently
from parley.errors import OutcomeUnknown, StoreUnavailable
from parley.store.cassandra.client import Cassandra
from parley.store.cassandra.connection import Row, Statement
from parley.store.cassandra.schema import records_of
from parley.store.tables import (
    Key,
    PutRecord,
    R,
    RecordChange,
    RecordTable,
    Whatever,
    askable,
    is_met,
    key_of,
    partition_of,
    wanted_by,
)

READS_AT_ONCE_MAX = 64
WRITES_AT_ONCE_MAX = 32
ATTEMPTS_MAX = 30
ROWS_PER_PAGE = 500

AT = "WHERE partition = ? AND place = ?"

Stored = dict[Key, "bytes | None"]


class CassandraRecords:
    rest_seconds = 60.0

    def __init__(self, cassandra: Cassandra, clock: Clock, connect: Callable[[], Awaitable[None]]) -> None:
        self.cassandra = cassandra
        self._clock = clock
        self._connect = connect

    async def get(
        self, table: RecordTable[R], keys: Sequence[Key], *, may_be_old: bool = False
    ) -> list[R | None]:
        await self._connect()
        return await map_concurrently(lambda key: self._get(table, key), keys, READS_AT_ONCE_MAX)

    async def _get(self, table: RecordTable[R], key: Key) -> R | None:
        row = await self._row(table, key) if askable(*key) else None
        return _record_in(table, row) if row is not None else None

    async def _row(self, table: RecordTable[R], key: Key, *, is_serial: bool = False) -> Row | None:
        cql = f"SELECT record, number FROM {records_of(table)} {AT}"
        return await self.cassandra.row(cql, *key, is_serial=is_serial)

    async def page(
        self, table: RecordTable[R], partition: str, after: str, limit: int, newest_first: bool = False
    ) -> list[R]:
        if not askable(partition, after or partition):
            return []
        where, values = "WHERE partition = ?", [partition]
        if after:
            where, values = f"{where} AND place {'<' if newest_first else '>'} ?", [partition, after]
        order = "ORDER BY place DESC" if newest_first else ""
        cql = f"SELECT record, number FROM {records_of(table)} {where} {order}"
        found: list[R] = []
        async for rows in self.cassandra.pages(cql, *values, page_size=min(limit + 1, ROWS_PER_PAGE)):
            found += _records_in(table, rows)
            if len(found) >= limit:
                break
        return found[:limit]

    async def scan(
        self, table: RecordTable[R], partition: str = "", *, after: str = ""
    ) -> AsyncIterator[list[R]]:
        await self._connect()
        where, values = "", list[str]()
        if partition:
            where, values = "WHERE partition = ?", [partition]
        elif after:
            where, values = "WHERE token(partition) > token(?)", [after]
        cql = f"SELECT record, number FROM {records_of(table)} {where}"
        async for rows in self.cassandra.pages(cql, *values, page_size=ROWS_PER_PAGE):
            yield _records_in(table, rows)

    async def count(self, table: RecordTable[R]) -> int:
        row = await self.cassandra.row(f"SELECT COUNT(record) AS total FROM {records_of(table)}")
        return int((row or {}).get("total", 0))

    async def commit(self, table: RecordTable[R], changes: Sequence[RecordChange[R]]) -> bool:
        partition_of(table, list(changes))
        if not table.is_compared:
            await self.cassandra.write_all(self._plainly(table, change) for change in changes)
            return True
        expected = self._expected(table, changes) or await self._stored(table, changes)
        for _ in range(ATTEMPTS_MAX):
            if await self._write(table, changes, expected):
                break
            expected = await self._stored(table, changes)
            if not all(is_met(table, change, expected[key_of(table, change)]) for change in changes):
                return False
        else:
            raise StoreUnavailable(f"a record of {table.name} is being written to by too many at once")
        for change in changes:
            if isinstance(change, PutRecord) and (number := table.number(change.record)):
                await self._raise(table, table.key(change.record), number)
        return True

    def _plainly(self, table: RecordTable[R], change: RecordChange[R]) -> Statement:
        """Nobody writes there under a condition: the last write counts, or the one with the highest number,
        which is its time. Of two writes with the same time the one that removes counts."""
        name, key = records_of(table), key_of(table, change)
        if not isinstance(change, PutRecord):
            assert change.before is not None
            assert not isinstance(change.before, Whatever)
            return f"DELETE FROM {name} USING TIMESTAMP ? {AT}", (table.number(change.before), *key)
        record, seconds = table.encode(change.record), self._seconds(table, change.record)
        if not table.keeps_highest:
            return f"UPDATE {name} USING TTL ? SET record = ? {AT}", (seconds, record, *key)
        number = table.number(change.record)
        cql = f"UPDATE {name} USING TTL ? AND TIMESTAMP ? SET record = ?, number = ? {AT}"
        return cql, (seconds, number, record, number, *key)

    def _seconds(self, table: RecordTable[R], record: R) -> int:
        """How long it is kept; 0: for good."""
        if table.expires_ms is None:
            return 0
        return max(1, (table.expires_ms(record) - self._clock()) // MS_PER_SECOND)

    def _expected(self, table: RecordTable[R], changes: Sequence[RecordChange[R]]) -> Stored:
        """What the conditions are written as; empty if one of them depends on what is there."""
        expected: Stored = {}
        for change in changes:
            if isinstance(change.before, Whatever):
                return {}
            before = change.before
            expected[key_of(table, change)] = None if before is None else table.encode(before)
        return expected

    async def _stored(
        self, table: RecordTable[R], changes: Sequence[RecordChange[R]], *, is_serial: bool = False
    ) -> Stored:
        keys = [key_of(table, change) for change in changes]
        rows = [await self._row(table, key, is_serial=is_serial) for key in keys]
        return {key: row["record"] if row is not None else None for key, row in zip(keys, rows, strict=True)}

    async def _write(
        self, table: RecordTable[R], changes: Sequence[RecordChange[R]], expected: Stored
    ) -> bool:
        """False: one of the conditions did not hold. OutcomeUnknown: somebody else has written since."""
        statements = [self._statement(table, change, expected[key_of(table, change)]) for change in changes]
        wanted = {key_of(table, change): wanted_by(table, change) for change in changes}

        async def is_done() -> bool:
            stored = await self._stored(table, changes, is_serial=True)
            if stored != wanted and stored != expected:
                raise OutcomeUnknown(f"{table.name}: a change without an answer, and another after it")
            return stored == wanted

        if wanted == expected:  # it would change nothing, and could not tell whether it was done
            return await self._stored(table, changes, is_serial=True) == expected
        return (await self.cassandra.resolve(lambda: self.cassandra.cas(*statements), is_done)).is_applied

    def _statement(self, table: RecordTable[R], change: RecordChange[R], expected: bytes | None) -> Statement:
        """`UPDATE` also where there is nothing: so the row goes with its record."""
        name, key = records_of(table), key_of(table, change)
        wanted = wanted_by(table, change)
        if wanted is None:
            # A deleted row would hide the numbers that are written after it: their times are lower.
            what = "record " if table.raised else ""
            return f"DELETE {what}FROM {name} {AT} IF record = ?", (*key, expected)
        seconds = self._seconds(table, change.record) if isinstance(change, PutRecord) else 0
        cql = f"UPDATE {name} USING TTL ? SET record = ? {AT} IF record = ?"
        return cql, (seconds, wanted, *key, expected)

    async def raise_to(self, table: RecordTable[R], key: Key, number: int) -> bool:
        row = await self._row(table, key)
        if row is None or row["record"] is None:
            return False
        if (row["number"] or 0) < number:
            await self._raise(table, key, number)
        return True

    async def _raise(self, table: RecordTable[R], key: Key, number: int) -> None:
        cql = f"UPDATE {records_of(table)} USING TIMESTAMP ? SET number = ? {AT}"
        await self.cassandra.write(cql, number, number, *key)

    async def expire(self, table: RecordTable[R], now_ms: int) -> int:
        return 0

    async def load(self, table: RecordTable[R], records: Sequence[R]) -> None:
        await self._connect()
        await self.put_all(table, records)

    async def put_all(self, table: RecordTable[R], records: Sequence[R]) -> None:
        """As `load`, on tables that may not have this version yet."""

        if not table.is_compared:
            await self.cassandra.write_all(self._plainly(table, PutRecord(record)) for record in records)
            return

        async def put(record: R) -> None:
            await self.commit(table, [PutRecord(record)])

        await map_concurrently(put, records, WRITES_AT_ONCE_MAX)


def _record_in(table: RecordTable[R], row: Row) -> R | None:
    return None if row["record"] is None else table.decode(row["record"], row["number"] or 0)


def _records_in(table: RecordTable[R], rows: Sequence[Row]) -> list[R]:
    """A number may outlive its record."""
    return [record for row in rows if (record := _record_in(table, row)) is not None]
