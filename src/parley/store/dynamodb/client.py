"""A thin client of DynamoDB: the operations that the store needs, on plain values.

Tables are called by their names in `schema.py`; the prefix is added here. Errors are those of `errors.py`,
and the two that a caller decides upon: `ConditionFailed` and `TransactionCanceled`.
docs/decisions/0007-a-thin-dynamodb-client.md says why it is not aiobotocore.
"""

from __future__ import annotations

import asyncio
import random as chance
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from parley.clock import Clock, wall_clock
from parley.errors import ConfigError, OutcomeUnknown, StoreUnavailable
from parley.store.dynamodb.actions import (
    Action,
    Check,
    Delete,
    Names,
    Page,
    Put,
    Update,
    with_condition,
    with_expression,
)
from parley.store.dynamodb.answers import (
    Capacity,
    ConditionFailed,
    Reason,
    Rejected,
    TransactionCanceled,
    backoff_seconds,
)
from parley.store.dynamodb.calling import (
    ANSWER_SECONDS_MAX,
    ATTEMPTS_MAX,
    DEADLINE_SECONDS,
    Caller,
    Fault,
    Faults,
)
from parley.store.dynamodb.credentials import FindCredentials, credentials_from
from parley.store.dynamodb.together import together
from parley.store.dynamodb.values import Item, Value, from_item, to_item
from parley.telemetry import Metrics

__all__ = [
    "Action",
    "Check",
    "ConditionFailed",
    "Delete",
    "Dynamo",
    "Fault",
    "Item",
    "Page",
    "Put",
    "Reason",
    "TransactionCanceled",
    "Update",
    "Value",
]

ACTIONS_MAX = 100
BATCH_GET_MAX = 100
BATCH_WRITE_MAX = 25
BATCHES_AT_ONCE_MAX = 8
TOKEN_LETTERS_MAX = 36

T = TypeVar("T")


class Dynamo:
    """DynamoDB, or what speaks like it, at one endpoint.

    An empty endpoint is that of AWS in the region; an empty region the one that AWS tools would use here.
    `faults` is for tests.
    """

    def __init__(
        self,
        endpoint: str,
        region: str,
        *,
        prefix: str = "",
        credentials: FindCredentials | None = None,
        metrics: Metrics | None = None,
        clock: Clock = wall_clock,
        random: Callable[[], float] = chance.random,
        faults: Faults | None = None,
        answer_seconds: float = ANSWER_SECONDS_MAX,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        self.prefix = prefix
        self._random = random
        self._caller = Caller(
            endpoint,
            region,
            credentials=credentials or credentials_from(),
            metrics=metrics,
            clock=clock,
            random=random,
            faults=faults,
            answer_seconds=answer_seconds,
            deadline_seconds=deadline_seconds,
        )

    @property
    def endpoint(self) -> str:
        return self._caller.endpoint

    @property
    def region(self) -> str:
        return self._caller.region

    @property
    def capacity(self) -> Capacity:
        return self._caller.capacity

    async def open(self) -> None:
        """Find region and credentials, ConfigError if there are none; connects to nothing: see `check`."""
        await self._caller.open()

    async def close(self) -> None:
        await self._caller.close()

    async def call(self, operation: str, request: dict[str, Any], attempts_max: int = ATTEMPTS_MAX) -> Any:
        """Any operation by its name, for what has no verb here."""
        return await self._caller.call(operation, request, attempts_max)

    def table(self, name: str) -> str:
        """What a table is called in DynamoDB."""
        return self.prefix + name

    async def check(self) -> None:
        """Whether it can be used at all: ConfigError in one sentence if not."""
        try:
            await self.call("ListTables", {"Limit": 1}, attempts_max=1)
        except Rejected as error:
            if error.code != "AccessDeniedException":  # who may not list tables is nevertheless known
                raise ConfigError(f"{error} (region {self.region}, {self.endpoint})") from error
        except StoreUnavailable as error:
            raise ConfigError(f"{error}; check dynamodb.endpoint and dynamodb.region") from error

    # Reading

    async def get(self, table: str, key: Item, *, consistent: bool = True) -> Item | None:
        """One item, or None."""
        request = self._request(table, Key=to_item(key), ConsistentRead=consistent)
        attributes = (await self.call("GetItem", request)).get("Item")
        return None if attributes is None else from_item(attributes)

    async def batch_get(self, table: str, keys: Sequence[Item], *, consistent: bool = True) -> list[Item]:
        """The items of any number of different keys that exist, in no order."""
        name = self.table(table)

        async def get_chunk(chunk: Sequence[Item]) -> list[Item]:
            wanted = {name: {"Keys": [to_item(key) for key in chunk], "ConsistentRead": consistent}}
            answers = await self._drain("BatchGetItem", wanted, "UnprocessedKeys")
            return [from_item(found) for answer in answers for found in answer["Responses"].get(name, ())]

        found = await together(get_chunk, _chunks(keys, BATCH_GET_MAX), BATCHES_AT_ONCE_MAX)
        return [item for items in found for item in items]

    async def query(
        self,
        table: str,
        condition: str,
        values: Item,
        *,
        names: Names | None = None,
        filter: str | None = None,  # noqa: A002 - DynamoDB's own word
        forward: bool = True,
        limit: int | None = None,
        consistent: bool = True,
        index: str | None = None,
        start: Item | None = None,
        projection: str | None = None,
    ) -> Page:
        """One page, at most 1 MB before the filter. An index is never read consistently: none can be."""
        request = self._request(table, KeyConditionExpression=condition, ScanIndexForward=forward)
        with_expression(request, values, names)
        _narrow(request, filter, limit, consistent, index, start, projection)
        return _page(await self.call("Query", request))

    async def query_all(
        self, table: str, condition: str, values: Item, *, start: Item | None = None, **options: Any
    ) -> list[Item]:
        """Every item, over as many pages as it takes; `options` are those of `query`."""
        items: list[Item] = []
        while True:
            page = await self.query(table, condition, values, start=start, **options)
            items += page.items
            start = page.next_key
            if start is None:
                return items

    async def count(
        self,
        table: str,
        condition: str,
        values: Item,
        *,
        maximum: int,
        names: Names | None = None,
        filter: str | None = None,  # noqa: A002 - DynamoDB's own word
        consistent: bool = True,
        index: str | None = None,
    ) -> int:
        """How many items there are; counting stops at the maximum."""
        request = self._request(table, KeyConditionExpression=condition, Select="COUNT")
        with_expression(request, values, names)
        _narrow(request, filter, None, consistent, index, None, None)
        counted: int = 0
        while True:
            answer = await self.call("Query", {**request, "Limit": maximum - counted})
            counted += answer["Count"]
            request = {**request, "ExclusiveStartKey": answer.get("LastEvaluatedKey")}
            if counted >= maximum or request["ExclusiveStartKey"] is None:
                return counted

    async def scan(
        self,
        table: str,
        *,
        filter: str | None = None,  # noqa: A002 - DynamoDB's own word
        values: Item | None = None,
        names: Names | None = None,
        limit: int | None = None,
        consistent: bool = True,
        index: str | None = None,
        start: Item | None = None,
        projection: str | None = None,
    ) -> Page:
        """One page of a whole table or index, in no order."""
        request = with_expression(self._request(table), values, names)
        _narrow(request, filter, limit, consistent, index, start, projection)
        return _page(await self.call("Scan", request))

    # Writing

    async def put(
        self,
        table: str,
        item: Item,
        *,
        condition: str | None = None,
        values: Item | None = None,
        names: Names | None = None,
    ) -> None:
        """Durable before it returns; ConditionFailed when the condition did not hold."""
        request = with_condition(self._request(table, Item=to_item(item)), condition, values, names)
        await self.call("PutItem", request)

    async def update(
        self,
        table: str,
        key: Item,
        expression: str,
        values: Item | None = None,
        *,
        condition: str | None = None,
        names: Names | None = None,
        returns: str = "NONE",
    ) -> Item:
        """Durable before it returns. `returns`: which attributes, such as UPDATED_NEW or ALL_NEW."""
        request = self._request(table, Key=to_item(key), UpdateExpression=expression, ReturnValues=returns)
        answer = await self.call("UpdateItem", with_condition(request, condition, values, names))
        return from_item(answer.get("Attributes", {}))

    async def delete(
        self,
        table: str,
        key: Item,
        *,
        condition: str | None = None,
        values: Item | None = None,
        names: Names | None = None,
    ) -> None:
        """Gone before it returns, whether it was there or not, unless a condition says otherwise."""
        request = with_condition(self._request(table, Key=to_item(key)), condition, values, names)
        await self.call("DeleteItem", request)

    async def batch_put(self, table: str, items: Sequence[Item]) -> None:
        """Each durable before it returns, none in relation to another; keys must differ."""
        await self._batch_write(table, [{"PutRequest": {"Item": to_item(item)}} for item in items])

    async def batch_delete(self, table: str, keys: Sequence[Item]) -> None:
        """Each gone before it returns, none in relation to another; keys must differ."""
        await self._batch_write(table, [{"DeleteRequest": {"Key": to_item(key)}} for key in keys])

    async def transact(self, actions: Sequence[Action], token: str) -> None:
        """All or nothing, durable before it returns. TransactionCanceled tells why nothing was written.

        After OutcomeUnknown, the same actions with the same token (within 10 minutes) are done once at most.
        """
        if not 0 < len(actions) <= ACTIONS_MAX or not 0 < len(token) <= TOKEN_LETTERS_MAX:
            raise ValueError(f"1 to {ACTIONS_MAX} actions, and a token of 1 to {TOKEN_LETTERS_MAX} letters")
        request = {
            "TransactItems": [action.request(self.table) for action in actions],
            "ClientRequestToken": token,
            "ReturnConsumedCapacity": "TOTAL",
        }
        await self.call("TransactWriteItems", request)

    async def _batch_write(self, table: str, writes: list[dict[str, Any]]) -> None:
        name = self.table(table)

        async def write_chunk(chunk: Sequence[dict[str, Any]]) -> None:
            await self._drain("BatchWriteItem", {name: list(chunk)}, "UnprocessedItems")

        await together(write_chunk, _chunks(writes, BATCH_WRITE_MAX), BATCHES_AT_ONCE_MAX)

    async def _drain(self, operation: str, wanted: dict[str, Any], unprocessed: str) -> list[dict[str, Any]]:
        """Ask again for what was left over, until nothing is."""
        answers = []
        for attempt in range(1, ATTEMPTS_MAX + 1):
            request = {"RequestItems": wanted, "ReturnConsumedCapacity": "TOTAL"}
            answers.append(await self.call(operation, request))
            wanted = answers[-1].get(unprocessed)
            if not wanted:
                return answers
            self.capacity.note_retry(operation)
            await asyncio.sleep(backoff_seconds(attempt, self._random()))
        if operation == "BatchWriteItem":
            raise OutcomeUnknown("DynamoDB is busy: a part of a batch is written, a part is not")
        raise StoreUnavailable("DynamoDB is busy: a part of a batch is never answered")

    def _request(self, table: str, **parts: Any) -> dict[str, Any]:
        return {"TableName": self.table(table), "ReturnConsumedCapacity": "TOTAL", **parts}


def _narrow(
    request: dict[str, Any],
    filter_expression: str | None,
    limit: int | None,
    consistent: bool,
    index: str | None,
    start: Item | None,
    projection: str | None,
) -> None:
    """What a query and a scan have in common."""
    optional = {
        "FilterExpression": filter_expression,
        "Limit": limit,
        "IndexName": index,
        "ExclusiveStartKey": to_item(start) if start else None,
        "ProjectionExpression": projection,
    }
    request["ConsistentRead"] = consistent and index is None
    request.update({name: value for name, value in optional.items() if value is not None})


def _page(answer: dict[str, Any]) -> Page:
    next_key = answer.get("LastEvaluatedKey")
    items = [from_item(attributes) for attributes in answer["Items"]]
    return Page(items, from_item(next_key) if next_key else None)


def _chunks(things: Sequence[T], size: int) -> Iterable[Sequence[T]]:
    return (things[first : first + size] for first in range(0, len(things), size))
