"""A stand-in for DynamoDB that stores the logs of chats in memory, with the latency of DynamoDB.

DynamoDB Local takes 2 ms for each message, so a batch is as slow as it is large. This one stores entries,
keys, counters and chats itself and forwards the rest; it reads what it has not seen yet from the store
behind it. A position or a key is written once; no other condition is checked, because with one node none
fails. So use it only to measure one node.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
from collections.abc import Awaitable, Callable, Mapping
from itertools import islice
from typing import Any

import aiohttp
import msgspec
import uvloop
from aiohttp import web

from bench.dynamodb.services import PREFIX
from bench.dynamodb.stand_in import BODY_BYTES_MAX, CONTENT_TYPE, PASSED_ON, no_metrics
from parley.store.dynamodb.schema import CHATS, COUNTERS, KEYS, MESSAGES, TABLES

WRITTEN_ONCE = frozenset({MESSAGES, KEYS})
REMEMBERED = WRITTEN_ONCE | {COUNTERS, CHATS}
KEY_ATTRIBUTES = {table.name: [key["AttributeName"] for key in table.keys] for table in TABLES.values()}
CLAUSE = re.compile(r"(SET|ADD|REMOVE)\s+(.*?)(?=\s+(?:SET|ADD|REMOVE)\s|$)")

SINGLE_MS = 5.0
TRANSACTION_MS = 10.0
SPREAD = 0.4
"""Lognormal: the slowest hundredth of the requests take 2.5 times as long as the middle one."""

Item = dict[str, Any]
Request = Mapping[str, Any]
Fetch = Callable[[str, Item], Awaitable[Item | None]]
"""An item by its table and key, from the store behind."""


class Canceled(Exception):
    """A transaction at a position or key that already exists; `codes` has one result per action."""

    def __init__(self, codes: list[str]) -> None:
        super().__init__("canceled")
        self.codes = codes


class Memory:
    """The tables of the log, as far as anything was written there."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._tables: dict[str, dict[tuple[str, ...], Item]] = {name: {} for name in REMEMBERED}
        self._ends: dict[str, int] = {}

    async def answer(self, operation: str, request: Request) -> Item | None:
        """The body of the response; None for requests that it does not handle."""
        match operation:
            case "TransactWriteItems":
                return await self._transact(request["TransactItems"])
            case "BatchGetItem" if all(_name(table) in REMEMBERED for table in request["RequestItems"]):
                return await self._batch_get(request["RequestItems"])
            case "BatchWriteItem" if all(_name(table) in REMEMBERED for table in request["RequestItems"]):
                return self._batch_put(request["RequestItems"])
            case "UpdateItem" if _name(request["TableName"]) in REMEMBERED:
                return {"Attributes": await self._update(request)}
            case "GetItem" if _name(request["TableName"]) in REMEMBERED:
                found = await self._find(request["TableName"], request["Key"])
                return {} if found is None else {"Item": found}
            case "Query" if _name(request["TableName"]) == MESSAGES:
                return self._query(request)
        return None

    async def _transact(self, actions: list[Item]) -> Item:
        codes = ["ConditionalCheckFailed" if self._is_taken(action) else "None" for action in actions]
        if set(codes) != {"None"}:
            raise Canceled(codes)
        for action in actions:
            if put := action.get("Put"):
                self._put(put["TableName"], put["Item"])
            elif update := action.get("Update"):
                await self._update(update)
        return {}

    def _put(self, table: str, item: Item) -> None:
        self._table(table)[_key(table, item)] = item
        if _name(table) == MESSAGES:
            chat, sequence = item["chat_id"]["S"], int(item["sequence"]["N"])
            self._ends[chat] = max(sequence, self._ends.get(chat, 0))

    def _batch_put(self, asked: Mapping[str, list[Item]]) -> Item:
        for table, writes in asked.items():
            for write in writes:
                self._put(table, write["PutRequest"]["Item"])
        return {"UnprocessedItems": {}}

    def _is_taken(self, action: Item) -> bool:
        put = action.get("Put")
        if put is None or _name(put["TableName"]) not in WRITTEN_ONCE:
            return False
        return _key(put["TableName"], put["Item"]) in self._table(put["TableName"])

    async def _update(self, request: Request) -> Item:
        table, key = request["TableName"], request["Key"]
        item = dict(await self._find(table, key) or key)
        names, values = (request.get(f"ExpressionAttribute{kind}", {}) for kind in ("Names", "Values"))
        for verb, clause in CLAUSE.findall(request["UpdateExpression"]):
            for part in clause.split(","):
                _apply(item, verb, part, names, values)
        self._table(table)[_key(table, key)] = item
        return item

    async def _find(self, table: str, key: Item) -> Item | None:
        found = self._table(table).get(_key(table, key))
        if found is None and _name(table) not in WRITTEN_ONCE:
            found = await self._fetch(table, key)
        return found

    async def _batch_get(self, asked: Mapping[str, Request]) -> Item:
        responses: Item = {}
        for table, part in asked.items():
            found = [await self._find(table, key) for key in part["Keys"]]
            responses[table] = [item for item in found if item is not None]
        return {"Responses": responses, "UnprocessedKeys": {}}

    def _query(self, request: Request) -> Item:
        """A chat's entries between two positions, or all of them."""
        values, entries = request["ExpressionAttributeValues"], self._table(request["TableName"])
        first, last = (int(values.get(f":{end}", {"N": str(bare)})["N"]) for end, bare in _ENDS)
        chat = values[":chat"]["S"]
        places = range(first, min(last, self._ends.get(chat, 0)) + 1)
        ordered = places if request.get("ScanIndexForward", True) else reversed(places)
        items = (entries[chat, str(at)] for at in ordered if (chat, str(at)) in entries)
        found = list(islice(items, request.get("Limit")))
        return {"Items": found, "Count": len(found)}

    def _table(self, table: str) -> dict[tuple[str, ...], Item]:
        return self._tables[_name(table)]


_ENDS = (("first", 1), ("last", 2**53))


def _name(table: str) -> str:
    return table.removeprefix(PREFIX)


def _key(table: str, item: Item) -> tuple[str, ...]:
    return tuple(str(next(iter(item[name].values()))) for name in KEY_ATTRIBUTES[_name(table)])


def _apply(item: Item, verb: str, part: str, names: Mapping[str, str], values: Item) -> None:
    """One assignment of an update; KeyError for what this stand-in does not understand."""
    words = part.replace("=", " ").split()
    name = names.get(words[0], words[0])
    if verb == "REMOVE":
        item.pop(name, None)
    elif verb == "ADD":
        before = int(item.get(name, {"N": "0"})["N"])
        item[name] = {"N": str(before + int(values[words[1]]["N"]))}
    else:
        item[name] = values[words[1]]


class Remembering:
    """Speaks HTTP. `chance` draws the delays."""

    def __init__(self, behind: str, chance: random.Random) -> None:
        self._behind = behind
        self._chance = chance
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        self._headers: dict[str, str] = {}
        self._memory = Memory(self._fetch)
        self._turn = asyncio.Lock()

    async def answer(self, request: web.Request) -> web.Response:
        operation = request.headers.get("X-Amz-Target", "").rpartition(".")[2]
        headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        body = await request.read()
        if not operation.startswith(("Transact", "Batch", "Update", "Get", "Query")):
            return await self._pass_on(body, headers)
        median_ms = TRANSACTION_MS if operation == "TransactWriteItems" else SINGLE_MS
        await asyncio.sleep(median_ms / 1_000 * self._chance.lognormvariate(0.0, SPREAD))
        self._headers = headers
        try:
            async with self._turn:  # what an update reads and writes is one step
                found = await self._memory.answer(operation, msgspec.json.decode(body))
        except Canceled as canceled:
            reasons = [{"Code": code} for code in canceled.codes]
            kind = "com.amazonaws.dynamodb.v20120810#TransactionCanceledException"
            return _json({"__type": kind, "message": "canceled", "CancellationReasons": reasons}, 400)
        return await self._pass_on(body, headers) if found is None else _json(found)

    async def _fetch(self, table: str, key: Item) -> Item | None:
        body = msgspec.json.encode({"TableName": table, "Key": key, "ConsistentRead": True})
        headers = {**self._headers, "X-Amz-Target": "DynamoDB_20120810.GetItem"}
        async with self._session.post(self._behind, data=body, headers=headers) as answer:
            found: Item | None = msgspec.json.decode(await answer.read()).get("Item")
            return found

    async def _pass_on(self, body: bytes, headers: dict[str, str]) -> web.Response:
        async with self._session.post(self._behind, data=body, headers=headers) as answer:
            return web.Response(
                body=await answer.read(), status=answer.status, content_type=answer.content_type
            )


def _json(body: Item, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type=CONTENT_TYPE)


async def serve(port: int, behind: str) -> None:
    app = web.Application(client_max_size=BODY_BYTES_MAX)
    stand_in = Remembering(behind, random.Random(1))
    app.add_routes([web.post("/", stand_in.answer), web.get("/metrics", no_metrics)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    print(f"parley ready on http://127.0.0.1:{port}", flush=True)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--behind", required=True)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    uvloop.run(serve(options.port, options.behind))


if __name__ == "__main__":
    main()
