"""The port `Records` on DynamoDB: a table for each, with the JSON of a record in one attribute."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import cast

from parley.clock import MS_PER_SECOND, Clock
from parley.errors import OutcomeUnknown, StoreUnavailable
from parley.ids import EVENT, Ids
from parley.store.dynamodb.driver import (
    Action,
    ConditionCheck,
    ConditionFailed,
    Delete,
    Dynamo,
    Item,
    Put,
    TransactionCanceled,
    UpdateItem,
    number,
    retry_unknown,
)
from parley.store.dynamodb.recent_reads import RecentReads
from parley.store.dynamodb.scans import table_pages
from parley.store.dynamodb.schema import (
    CONSENT_REVISION,
    NUMBER,
    PARTITION,
    PLACE,
    RECORD,
    TTL,
    item_count,
    records_of,
)
from parley.store.tables import (
    ALONE,
    PEOPLE,
    CheckRecord,
    Key,
    PutRecord,
    R,
    RecordChange,
    RecordTable,
    RemoveRecord,
    Whatever,
    askable,
    is_met,
    key_of,
    partition_of,
    wanted_by,
)

ATTEMPTS_MAX = 10
RECORDS_PER_PAGE = 1_000
NAMES = {"#record": RECORD}
IS_NEW = "attribute_not_exists(#record)"
IS_SAME = "#record = :before"
RAISE = "SET #number = :number"
IS_HIGHEST = "attribute_not_exists(#number) OR #number < :number"
IS_UP_TO = "attribute_not_exists(#number) OR #number <= :number"
IS_LOWER = "attribute_exists(#record) AND (attribute_not_exists(#number) OR #number < :number)"


class DynamoRecords:
    """A transaction has a token, and so is done once. A single write is known by what it wrote."""

    rest_seconds = 300.0

    def __init__(
        self, dynamo: Dynamo, clock: Clock, ids: Ids, connect: Callable[[], Awaitable[None]]
    ) -> None:
        self._dynamo = dynamo
        self._connect = connect
        self._clock = clock
        self._ids = ids
        self._recent = RecentReads(dynamo)

    async def close(self) -> None:
        await self._recent.close()

    async def get(
        self, table: RecordTable[R], keys: Sequence[Key], *, may_be_old: bool = False
    ) -> list[R | None]:
        await self._connect()
        wanted = [key for key in keys if askable(*key)]
        found: dict[Key, Item] = {}
        if may_be_old:
            items = await asyncio.gather(*(self._recent.read(records_of(table), *key) for key in wanted))
            found = {key: item for key, item in zip(wanted, items, strict=True) if item is not None}
        found |= await self._items(table, [key for key in wanted if key not in found])
        return [_decoded(table, found[key]) if key in found else None for key in keys]

    async def _items(self, table: RecordTable[R], keys: Sequence[Key]) -> dict[Key, Item]:
        name, wanted = records_of(table), [place_of(key) for key in dict.fromkeys(keys)]
        if not wanted:
            return {}
        if len(wanted) == 1:
            item = await self._dynamo.get(name, wanted[0])
            items = [] if item is None else [item]
        else:
            items = await self._dynamo.batch_get(name, wanted)
        return {(cast(str, item[PARTITION]), cast(str, item[PLACE])): item for item in items}

    async def page(
        self, table: RecordTable[R], partition: str, after: str, limit: int, newest_first: bool = False
    ) -> list[R]:
        if not askable(partition, after or partition):
            return []
        condition, values = "#partition = :partition", Item({":partition": partition})
        names = {"#partition": PARTITION}
        if after:
            condition += f" AND #place {'<' if newest_first else '>'} :after"
            values, names = values | {":after": after}, names | {"#place": PLACE}
        found: list[R] = []
        start: Item | None = None
        while len(found) < limit:
            page = await self._dynamo.query(
                records_of(table),
                condition,
                values,
                names=names,
                forward=not newest_first,
                limit=limit - len(found),
                consistent=table.is_fresh,
                start=start,
            )
            found += [_decoded(table, item) for item in page.items]
            start = page.next_key
            if start is None:
                break
        return found

    async def scan(
        self, table: RecordTable[R], partition: str = "", *, after: str = ""
    ) -> AsyncIterator[list[R]]:
        """`after`: a partition with one record."""
        await self._connect()
        place = ""
        while partition:
            records = await self.page(table, partition, place, RECORDS_PER_PAGE)
            yield records
            if len(records) < RECORDS_PER_PAGE:
                return
            place = table.key(records[-1])[1]
        start = place_of((after, ALONE)) if after else None
        async for items in table_pages(self._dynamo, records_of(table), start=start):
            yield [_decoded(table, item) for item in items]

    async def count(self, table: RecordTable[R]) -> int:
        return await item_count(self._dynamo, records_of(table))

    async def commit(self, table: RecordTable[R], changes: Sequence[RecordChange[R]]) -> bool:
        partition_of(table, list(changes))
        if not table.is_compared:
            await self._commit_plainly(table, changes)
            return True
        expected = {key_of(table, change): _text(_expected_by(table, change)) for change in changes}
        for _ in range(ATTEMPTS_MAX):
            actions = [_action(table, change, expected[key_of(table, change)]) for change in changes]
            was_lost = await self._write(actions)
            if was_lost is None:
                break
            items = await self._items(table, list(expected))
            stored = {key: cast("str | None", items.get(key, {}).get(RECORD)) for key in expected}
            wanted = {key_of(table, change): _text(wanted_by(table, change)) for change in changes}
            if was_lost and stored == wanted:
                break
            if not all(is_met(table, change, stored[key_of(table, change)]) for change in changes):
                if was_lost:
                    raise OutcomeUnknown(f"{table.name}: a change without an answer, and another after it")
                return False
            expected = stored  # the same records, written by an older Parley
        else:
            raise StoreUnavailable(f"a record of {table.name} is being written to by too many at once")
        for change in changes:
            if isinstance(change, PutRecord) and (raised := table.number(change.record)):
                await self.raise_to(table, table.key(change.record), raised)
        return True

    async def _commit_plainly(self, table: RecordTable[R], changes: Sequence[RecordChange[R]]) -> None:
        """Nothing depends on what is there, except that the highest number stays."""
        if not table.keeps_highest:
            await load(
                self._dynamo, table, [change.record for change in changes if isinstance(change, PutRecord)]
            )
            return
        for change in changes:
            await self._write([_highest(table, change)])

    async def _write(self, actions: Sequence[Action]) -> bool | None:
        """None: it is done. Otherwise it is not, or it is and the answer was lost, which is returned."""
        was_lost, token = False, self._ids.next(EVENT, self._clock())

        async def write() -> None:
            nonlocal was_lost
            try:
                if len(actions) == 1 and not isinstance(actions[0], ConditionCheck):
                    ((verb, request),) = actions[0].request(self._dynamo.prefix).items()
                    await self._dynamo.call(f"{verb}Item", {**request, "ReturnConsumedCapacity": "TOTAL"})
                else:
                    await self._dynamo.transact(actions, token)
            except OutcomeUnknown:
                was_lost = len(actions) == 1  # a transaction with a token that was done is not canceled
                raise

        try:
            await retry_unknown(write)
        except (ConditionFailed, TransactionCanceled):
            return was_lost
        return None

    async def raise_to(self, table: RecordTable[R], key: Key, number: int) -> bool:
        try:
            await retry_unknown(
                lambda: self._dynamo.update(
                    records_of(table),
                    place_of(key),
                    RAISE,
                    {":number": number},
                    condition=IS_LOWER,
                    names=NAMES | {"#number": NUMBER},
                )
            )
        except ConditionFailed as failed:
            return failed.item is not None
        return True

    async def expire(self, table: RecordTable[R], now_ms: int) -> int:
        return 0

    async def load(self, table: RecordTable[R], records: Sequence[R]) -> None:
        await self._connect()
        await load(self._dynamo, table, records)


async def load(dynamo: Dynamo, table: RecordTable[R], records: Sequence[R]) -> None:
    """Over whatever is there. A person who is put so may have said something: see `consents`."""
    beside: Item = {CONSENT_REVISION: 1} if table.name == PEOPLE.name else {}
    items = [_item(table, record) | beside for record in records]
    if items:
        await retry_unknown(lambda: dynamo.batch_put(records_of(table), items))


def put_over(table: RecordTable[R], record: R, before: R) -> Action:
    """For a transaction of the engine: a record takes the place of another one, which must be there."""
    return _action(table, PutRecord(record, before=before), table.encode(before).decode())


def place_of(key: Key) -> Item:
    return {PARTITION: key[0], PLACE: key[1]}


def _item(table: RecordTable[R], record: R) -> Item:
    item = place_of(table.key(record)) | {RECORD: table.encode(record).decode()}
    if raised := table.number(record):
        item[NUMBER] = raised
    if table.expires_ms is not None:
        item[TTL] = -(-table.expires_ms(record) // MS_PER_SECOND)
    return item


def _decoded(table: RecordTable[R], item: Item) -> R:
    return table.decode(cast(str, item[RECORD]), number(item, NUMBER))


def _text(stored: bytes | None) -> str | None:
    return None if stored is None else stored.decode()


def _expected_by(table: RecordTable[R], change: RecordChange[R]) -> bytes | None:
    before = change.before
    return None if before is None or isinstance(before, Whatever) else table.encode(before)


def _highest(table: RecordTable[R], change: RecordChange[R]) -> Action:
    record = change.record if isinstance(change, PutRecord) else change.before
    assert record is not None
    assert not isinstance(record, Whatever)
    name, values = records_of(table), Item({":number": table.number(record)})
    if isinstance(change, PutRecord):
        return Put(name, _item(table, change.record), IS_HIGHEST, values, {"#number": NUMBER})
    return Delete(name, place_of(key_of(table, change)), IS_UP_TO, values, {"#number": NUMBER})


def _action(table: RecordTable[R], change: RecordChange[R], expected: str | None) -> Action:
    """A record whose number rises meanwhile keeps it: only the attribute with its JSON is written."""
    condition, values = (IS_NEW, Item()) if expected is None else (IS_SAME, Item({":before": expected}))
    names: dict[str, str] | None = NAMES
    name, key = records_of(table), place_of(key_of(table, change))
    if isinstance(change, CheckRecord):
        return ConditionCheck(name, key, condition, values, names)
    is_met_always = isinstance(change.before, Whatever)
    if isinstance(change, RemoveRecord):
        return Delete(name, key) if is_met_always else Delete(name, key, condition, values, names)
    item = _item(table, change.record)
    if not table.raised:
        return Put(name, item) if is_met_always else Put(name, item, condition, values, names)
    sets = {RECORD: item[RECORD]} | ({TTL: item[TTL]} if TTL in item else {})
    written = "SET " + ", ".join(f"#{attribute} = :{attribute}" for attribute in sets)
    wanted = Item({f":{attribute}": value for attribute, value in sets.items()})
    names = NAMES | {f"#{attribute}": attribute for attribute in sets}
    if is_met_always:
        return UpdateItem(name, key, written, wanted, None, names)
    return UpdateItem(name, key, written, wanted | values, condition, names)
