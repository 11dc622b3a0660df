"""The ports of deliveries on DynamoDB, and the list of webhooks.

Workers ask for the list again and again. An item holds its revision, which every change moves in the same
transaction: as long as that is the same, one small strong read tells that the known list is right.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import msgspec

from parley import ids
from parley.clock import Clock
from parley.dynamodb import (
    Action,
    Delete,
    Dynamo,
    Item,
    Put,
    TransactionCanceled,
    UpdateItem,
    is_valid_key,
    number,
    retry_unknown,
)
from parley.store.delivery.rows import Webhook
from parley.store.dynamodb.dead_letters import DynamoDeadLetters
from parley.store.dynamodb.lanes import DynamoLanes
from parley.store.dynamodb.scans import table_pages
from parley.store.dynamodb.schema import WEBHOOKS

REVISION_KEY = "revision"
"""The `webhook_id` of the item that is no webhook."""

encode = msgspec.json.Encoder().encode


class DynamoDeliveries:
    def __init__(self, dynamo: Dynamo, clock: Clock, make_ids: ids.Ids) -> None:
        def make_token() -> str:
            return make_ids.next(ids.EVENT, clock())

        self.lanes = DynamoLanes(dynamo)
        self.dead_letters = DynamoDeadLetters(dynamo, make_token)
        self.webhooks = DynamoWebhooks(dynamo, make_token)


class DynamoWebhooks:
    def __init__(self, dynamo: Dynamo, make_token: Callable[[], str]) -> None:
        self._dynamo = dynamo
        self._make_token = make_token
        self._reading = asyncio.Lock()
        self._reads_begun = 0
        self._reads_done = 0
        self._revision = -1
        self._known: list[Webhook] = []

    async def add(self, webhook: Webhook) -> None:
        item = {**msgspec.structs.asdict(webhook), "events": encode(webhook.events).decode()}
        await self._write(Put(WEBHOOKS, item))

    async def all(self) -> list[Webhook]:
        """Callers at the same time share a read: one that has begun after each of them called."""
        asked = self._reads_begun
        async with self._reading:
            if self._reads_done <= asked:
                self._reads_begun += 1
                await self._read()
                self._reads_done = self._reads_begun
            return list(self._known)

    async def _read(self) -> None:
        """The list is read after its revision, so it is at least as new."""
        item = await self._dynamo.get(WEBHOOKS, {"webhook_id": REVISION_KEY}) or {}
        revision = number(item, "list_revision")
        if revision != self._revision:
            found = [item async for page in table_pages(self._dynamo, WEBHOOKS) for item in page]
            hooks = [webhook_in(item) for item in found if item["webhook_id"] != REVISION_KEY]
            self._known, self._revision = sorted(hooks, key=lambda hook: hook.webhook_id), revision

    async def remove(self, webhook_id: str) -> bool:
        if not is_valid_key(webhook_id) or webhook_id == REVISION_KEY:
            return False
        gone = Delete(WEBHOOKS, {"webhook_id": webhook_id}, "attribute_exists(webhook_id)")
        try:
            await self._write(gone)
        except TransactionCanceled:
            return False
        return True

    async def _write(self, change: Action) -> None:
        """Together with the next revision of the list."""
        moved = UpdateItem(WEBHOOKS, {"webhook_id": REVISION_KEY}, "ADD list_revision :one", {":one": 1})
        token = self._make_token()
        await retry_unknown(lambda: self._dynamo.transact([change, moved], token))


def webhook_in(item: Item) -> Webhook:
    return Webhook(
        webhook_id=cast(str, item["webhook_id"]),
        url=cast(str, item["url"]),
        events=msgspec.json.decode(cast(str, item["events"]), type=tuple[str, ...]),
        secret=cast(str, item["secret"]),
        created_ms=number(item, "created_ms"),
        chat_id=cast(str, item["chat_id"]),
    )
