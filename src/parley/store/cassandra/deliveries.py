"""The ports of deliveries on Cassandra: queues, dead letters, webhooks.

Each row is one record, and every change of one compares it as a whole.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Collection, Sequence

from msgspec.structs import replace

from parley.concurrency import map_concurrently
from parley.core.deliveries import (
    DeliveryQueue,
    QueueClaim,
)
from parley.store.cassandra.client import Cassandra
from parley.store.cassandra.json_rows import JsonRows
from parley.store.cassandra.schema import QUEUES

SHARDS = 16
WRITES_AT_ONCE_MAX = 16


class CassandraDeliveryQueues:
    """In shards by a hash of their chat, each sorted by recipient."""

    def __init__(self, cassandra: Cassandra) -> None:
        self._queues = JsonRows(cassandra, QUEUES, ("shard_no", "recipient", "chat_id"), DeliveryQueue)

    async def extend(
        self, chat_id: str, recipients: Sequence[str], first: int, last: int, claim: QueueClaim | None = None
    ) -> list[DeliveryQueue]:
        token, due_ms = (claim.token, claim.until_ms) if claim is not None else ("", 0)

        async def extend_one(recipient: str) -> DeliveryQueue | None:
            new = DeliveryQueue(
                chat_id=chat_id,
                recipient=recipient,
                next_sequence=first,
                target=last,
                due_ms=due_ms,
                claim=token,
            )

            def raised(queue: DeliveryQueue | None) -> DeliveryQueue:
                return new if queue is None else replace(queue, target=max(queue.target, last))

            after = await self._queues.change(*_queue_key(chat_id, recipient), change=raised)
            return after if after == new else None

        found = await map_concurrently(extend_one, recipients, WRITES_AT_ONCE_MAX)
        return [queue for queue in found if queue is not None]

    async def due(
        self, prefix: str, now_ms: int, limit: int, besides: Collection[str] = ()
    ) -> list[DeliveryQueue]:
        found = [queue for queue in await self._of_kind(prefix) if queue.due_ms <= now_ms]
        found = [queue for queue in found if queue.recipient not in besides]
        return sorted(found, key=lambda queue: (queue.due_ms, queue.chat_id, queue.recipient))[:limit]

    async def next_due(self, prefix: str, after_ms: int) -> int | None:
        later = [queue.due_ms for queue in await self._of_kind(prefix) if queue.due_ms > after_ms]
        return min(later, default=None)

    async def _of_kind(self, prefix: str) -> list[DeliveryQueue]:
        shards = await asyncio.gather(*(self._queues.all(shard) for shard in range(SHARDS)))
        return [queue for queues in shards for queue in queues if queue.recipient.startswith(prefix)]

    async def of_chat(self, chat_id: str) -> list[DeliveryQueue]:
        return [queue for queue in await self._queues.all(_shard_of(chat_id)) if queue.chat_id == chat_id]

    async def put(self, queue: DeliveryQueue) -> None:
        """As it is, whatever is there."""
        await self._queues.change(*_queue_key(queue.chat_id, queue.recipient), change=lambda _: queue)

    async def claim(
        self, chat_id: str, recipient: str, claim: QueueClaim, now_ms: int
    ) -> DeliveryQueue | None:
        before = await self._queues.get(*_queue_key(chat_id, recipient))
        if before is None or before.due_ms > now_ms:
            return None
        after = replace(before, claim=claim.token, due_ms=claim.until_ms)
        is_done = await self._queues.swap(*_queue_key(chat_id, recipient), before=before, after=after)
        return before if is_done else await self._claim_again(chat_id, recipient, claim, now_ms, before)

    async def _claim_again(
        self, chat_id: str, recipient: str, claim: QueueClaim, now_ms: int, before: DeliveryQueue
    ) -> DeliveryQueue | None:
        """Another claim was faster; or the target has risen, which does not matter."""
        now = await self._queues.get(*_queue_key(chat_id, recipient))
        if now is None or now.claim != before.claim:
            return None
        return await self.claim(chat_id, recipient, claim, now_ms)

    async def advance(self, queue: DeliveryQueue, token: str) -> DeliveryQueue | None:
        def advanced(stored: DeliveryQueue | None) -> DeliveryQueue | None:
            if stored is None:
                return None
            after = replace(queue, target=stored.target)
            return after if stored.claim == token or stored == after else None

        return await self._queues.change(*_queue_key(queue.chat_id, queue.recipient), change=advanced)

    async def finish(self, queue: DeliveryQueue) -> bool:
        key = _queue_key(queue.chat_id, queue.recipient)
        while True:
            stored = await self._queues.get(*key)
            if stored is None:
                return True
            if stored.target > queue.target or stored.claim != queue.claim:
                return False
            if await self._queues.swap(*key, before=stored, after=None):
                return True

    async def forget(self, recipient: str) -> None:
        for queue in await self._of_kind(recipient):
            key = _queue_key(queue.chat_id, queue.recipient)
            stored: DeliveryQueue | None = queue if queue.recipient == recipient else None
            while stored is not None and not await self._queues.swap(*key, before=stored, after=None):
                stored = await self._queues.get(*key)


def _queue_key(chat_id: str, recipient: str) -> tuple[int, str, str]:
    return _shard_of(chat_id), recipient, chat_id


def _shard_of(name: str) -> int:
    return zlib.crc32(name.encode()) % SHARDS
