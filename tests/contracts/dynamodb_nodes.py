"""Several nodes on the same tables, and faults that a test switches on when it is ready."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from parley.store.dynamodb.driver import Fault, Faults, Item, Request, Response, Send
from tests.contracts.dynamodb_engine import DynamoOpenStore


class Later:
    """Faults of one node: none until `now` is set."""

    def __init__(self) -> None:
        self.now: Faults | None = None

    def __call__(self, operation: str, request: Request) -> Fault | None:
        return self.now(operation, request) if self.now is not None else None


class Held:
    """Keeps the first request of an operation in which some words occur, until it is released."""

    def __init__(self, operation: str, words: str = "") -> None:
        self.reached = asyncio.Event()
        self._way = asyncio.Event()
        self._operation = operation
        self._words = words

    def __call__(self, operation: str, request: Request) -> Fault | None:
        is_it = operation == self._operation and self._words in str(request)
        return self._wait if is_it and not self.reached.is_set() else None

    async def _wait(self, operation: str, request: Request, send: Send) -> Response:
        self.reached.set()
        await self._way.wait()
        return await send(operation, request)

    def release(self) -> None:
        self._way.set()


class Counted:
    """No fault: counts requests by operation and table."""

    def __init__(self) -> None:
        self.met = Counter[tuple[str, str]]()

    def __call__(self, operation: str, request: Request) -> Fault | None:
        [*tables] = request.get("RequestItems", {request.get("TableName", ""): ()})
        self.met.update((operation, table.rpartition("-")[2]) for table in tables)
        return None


class On:
    """One fault, for every request of some operations on one table; counts them."""

    def __init__(self, fault: Fault, operation: str, table: str = "") -> None:
        self.met = 0
        self._fault = fault
        self._operation = operation
        self._table = table

    def __call__(self, operation: str, request: Request) -> Fault | None:
        if operation != self._operation or not str(request.get("TableName", "")).endswith(self._table):
            return None
        self.met += 1
        return self._fault


async def refuse(operation: str, request: Request, send: Send) -> Response:
    """Certainly not done, and of no use to try again."""
    return Response(400, {"__type": "#ValidationException", "message": "refused (injected)"})


@asynccontextmanager
async def nodes(
    count: int = 2, allocator: str | None = None, **options: Any
) -> AsyncIterator[list[DynamoOpenStore]]:
    """So many nodes; `options` go to each."""
    stores: list[DynamoOpenStore] = []
    try:
        for _ in range(count):
            store = DynamoOpenStore(allocator, dict(options))
            if stores:
                store.prefix, store.clock = stores[0].prefix, stores[0].clock
                await store.open()
            else:
                await store.create()
            stores.append(store)
        yield stores
    finally:
        for store in stores:
            await store.close()


async def item(store: DynamoOpenStore, table: str, **key: Any) -> Item:
    """An item as it stands in its table."""
    found = await store.store.dynamo.get(table, key)
    assert found is not None
    return found
