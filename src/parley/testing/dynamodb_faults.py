"""Injected faults of DynamoDB, for tests: the emulator never has them, the real service does.

Off by default. The environment gives the share of requests for each fault:

    PARLEY_TEST_DYNAMODB=throttle:0.1,transact_conflict:0.2,timeout_done:0.05,seed:7
    PARLEY_TEST_DYNAMODB=late_ms:400

    throttle             refused because of the rate; nothing is done
    transact_conflict    a transaction, or a write of one item, conflicts with another; nothing is done
    timeout_done         done, but the response is lost
    timeout_not_done     the request is lost; nothing is done
    server_error         500; the request was done or not, at random
    unprocessed          a part of a batch is left for later
    torn_page            a query or batch misses some items of a transaction that runs at the same time
    seed                 of the random numbers
    late_ms              not a share: every response comes this much later
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any

from parley.store.dynamodb.driver import Fault, Faults, Request, Response, Send
from parley.store.dynamodb.driver.responses import WRITES

VARIABLE = "PARLEY_TEST_DYNAMODB"
READS = frozenset({"GetItem", "BatchGetItem", "Query", "Scan"})
BATCHES = {"BatchGetItem": "UnprocessedKeys", "BatchWriteItem": "UnprocessedItems"}
TORN = frozenset({"BatchGetItem", "Query"})
EVERYTHING = WRITES | READS
REACH = {
    "throttle": EVERYTHING,
    "transact_conflict": WRITES - {"BatchWriteItem"},
    "timeout_done": EVERYTHING,
    "timeout_not_done": EVERYTHING,
    "server_error": EVERYTHING,
    "unprocessed": frozenset(BATCHES),
    "torn_page": TORN,
}
"""Which operations each fault can affect. Creating and describing tables has no faults."""


def faults_from(environment: Mapping[str, str]) -> Faults | None:
    """The faults that the environment of this process asks for."""
    text = environment.get(VARIABLE, "")
    if not text:
        return None
    shares = {
        name.strip(): float(share) for name, _, share in (part.partition(":") for part in text.split(","))
    }
    seed, late_ms = int(shares.pop("seed", 0)), shares.pop("late_ms", 0.0)
    faults = RandomFaults(shares, seed)
    return SlowResponses(faults, late_ms / 1000) if late_ms else faults


async def throttle(operation: str, request: Request, send: Send) -> Response:
    return _refusal("ThrottlingException", "Rate exceeded (injected)")


async def conflict(operation: str, request: Request, send: Send) -> Response:
    """The first action, or the only one, conflicts with another transaction."""
    if operation != "TransactWriteItems":
        return _refusal("TransactionConflictException", "Transaction is ongoing for the item (injected)")
    codes = ["TransactionConflict", *["None"] * (len(request["TransactItems"]) - 1)]
    return _refusal(
        "TransactionCanceledException", "canceled", CancellationReasons=[{"Code": c} for c in codes]
    )


async def timeout_done(operation: str, request: Request, send: Send) -> Response:
    await send(operation, request)
    raise TimeoutError("the response is lost (injected)")


async def timeout_not_done(operation: str, request: Request, send: Send) -> Response:
    raise TimeoutError("the request is lost (injected)")


async def server_error_done(operation: str, request: Request, send: Send) -> Response:
    await send(operation, request)
    return await server_error_not_done(operation, request, send)


async def server_error_not_done(operation: str, request: Request, send: Send) -> Response:
    return Response(500, {"__type": "#InternalServerError", "message": "failed (injected)"})


async def unprocessed(operation: str, request: Request, send: Send) -> Response:
    """Only the first half of a batch, rounded down, is done."""
    [(table, part)] = request["RequestItems"].items()
    whole = part["Keys"] if operation == "BatchGetItem" else part
    half = len(whole) // 2
    body: dict[str, Any] = {"Responses": {}}
    if half:
        body = (await send(operation, {**request, "RequestItems": {table: _of(part, whole[:half])}})).body
    return Response(200, {**body, BATCHES[operation]: {table: _of(part, whole[half:])}})


def _of(part: Any, some: list[Any]) -> Any:
    """The same part of a batch with only some of its keys or writes."""
    return {**part, "Keys": some} if isinstance(part, dict) else some


def _refusal(code: str, message: str, **more: Any) -> Response:
    return Response(400, {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": message, **more})


class RandomFaults:
    """Random faults; the same seed and the same requests get the same ones."""

    def __init__(self, shares: Mapping[str, float], seed: int = 0) -> None:
        unknown = set(shares) - set(REACH)
        if unknown:
            raise ValueError(
                f"{VARIABLE}: {', '.join(sorted(unknown))} is not one of {', '.join(REACH)}, seed"
            )
        self._shares = shares
        self._random = Random(seed)
        self._torn_pages = TornPages(self._random)
        self._faults: dict[str, Fault] = {
            "throttle": throttle,
            "transact_conflict": conflict,
            "timeout_done": timeout_done,
            "timeout_not_done": timeout_not_done,
            "server_error": self._server_error,
            "unprocessed": unprocessed,
            "torn_page": self._torn_pages.tear,
        }

    def __call__(self, operation: str, request: Request) -> Fault | None:
        for name, share in self._shares.items():
            if operation in REACH[name] and self._random.random() < share:
                return self._faults[name]
        is_watched = operation == "TransactWriteItems" and "torn_page" in self._shares
        return self._torn_pages.watch if is_watched else None

    async def _server_error(self, operation: str, request: Request, send: Send) -> Response:
        is_done = self._random.random() < 0.5
        fault = server_error_done if is_done else server_error_not_done
        return await fault(operation, request, send)


class SlowResponses:
    """A slow store: every response takes this many seconds longer."""

    def __init__(self, others: Faults, seconds: float) -> None:
        self._others = others
        self._seconds = seconds

    def __call__(self, operation: str, request: Request) -> Fault | None:
        fault = self._others(operation, request)
        if operation not in EVERYTHING:
            return fault

        async def late(operation: str, request: Request, send: Send) -> Response:
            try:
                return await (send(operation, request) if fault is None else fault(operation, request, send))
            finally:
                await asyncio.sleep(self._seconds)

        return late


Added = list[dict[str, Any]]
"""The items that a transaction adds."""


class TornPages:
    """Makes reads read-committed: while a transaction runs, a page may have a part of its items."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._under_way: dict[object, Added] = {}
        self._readers: dict[object, list[Added]] = {}

    async def watch(self, operation: str, request: Request, send: Send) -> Response:
        """Send a transaction, and record which items it adds while it runs."""
        added = [
            put["Item"] for action in request["TransactItems"] if (put := action.get("Put")) and _is_new(put)
        ]
        this = object()
        self._under_way[this] = added
        for meanwhile in self._readers.values():
            meanwhile.append(added)
        try:
            return await send(operation, request)
        finally:
            del self._under_way[this]

    async def tear(self, operation: str, request: Request, send: Send) -> Response:
        """Leave items of a running transaction out of a page, at random."""
        this, meanwhile = object(), list(self._under_way.values())
        self._readers[this] = meanwhile
        try:
            answer = await send(operation, request)
        finally:
            del self._readers[this]
        added = [item for transaction in meanwhile for item in transaction]
        if added and answer.status == 200:
            for items in answer.body.get("Responses", {"": answer.body.get("Items", [])}).values():
                items[:] = [item for item in items if not self._is_hidden(item, added)]
        return answer

    def _is_hidden(self, found: dict[str, Any], added: Added) -> bool:
        is_torn = any(found.items() <= item.items() for item in added)
        return is_torn and self._random.random() < 0.5


def _is_new(put: Mapping[str, Any]) -> bool:
    """Whether it adds an item: one that replaces another cannot be left out of a page."""
    return "attribute_not_exists" in put.get("ConditionExpression", "")
