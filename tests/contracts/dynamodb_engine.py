"""DynamoDB under contract: each test has its own tables, in both modes and with every allocator."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import botocore.session
from redis import Redis

from parley.clock import wall_clock
from parley.cluster.calls import SignedCalls
from parley.ids import EVENT, Ids
from parley.sequencing.redis import RedisAllocator, key_of
from parley.sequencing.remote import RemoteAllocator
from parley.sequencing.service import Sequencer
from parley.store.dynamodb.allocator import DynamoAllocator
from parley.store.dynamodb.driver import DEADLINE_SECONDS, Dynamo, Item, from_item, number, to_item
from parley.store.dynamodb.schema import MARK, SCHEMA, TABLES, Table, create_tables
from parley.store.dynamodb.store import DynamoStore
from parley.store.ports import Allocator
from parley.telemetry import Metrics
from tests.contracts.ports import PortsOfStore
from tests.contracts.row_editors import DynamoRows
from tests.fakes import KEYS
from tests.harness.clock import VirtualClock
from tests.services import dynamodb_endpoint, fresh_prefix, redis_url

REGION = "local"
EMPTY_TABLES: list[str] = []
"""Prefixes of tables that this process has made and no test uses: making them takes longer than emptying."""
APPEND_SECONDS = 20.0
START_MS = 4_102_444_800_000
"""2100-01-01. The emulator forgets keys whose time has run out by its own clock, in the midst of any test."""


WRITTEN_TABLES: set[str] = set()
"""What this process has written to since it was emptied, by either client. Looking into all tables takes
longer than most tests."""


def note_written(operation: str, request: Mapping[str, Any]) -> None:
    match operation:
        case "PutItem" | "UpdateItem" | "DeleteItem":
            WRITTEN_TABLES.add(request["TableName"])
        case "BatchWriteItem":
            WRITTEN_TABLES.update(request["RequestItems"])
        case "TransactWriteItems":
            actions = [part for action in request["TransactItems"] for part in action.values()]
            WRITTEN_TABLES.update(part["TableName"] for part in actions)


class WatchedDynamo(Dynamo):
    """Notes what it writes to."""

    async def call(self, operation: str, request: dict[str, Any], *arguments: Any, **options: Any) -> Any:
        note_written(operation, request)
        return await super().call(operation, request, *arguments, **options)


@cache
def other_program() -> Any:
    """A client of AWS's own library: what another program does to the tables."""
    endpoint = dynamodb_endpoint()
    client = botocore.session.get_session().create_client("dynamodb", REGION, endpoint_url=endpoint)
    client.meta.events.register(
        "provide-client-params.dynamodb.*", lambda params, model, **_: note_written(model.name, params)
    )
    return client


@cache
def redis_program() -> Redis:
    """What another program does to the counters in Redis."""
    return Redis.from_url(redis_url())


class DynamoOpenStore(PortsOfStore):
    """`options` go to the store as they are, for tests that look inside."""

    def __init__(self, allocator: str | None, options: dict[str, Any]) -> None:
        self.clock = VirtualClock(START_MS)
        self.prefix = fresh_prefix()
        self.ids = Ids(random.SystemRandom().getrandbits)
        self.metrics = Metrics(self.clock)
        self._allocator_name = allocator
        self._faults = options.pop("faults", None)
        self._deadline_seconds = options.pop("deadline_seconds", DEADLINE_SECONDS)
        # One process: what it has not under way itself is abandoned, so nothing has to be waited for. The
        # machine may be busy: what an append waits for is a test's own choice.
        self._options = {"seal_after_ms": 0, "append_seconds": APPEND_SECONDS, **options}
        self._closing: list[Any] = []
        self.allocator: Allocator | None = None
        self.store: DynamoStore

    @property
    def rows(self) -> DynamoRows:
        return DynamoRows(other_program(), self.prefix)

    async def create(self) -> None:
        """On tables of its own: those that an earlier test has left empty, or new ones."""
        if EMPTY_TABLES:
            self.prefix = EMPTY_TABLES.pop()
        else:
            async with self._tables() as dynamo:
                await create_tables(dynamo)
        await self.open()

    async def empty(self) -> None:
        """Leave the tables to a later test, as if they were new."""
        async with self._tables() as dynamo:
            mark = await dynamo.get(SCHEMA, MARK)
            assert mark is not None
            written = [table for table in TABLES.values() if dynamo.table(table.name) in WRITTEN_TABLES]
            await asyncio.gather(*(_empty(dynamo, table) for table in written))
            await dynamo.put(SCHEMA, mark)
            WRITTEN_TABLES.difference_update(dynamo.table(table.name) for table in TABLES.values())
        EMPTY_TABLES.append(self.prefix)

    @asynccontextmanager
    async def _tables(self) -> AsyncIterator[Dynamo]:
        dynamo = self._client(None)
        await dynamo.open()
        try:
            yield dynamo
        finally:
            await dynamo.close()

    def _client(self, faults: Any) -> WatchedDynamo:
        return WatchedDynamo(
            dynamodb_endpoint(),
            REGION,
            prefix=self.prefix,
            faults=faults,
            deadline_seconds=self._deadline_seconds,
        )

    async def open(self) -> None:
        dynamo = self._client(self._faults)
        self.allocator = await self._make_allocator(dynamo)
        self.store = DynamoStore(
            dynamo,
            clock=self.clock,
            ids=self.ids,
            metrics=self.metrics,
            allocator=self.allocator,
            **self._options,
        )
        await dynamo.open()  # a node would check its tables first: these are known to be right

    async def _make_allocator(self, dynamo: Dynamo) -> Allocator | None:
        match self._allocator_name:
            case "dynamodb":
                return DynamoAllocator(dynamo, clock=self.clock, random=random.random)
            case "redis":
                return RedisAllocator(redis_url())
            case "sequencer":
                return await self._remote(DynamoAllocator(dynamo, clock=self.clock, random=random.random))
        return None

    async def _remote(self, behind: Allocator) -> Allocator:
        # A clock that a test sets back is no reason for two nodes to distrust each other.
        metrics = Metrics(self.clock)  # it is another process
        sequencer = Sequencer(
            behind, host="127.0.0.1", port=0, keys=KEYS, name="sequencer.1", clock=wall_clock, metrics=metrics
        )
        port = await sequencer.start()
        calls = SignedCalls(KEYS, clock=wall_clock, random_bytes=random.randbytes)
        self._closing.append(sequencer.stop)
        return RemoteAllocator(
            [f"http://127.0.0.1:{port}"],
            calls,
            answer_seconds=APPEND_SECONDS,
            deadline_seconds=APPEND_SECONDS,
        )

    async def close(self) -> None:
        await self.kinds.close()
        await self.store.close()
        for close in self._closing:
            await close()
        self._closing.clear()

    async def reopen(self) -> None:
        await self.close()
        await self.open()

    def counter(self, chat_id: str) -> int | None:
        if self._allocator_name == "redis":
            given: Any = redis_program().get(key_of(chat_id))
            return None if given is None else int(given)
        found = other_program().get_item(
            TableName=self.prefix + "chat_counters", Key=to_item({"chat_id": chat_id}), ConsistentRead=True
        )
        value = from_item(found.get("Item", {})).get("sequence_counter")
        return value if isinstance(value, int) else None

    def set_counter(self, chat_id: str, counter: int | None) -> None:
        if self._allocator_name == "redis":
            if counter is None:
                redis_program().delete(key_of(chat_id))
            else:
                redis_program().set(key_of(chat_id), counter)
            return
        table, key = self.prefix + "chat_counters", to_item({"chat_id": chat_id})
        if counter is None:
            other_program().delete_item(TableName=table, Key=key)
            return
        chats = self.prefix + "chats"
        chat = other_program().get_item(TableName=chats, Key=key, ConsistentRead=True)["Item"]
        other_program().update_item(
            TableName=table,
            Key=key,
            UpdateExpression="SET sequence_counter = :n, membership_revision = :r",
            ExpressionAttributeValues=to_item({":n": counter}) | {":r": chat["membership_revision"]},
        )

    def durable_positions(self, user_id: str, chat_id: str) -> tuple[int, int]:
        found = other_program().get_item(
            TableName=self.prefix + "delivery_state",
            Key=to_item({"user_id": user_id, "chat_id": chat_id}),
            ConsistentRead=True,
        )
        row = from_item(found["Item"])
        return number(row, "last_acked_sequence"), number(row, "read_up_to")

    def make_operator(self) -> DynamoStore:
        """With clients of its own; only counters in Redis are not in the tables."""
        dynamo = self._client(None)
        is_redis, is_atomic = self._allocator_name == "redis", self._allocator_name is None
        own = DynamoAllocator(dynamo, clock=self.clock, random=random.random)
        return DynamoStore(
            dynamo,
            clock=self.clock,
            ids=self.ids,
            metrics=Metrics(self.clock),
            allocator=None if is_atomic else RedisAllocator(redis_url()) if is_redis else own,
            counters_elsewhere=is_redis,
        )

    def remove_member(self, chat_id: str, user_id: str) -> None:
        """As any program must do it: with a new revision, for whoever remembers the old."""
        revision = {":r": {"S": self.ids.next(EVENT, self.clock())}}
        other_program().delete_item(
            TableName=self.prefix + "chat_memberships",
            Key=to_item({"chat_id": chat_id, "user_id": user_id}),
        )
        for table in ("chats", "chat_counters"):
            other_program().update_item(
                TableName=self.prefix + table,
                Key=to_item({"chat_id": chat_id}),
                UpdateExpression="SET membership_revision = :r",
                ExpressionAttributeValues=revision,
            )

    def abandon(self, chat_id: str, sequence: int, allocated_at_ms: int) -> None:
        self.set_counter(chat_id, sequence)


async def _empty(dynamo: Dynamo, table: Table) -> None:
    start: Item | None = None
    while True:
        page = await dynamo.scan(table.name, start=start)
        names = [key["AttributeName"] for key in table.keys]
        keys: list[Item] = [{name: item[name] for name in names} for item in page.items]
        await dynamo.batch_delete(table.name, keys)
        start = page.next_key
        if start is None:
            return


class DynamoEngine:
    def __init__(self, allocator: str | None) -> None:
        self.sequencing = "atomic" if allocator is None else "two_phase"
        self._allocator = allocator

    @asynccontextmanager
    async def opened(self, **options: Any) -> AsyncIterator[DynamoOpenStore]:
        store = DynamoOpenStore(self._allocator, options)
        await store.create()
        try:
            yield store
        finally:
            await store.close()
        await store.empty()
