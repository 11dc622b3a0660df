"""The ports of deliveries in memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from parley.core.deliveries import DeliveryQueue, QueueClaim
from tests.memory.tables import Tables


class MemoryDeliveryQueues:
    def __init__(self, tables: Tables) -> None:
        self._queues = tables.queues

    async def extend(
        self, chat_id: str, recipients: Sequence[str], first: int, last: int, claim: QueueClaim | None = None
    ) -> list[DeliveryQueue]:
        new = []
        for recipient in recipients:
            queue = self._queues.get((chat_id, recipient))
            if queue is None:
                queue = DeliveryQueue(chat_id=chat_id, recipient=recipient, next_sequence=first, target=last)
                if claim is not None:
                    queue = replace(queue, claim=claim.token, due_ms=claim.until_ms)
                new.append(queue)
            self._queues[chat_id, recipient] = replace(queue, target=max(queue.target, last))
        return new

    async def due(
        self, prefix: str, now_ms: int, limit: int, besides: Collection[str] = ()
    ) -> list[DeliveryQueue]:
        found = [queue for queue in self._of_kind(prefix) if queue.due_ms <= now_ms]
        found = [queue for queue in found if queue.recipient not in besides]
        return sorted(found, key=lambda queue: (queue.due_ms, queue.chat_id, queue.recipient))[:limit]

    async def next_due(self, prefix: str, after_ms: int) -> int | None:
        later = [queue.due_ms for queue in self._of_kind(prefix) if queue.due_ms > after_ms]
        return min(later, default=None)

    def _of_kind(self, prefix: str) -> list[DeliveryQueue]:
        return [queue for queue in self._queues.values() if queue.recipient.startswith(prefix)]

    async def claim(
        self, chat_id: str, recipient: str, claim: QueueClaim, now_ms: int
    ) -> DeliveryQueue | None:
        queue = self._queues.get((chat_id, recipient))
        if queue is None or queue.due_ms > now_ms:
            return None
        self._queues[chat_id, recipient] = replace(queue, claim=claim.token, due_ms=claim.until_ms)
        return queue

    async def advance(self, queue: DeliveryQueue, token: str) -> DeliveryQueue | None:
        key = (queue.chat_id, queue.recipient)
        stored = self._queues.get(key)
        if stored is None or stored.claim != token:
            return None
        self._queues[key] = replace(queue, target=stored.target)
        return self._queues[key]

    async def finish(self, queue: DeliveryQueue) -> bool:
        key = (queue.chat_id, queue.recipient)
        stored = self._queues.get(key)
        if stored is not None and (stored.target > queue.target or stored.claim != queue.claim):
            return False
        self._queues.pop(key, None)
        return True

    def free(self) -> None:
        """As an engine of one process does it when it opens."""
        for key, queue in self._queues.items():
            if queue.claim:
                self._queues[key] = replace(queue, due_ms=0)

    async def forget(self, recipient: str) -> None:
        for key in [key for key in self._queues if key[1] == recipient]:
            del self._queues[key]
