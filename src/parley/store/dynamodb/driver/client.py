"""The client: DynamoDB's operations as verbs on plain values, signed, with deadlines and retries.

Tables are named without their prefix, which the client adds. A read is retried until a deadline. A write is
retried only when it was certainly not done; when its outcome is unknown, `OutcomeUnknown` is raised at once
and the caller decides. docs/decisions/0007-a-thin-dynamodb-client.md says why this is not aiobotocore.
"""

from __future__ import annotations

import asyncio
import io
import random as chance
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec
import structlog
from yarl import URL

from parley import __version__
from parley.clock import Clock, wall_clock
from parley.concurrency import map_concurrently
from parley.errors import ConfigError, OutcomeUnknown, StoreUnavailable
from parley.store.dynamodb.driver.auth import (
    RENEW_SECONDS,
    Credentials,
    FindCredentials,
    Signer,
    credentials_from,
    find_region,
)
from parley.store.dynamodb.driver.items import (
    Action,
    Item,
    ItemPage,
    Names,
    from_item,
    to_item,
    with_condition,
    with_expression,
)
from parley.store.dynamodb.driver.responses import (
    WRITES,
    RequestRejected,
    Response,
    backoff_seconds,
    failure_in,
    lost,
    unreachable,
)
from parley.telemetry import Metrics

ACTIONS_MAX = 100
BATCH_GET_MAX = 100
BATCH_WRITE_MAX = 25
BATCHES_AT_ONCE_MAX = 8
TOKEN_CHARS_MAX = 36
UNKNOWN_ATTEMPTS_MAX = 3
"""Each may take as long as a whole request, so a caller soon learns that the outcome is unknown."""
CONNECTIONS_MAX = 64
CONNECT_SECONDS_MAX = 3.0
"""Includes the wait for a free connection. Past it, the request fails and was not sent."""
ANSWER_SECONDS_MAX = 8.0
IDLE_SECONDS_MAX = 15.0
"""Shorter than any server's own limit, so that no request meets a connection that is being closed."""
DEADLINE_SECONDS = 12.0
"""No attempt begins after it."""
ATTEMPTS_MAX = 12
BODY_BYTES_STREAMED = 512 * 1024
"""A larger body is written in pieces, so that other tasks can run in between."""
assert CONNECT_SECONDS_MAX + ANSWER_SECONDS_MAX < DEADLINE_SECONDS, "one attempt always fits"

Request = dict[str, Any]
Send = Callable[[str, Request], Awaitable[Response]]
Fault = Callable[[str, Request, Send], Awaitable[Response]]
"""For tests, in place of sending a request: it may send it, change its response or raise TimeoutError."""
Faults = Callable[[str, Request], Fault | None]

log = structlog.get_logger("parley.store.dynamodb")

T = TypeVar("T")


class Capacity:
    """Counts requests, retries and consumed units by operation. DynamoDB reports no units for a failure."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        self._metrics = metrics
        self.write_units: Counter[str] = Counter()
        self.read_units: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()
        self.retries: Counter[str] = Counter()

    def count_request(self, operation: str) -> None:
        self.requests[operation] += 1
        if self._metrics is not None:
            self._metrics.dynamodb_requests.labels(operation).inc()

    def count_retry(self, operation: str) -> None:
        self.retries[operation] += 1
        if self._metrics is not None:
            self._metrics.dynamodb_retries.labels(operation).inc()

    def count_units(self, operation: str, body: Mapping[str, Any]) -> None:
        consumed = body.get("ConsumedCapacity")
        if consumed is None:
            return
        parts = consumed if isinstance(consumed, list) else (consumed,)
        units = sum(part["CapacityUnits"] for part in parts)
        (self.write_units if operation in WRITES else self.read_units)[operation] += units
        if self._metrics is not None:
            self._metrics.dynamodb_units.labels(operation).inc(units)


class Dynamo:
    """A client of DynamoDB, or of a compatible server, at one endpoint.

    An empty endpoint is AWS's in the region; an empty region is the one that AWS tools would use here.
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
        self.endpoint = endpoint
        self.region = region
        self.capacity = Capacity(metrics)
        self._find_credentials = credentials or credentials_from()
        self._clock = clock
        self._random = random
        self._faults = faults
        self._answer_seconds = answer_seconds
        self._deadline_seconds = deadline_seconds
        self._encoder = msgspec.json.Encoder()
        self._decoder = msgspec.json.Decoder(dict[str, Any])
        self._signer: Signer | None = None
        self._credentials: Credentials | None = None
        self._session: aiohttp.ClientSession | None = None
        self._renewing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Find region and credentials, ConfigError if there are none. Does not connect yet: see `check`.

        A client that is open stays as it is.
        """
        if self._session is not None:
            return
        self.region = self.region or await find_region()
        self.endpoint = endpoint_of(self.endpoint, self.region)
        self._url = URL(f"{self.endpoint}/")
        self._signer = Signer(urlsplit(self.endpoint).netloc, self.region)
        self._credentials = await self._find_credentials()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CONNECTIONS_MAX, keepalive_timeout=IDLE_SECONDS_MAX),
            timeout=aiohttp.ClientTimeout(connect=CONNECT_SECONDS_MAX, sock_read=self._answer_seconds),
            headers={"Accept-Encoding": "identity", "User-Agent": f"parley/{__version__}"},
            skip_auto_headers=("Accept",),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        self._renewing = asyncio.create_task(self._renew())

    async def close(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])
        if self._session is not None:
            await self._session.close()
        self._session = self._renewing = None

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                self._credentials = await self._find_credentials()
            except ConfigError as error:
                log.warning("credentials not renewed", reason=str(error))

    async def call(self, operation: str, request: Request, attempts_max: int = ATTEMPTS_MAX) -> Any:
        """The body of the response to any operation, after as many attempts as are safe and useful."""
        is_write = operation in WRITES
        time = asyncio.get_running_loop().time
        give_up_at = time() + self._deadline_seconds
        attempt = 1
        while True:
            self.capacity.count_request(operation)
            fault = self._faults(operation, request) if self._faults is not None else None
            try:
                if fault is None:
                    response = await self._send(operation, request)
                else:
                    response = await fault(operation, request, self._send)
            except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                failure = unreachable(self.endpoint, error)
            except (aiohttp.ClientError, OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
                failure = lost(operation, error)
            else:
                if response.status == 200:
                    self.capacity.count_units(operation, response.body)
                    return response.body
                failure = failure_in(operation, request, response)
            pause = backoff_seconds(attempt, self._random())
            is_too_late = attempt >= attempts_max or time() + pause >= give_up_at
            if is_too_late or not failure.should_retry(is_write):
                raise failure.error(is_write)
            self.capacity.count_retry(operation)
            attempt += 1
            await asyncio.sleep(pause)

    async def _send(self, operation: str, request: Request) -> Response:
        if self._session is None or self._credentials is None or self._signer is None:
            raise RuntimeError("the client is not open")
        body = self._encoder.encode(request)
        headers = self._signer.headers(self._credentials, operation, body, self._clock())
        data = body if len(body) < BODY_BYTES_STREAMED else io.BytesIO(body)
        async with self._session.post(
            self._url, data=data, headers=headers, allow_redirects=False
        ) as response:
            content = await response.read()
            checksum = response.headers.get("x-amz-crc32")
        if checksum is not None and checksum != str(zlib.crc32(content)):
            raise aiohttp.ClientPayloadError("the answer does not match its checksum")
        if response.status != 200:
            return Response(response.status, self._error_body(content))
        return Response(response.status, self._decoder.decode(content))

    def _error_body(self, content: bytes) -> dict[str, Any]:
        """A proxy in front of DynamoDB may respond with something other than JSON."""
        try:
            return self._decoder.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return {}

    def table(self, name: str) -> str:
        """What a table is called in DynamoDB."""
        return self.prefix + name

    async def check(self) -> None:
        """Send one request with these credentials. ConfigError in one sentence if it fails."""
        try:
            await self.call("ListTables", {"Limit": 1}, attempts_max=1)
        except RequestRejected as error:
            if error.code != "AccessDeniedException":  # the credentials are known, but may not list tables
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
        """The items of these keys that exist, in no order. Keys must differ."""
        name = self.table(table)

        async def get_chunk(chunk: Sequence[Item]) -> list[Item]:
            wanted = {name: {"Keys": [to_item(key) for key in chunk], "ConsistentRead": consistent}}
            answers = await self._drain("BatchGetItem", wanted, "UnprocessedKeys")
            return [from_item(found) for answer in answers for found in answer["Responses"].get(name, ())]

        found = await map_concurrently(get_chunk, _chunks(keys, BATCH_GET_MAX), BATCHES_AT_ONCE_MAX)
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
    ) -> ItemPage:
        """One page, at most 1 MB before the filter. DynamoDB cannot read an index consistently."""
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
    ) -> ItemPage:
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
        """Deleted before it returns. Without a condition a missing item is no error."""
        request = with_condition(self._request(table, Key=to_item(key)), condition, values, names)
        await self.call("DeleteItem", request)

    async def batch_put(self, table: str, items: Sequence[Item]) -> None:
        """Each is durable before it returns; together they are not atomic. Keys must differ."""
        await self._batch_write(table, [{"PutRequest": {"Item": to_item(item)}} for item in items])

    async def batch_delete(self, table: str, keys: Sequence[Item]) -> None:
        """Each is deleted before it returns; together they are not atomic. Keys must differ."""
        await self._batch_write(table, [{"DeleteRequest": {"Key": to_item(key)}} for key in keys])

    async def transact(self, actions: Sequence[Action], token: str) -> None:
        """All or nothing, durable before it returns. TransactionCanceled says why nothing was written.

        After OutcomeUnknown, the same actions with the same token (within 10 minutes) are done once at most.
        """
        if not 0 < len(actions) <= ACTIONS_MAX or not 0 < len(token) <= TOKEN_CHARS_MAX:
            raise ValueError(f"1 to {ACTIONS_MAX} actions, and a token of 1 to {TOKEN_CHARS_MAX} characters")
        request = {
            "TransactItems": [action.request(self.prefix) for action in actions],
            "ClientRequestToken": token,
            "ReturnConsumedCapacity": "TOTAL",
        }
        await self.call("TransactWriteItems", request)

    async def _batch_write(self, table: str, writes: list[dict[str, Any]]) -> None:
        name = self.table(table)

        async def write_chunk(chunk: Sequence[dict[str, Any]]) -> None:
            await self._drain("BatchWriteItem", {name: list(chunk)}, "UnprocessedItems")

        await map_concurrently(write_chunk, _chunks(writes, BATCH_WRITE_MAX), BATCHES_AT_ONCE_MAX)

    async def _drain(self, operation: str, wanted: dict[str, Any], unprocessed: str) -> list[dict[str, Any]]:
        """Send unprocessed items again until there are none."""
        answers = []
        for attempt in range(1, ATTEMPTS_MAX + 1):
            request = {"RequestItems": wanted, "ReturnConsumedCapacity": "TOTAL"}
            answers.append(await self.call(operation, request))
            wanted = answers[-1].get(unprocessed)
            if not wanted:
                return answers
            self.capacity.count_retry(operation)
            await asyncio.sleep(backoff_seconds(attempt, self._random()))
        if operation == "BatchWriteItem":
            raise OutcomeUnknown("DynamoDB is busy: a part of a batch is written, a part is not")
        raise StoreUnavailable("DynamoDB is busy: it did not return all items of a batch")

    def _request(self, table: str, **parts: Any) -> dict[str, Any]:
        return {"TableName": self.prefix + table, "ReturnConsumedCapacity": "TOTAL", **parts}


def _narrow(
    request: dict[str, Any],
    filter_expression: str | None,
    limit: int | None,
    consistent: bool,
    index: str | None,
    start: Item | None,
    projection: str | None,
) -> None:
    """Add the parameters that a query and a scan have in common."""
    optional = {
        "FilterExpression": filter_expression,
        "Limit": limit,
        "IndexName": index,
        "ExclusiveStartKey": to_item(start) if start else None,
        "ProjectionExpression": projection,
    }
    request["ConsistentRead"] = consistent and index is None
    request.update({name: value for name, value in optional.items() if value is not None})


def _page(answer: dict[str, Any]) -> ItemPage:
    next_key = answer.get("LastEvaluatedKey")
    items = [from_item(attributes) for attributes in answer["Items"]]
    return ItemPage(items, from_item(next_key) if next_key else None)


def _chunks(things: Sequence[T], size: int) -> Iterable[Sequence[T]]:
    return (things[first : first + size] for first in range(0, len(things), size))


def endpoint_of(endpoint: str, region: str) -> str:
    """The endpoint without a slash at its end; that of AWS in the region when none is given."""
    if not region.replace("-", "").isalnum():
        raise ConfigError(f"dynamodb.region must be a region's name such as eu-central-1, not {region!r}")
    if not endpoint:
        return f"https://dynamodb.{region}.amazonaws.com{'.cn' if region.startswith('cn-') else ''}"
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.path.strip("/") or parts.query:
        raise ConfigError(f"dynamodb.endpoint must be like http://127.0.0.1:8000, not {endpoint!r}")
    return f"{parts.scheme}://{parts.netloc}"


# For callers


async def retry_unknown(write: Callable[[], Awaitable[T]]) -> T:
    """Call `write` again while its outcome is unknown.

    It must be harmless to do twice: a transaction with its token is, and so is a write whose condition fails
    once it is done. StoreUnavailable only if no attempt can have done it.
    """
    unknown: OutcomeUnknown | None = None
    for _ in range(UNKNOWN_ATTEMPTS_MAX):
        try:
            return await write()
        except OutcomeUnknown as error:
            unknown = error
        except StoreUnavailable as error:
            if unknown is None:
                raise
            raise unknown from error
    assert unknown is not None
    raise unknown
