"""The port `DeliveryQueues` on DynamoDB.

Queues are in shards by a hash of their chat, so that no partition is hot. A shard is sorted by recipient:
one query finds the queues of a kind of recipients, or of one recipient. Opening a queue is one write, and so
is its end; only a worker that looks for what was left behind reads the shards.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Collection, Sequence
from typing import cast

import msgspec
from msgspec.structs import replace

from parley.core.deliveries import DeliveryEvent, DeliveryQueue, QueueClaim
from parley.store.dynamodb.driver import (
    ConditionFailed,
    Dynamo,
    Item,
    map_concurrently,
    number,
    retry_unknown,
)
from parley.store.dynamodb.schema import QUEUES, SEPARATOR

SHARDS = 32
WRITES_AT_ONCE_MAX = 16
SHARDS_AT_ONCE_MAX = 8

OPEN_OR_RAISE = (
    "SET target = :last, chat_id = :chat, recipient = :recipient,"
    " next_sequence = if_not_exists(next_sequence, :first), due_ms = if_not_exists(due_ms, :due),"
    " retry_count = if_not_exists(retry_count, :zero), crashes = if_not_exists(crashes, :zero),"
    " attempts = if_not_exists(attempts, :none), claim = if_not_exists(claim, :token)"
)
ADVANCE = (
    "SET next_sequence = :next, due_ms = :due, retry_count = :retries, crashes = :crashes,"
    " attempts = :attempts, claim = :new"
)

encode = msgspec.json.Encoder().encode
decode_events = msgspec.json.Decoder(tuple[DeliveryEvent, ...]).decode


class DynamoDeliveryQueues:
    def __init__(self, dynamo: Dynamo) -> None:
        self._dynamo = dynamo
        self._next_shard = 0

    async def extend(
        self, chat_id: str, recipients: Sequence[str], first: int, last: int, claim: QueueClaim | None = None
    ) -> list[DeliveryQueue]:
        token, due_ms = (claim.token, claim.until_ms) if claim is not None else ("", 0)

        async def extend_one(recipient: str) -> DeliveryQueue | None:
            values: Item = {
                ":chat": chat_id,
                ":recipient": recipient,
                ":first": first,
                ":last": last,
                ":due": due_ms,
                ":token": token,
                ":zero": 0,
                ":none": "[]",
            }
            try:
                before = await retry_unknown(
                    lambda: self._dynamo.update(
                        QUEUES,
                        queue_key(chat_id, recipient),
                        OPEN_OR_RAISE,
                        values,
                        condition="attribute_not_exists(target) OR target < :last",
                        returns="ALL_OLD",
                    )
                )
            except ConditionFailed as error:
                # Its target is as high: an earlier attempt whose answer was lost may have opened it.
                return _own(error.item, token)
            return (
                None
                if before
                else DeliveryQueue(
                    chat_id=chat_id,
                    recipient=recipient,
                    next_sequence=first,
                    target=last,
                    due_ms=due_ms,
                    claim=token,
                )
            )

        found = await map_concurrently(extend_one, recipients, WRITES_AT_ONCE_MAX)
        return [queue for queue in found if queue is not None]

    async def due(
        self, prefix: str, now_ms: int, limit: int, besides: Collection[str] = ()
    ) -> list[DeliveryQueue]:
        """Begins with another shard each time, and ends as soon as there are enough."""
        first, self._next_shard = self._next_shard, (self._next_shard + 1) % SHARDS
        shards = [(first + step) % SHARDS for step in range(SHARDS)]
        found: list[DeliveryQueue] = []
        for start in range(0, SHARDS, SHARDS_AT_ONCE_MAX):
            some = shards[start : start + SHARDS_AT_ONCE_MAX]

            async def look(shard: int) -> list[DeliveryQueue]:
                return await self._due_in(shard, prefix, now_ms, limit, besides)

            for queues in await map_concurrently(look, some, SHARDS_AT_ONCE_MAX):
                found += queues
            if len(found) >= limit:
                break
        return found[:limit]

    async def _due_in(
        self, shard: int, prefix: str, now_ms: int, limit: int, besides: Collection[str]
    ) -> list[DeliveryQueue]:
        found: list[DeliveryQueue] = []
        async for items in self._pages(shard, prefix, "due_ms <= :now", {":now": now_ms}):
            queues = [queue_in(item) for item in items]
            found += [queue for queue in queues if queue.recipient not in besides]
            if len(found) >= limit:
                break
        return found

    async def next_due(self, prefix: str, after_ms: int) -> int | None:
        async def earliest(shard: int) -> int | None:
            pages = self._pages(shard, prefix, "due_ms > :after", {":after": after_ms})
            times = [number(item, "due_ms") async for items in pages for item in items]
            return min(times, default=None)

        found = await map_concurrently(earliest, range(SHARDS), SHARDS_AT_ONCE_MAX)
        return min((time for time in found if time is not None), default=None)

    async def _pages(
        self, shard: int, prefix: str, condition: str | None = None, values: Item | None = None
    ) -> AsyncIterator[list[Item]]:
        keys, wanted = "shard_no = :shard", Item({":shard": shard, **(values or {})})
        if prefix:
            keys, wanted = f"{keys} AND begins_with(lane, :prefix)", wanted | {":prefix": prefix}
        start: Item | None = None
        while True:
            page = await self._dynamo.query(QUEUES, keys, wanted, filter=condition, start=start)
            yield page.items
            start = page.next_key
            if start is None:
                return

    async def claim(
        self, chat_id: str, recipient: str, claim: QueueClaim, now_ms: int
    ) -> DeliveryQueue | None:
        """Without `retry_unknown`: its answer is the queue as it was. An unknown claim runs out by itself."""
        try:
            before = await self._dynamo.update(
                QUEUES,
                queue_key(chat_id, recipient),
                "SET claim = :token, due_ms = :until",
                {":token": claim.token, ":until": claim.until_ms, ":now": now_ms},
                condition="due_ms <= :now",
                returns="ALL_OLD",
            )
        except ConditionFailed:
            return None
        return queue_in(before)

    async def advance(self, queue: DeliveryQueue, token: str) -> DeliveryQueue | None:
        values: Item = {
            ":next": queue.next_sequence,
            ":due": queue.due_ms,
            ":retries": queue.retry_count,
            ":crashes": queue.crashes,
            ":attempts": encode(queue.attempts).decode(),
            ":new": queue.claim,
            ":token": token,
        }
        try:
            stored = await retry_unknown(
                lambda: self._dynamo.update(
                    QUEUES,
                    queue_key(queue.chat_id, queue.recipient),
                    ADVANCE,
                    values,
                    condition="claim = :token",
                    returns="ALL_NEW",
                )
            )
        except ConditionFailed as error:
            # An earlier attempt whose answer was lost may have given the queue back.
            if error.item is None:
                return None
            stored_queue = queue_in(error.item)
            return stored_queue if stored_queue == replace(queue, target=stored_queue.target) else None
        return queue_in(stored)

    async def finish(self, queue: DeliveryQueue) -> bool:
        try:
            await retry_unknown(
                lambda: self._dynamo.delete(
                    QUEUES,
                    queue_key(queue.chat_id, queue.recipient),
                    condition="attribute_not_exists(target) OR (target <= :target AND claim = :claim)",
                    values={":target": queue.target, ":claim": queue.claim},
                )
            )
        except ConditionFailed:
            return False
        return True

    async def forget(self, recipient: str) -> None:
        async def forget_in(shard: int) -> None:
            async for items in self._pages(shard, recipient + SEPARATOR):
                keys: list[Item] = [{"shard_no": item["shard_no"], "lane": item["lane"]} for item in items]
                await self._dynamo.batch_delete(QUEUES, keys)

        await map_concurrently(forget_in, range(SHARDS), SHARDS_AT_ONCE_MAX)


async def queues_of_chat(dynamo: Dynamo, chat_id: str) -> list[Item]:
    """Every queue of a chat: one shard is read."""
    values: Item = {":shard": _shard(chat_id), ":chat": chat_id}
    return await dynamo.query_all(QUEUES, "shard_no = :shard", values, filter="chat_id = :chat")


def _shard(chat_id: str) -> int:
    return zlib.crc32(chat_id.encode()) % SHARDS


def queue_key(chat_id: str, recipient: str) -> Item:
    return {"shard_no": _shard(chat_id), "lane": f"{recipient}{SEPARATOR}{chat_id}"}


def _own(item: Item | None, token: str) -> DeliveryQueue | None:
    """The stored queue, if the claim of this token opened it."""
    return queue_in(item) if item is not None and token and item.get("claim") == token else None


def queue_in(item: Item) -> DeliveryQueue:
    return DeliveryQueue(
        chat_id=cast(str, item["chat_id"]),
        recipient=cast(str, item["recipient"]),
        next_sequence=number(item, "next_sequence"),
        target=number(item, "target"),
        due_ms=number(item, "due_ms"),
        retry_count=number(item, "retry_count"),
        crashes=number(item, "crashes"),
        attempts=decode_events(cast(str, item["attempts"])),
        claim=cast(str, item["claim"]),
    )
