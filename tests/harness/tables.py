"""Reads the tables of a running cluster directly, as an operator would.

async with StoreTables(cluster.environment) as tables:
    await tables.read_into(history)
    assert not await tables.unpublished()
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, cast

from parley.dynamodb import Dynamo, Item, credentials_from
from parley.store.dynamodb.bundles import all_unbundled
from parley.store.dynamodb.entries import VOID, sequence_of
from parley.store.dynamodb.schema import CHATS, COUNTERS, LANES, MESSAGES
from tests.harness.events import Stored, StoredVoid, StoreRead
from tests.harness.history import History


class StoreTables:
    """The tables that nodes with this environment use."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._dynamo = Dynamo(
            environment["PARLEY_DYNAMODB_ENDPOINT"],
            environment["PARLEY_DYNAMODB_REGION"],
            prefix=environment.get("PARLEY_DYNAMODB_PREFIX", ""),
            credentials=credentials_from(environment),
        )

    async def __aenter__(self) -> StoreTables:
        await self._dynamo.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._dynamo.close()

    async def read_into(self, history: History) -> None:
        """Add the stored entries of the history's chats; the last existing position counts as the head."""
        for chat_id in sorted({event.chat_id for event in history.events}):
            positions = await self.positions(chat_id)
            for item in positions:
                history.add(_event(item))
            head = sequence_of(positions[-1]) if positions else 0
            history.add(StoreRead(chat_id=chat_id, head=head))

    async def positions(self, chat_id: str) -> list[Item]:
        """Entries and voids of a chat, ascending."""
        return all_unbundled(await self._dynamo.query_all(MESSAGES, "chat_id = :chat", {":chat": chat_id}))

    async def counter(self, chat_id: str) -> int | None:
        """The last allocated number, if a counter in DynamoDB allocates."""
        item = await self._dynamo.get(COUNTERS, {"chat_id": chat_id})
        return None if item is None else cast(int, item["sequence_counter"])

    async def unpublished(self) -> list[str]:
        """The chats that the outbox lists."""
        found: list[Item] = []
        for table in (CHATS, COUNTERS):
            found += await self._scan(table, "attribute_exists(unpublished)")
        return sorted(str(item["chat_id"]) for item in found)

    async def lanes(self) -> list[str]:
        """Who is not up to date with which chat, and how far."""
        lanes = cast(list[dict[str, Any]], await self._scan(LANES, "attribute_exists(target)"))
        return sorted(
            f"{lane['recipient']} has {lane['chat_id']} to {lane['next_sequence'] - 1},"
            f" not to {lane['target']}; {lane['claim'] or 'nobody'} runs it"
            for lane in lanes
        )

    async def _scan(self, table: str, condition: str) -> list[Item]:
        found: list[Item] = []
        start: Item | None = None
        while True:
            page = await self._dynamo.scan(table, filter=condition, start=start)
            found += page.items
            start = page.next_key
            if start is None:
                return found


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
