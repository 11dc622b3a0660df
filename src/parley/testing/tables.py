"""What a cluster has stored, read beside it as an operator would: straight from its tables.

async with Tables(cluster.environment) as tables:
    await tables.read_into(history)
    assert not await tables.unpublished()
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, cast

from parley.store.dynamodb.client import Dynamo
from parley.store.dynamodb.credentials import credentials_from
from parley.store.dynamodb.entries import MESSAGES, VOID, sequence_of
from parley.store.dynamodb.states import CHATS, COUNTERS
from parley.store.dynamodb.values import Item
from parley.testing.events import Stored, StoredVoid, StoreRead
from parley.testing.history import History


class Tables:
    """The tables that nodes with this environment use."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._dynamo = Dynamo(
            environment["PARLEY_DYNAMODB_ENDPOINT"],
            environment["PARLEY_DYNAMODB_REGION"],
            prefix=environment.get("PARLEY_DYNAMODB_PREFIX", ""),
            credentials=credentials_from(environment),
        )

    async def __aenter__(self) -> Tables:
        await self._dynamo.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._dynamo.close()

    async def read_into(self, history: History) -> None:
        """Add what is stored of the history's chats; the last position that exists counts as the head."""
        for chat_id in sorted({event.chat_id for event in history.events}):
            positions = await self.positions(chat_id)
            for item in positions:
                history.add(_event(item))
            head = sequence_of(positions[-1]) if positions else 0
            history.add(StoreRead(chat_id=chat_id, head=head))

    async def positions(self, chat_id: str) -> list[Item]:
        """Entries and voids of a chat, ascending."""
        return await self._dynamo.query_all(MESSAGES, "chat_id = :chat", {":chat": chat_id})

    async def counter(self, chat_id: str) -> int | None:
        """The last number given, where a counter in DynamoDB gives them."""
        item = await self._dynamo.get(COUNTERS, {"chat_id": chat_id})
        return None if item is None else cast(int, item["sequence_counter"])

    async def unpublished(self) -> list[str]:
        """The chats that are listed as having news for the bus."""
        found: list[str] = []
        for table in (CHATS, COUNTERS):
            start: Item | None = None
            while True:
                page = await self._dynamo.scan(table, filter="attribute_exists(unpublished)", start=start)
                found += [str(item["chat_id"]) for item in page.items]
                start = page.next_key
                if start is None:
                    break
        return sorted(found)


def _event(item: Item) -> Stored | StoredVoid:
    fields = cast(dict[str, Any], item)
    place = {"chat_id": fields["chat_id"], "sequence": fields["sequence"], "epoch": fields["epoch"]}
    if fields["kind"] == VOID:
        return StoredVoid(**place)
    return Stored(
        **place,
        message_id=fields["message_id"],
        sender_id=fields["sender_id"],
        client_message_id=fields.get("client_message_id"),
        content=fields["content"],
    )
