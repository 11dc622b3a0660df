"""Reads the tables of a running cluster directly, as an operator would.

async with tables_of(cluster.environment) as tables:
    await tables.read_into(history)
    assert not await tables.unpublished()
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, cast

from parley.core.deliveries import DeliveryQueue
from parley.store.dynamodb.bundles import all_unbundled
from parley.store.dynamodb.delivery_queues import queue_in
from parley.store.dynamodb.driver import Dynamo, Item, credentials_from
from parley.store.dynamodb.entries import VOID
from parley.store.dynamodb.schema import CHATS, COUNTERS, MESSAGES, QUEUES
from tests.harness.events import Stored, StoredVoid, StoreRead
from tests.harness.history import History


def tables_of(environment: Mapping[str, str]) -> StoreTables:
    """The tables that nodes with this environment use."""
    if environment["PARLEY_STORE_ENGINE"] == "cassandra":
        from tests.harness.cassandra_tables import CassandraTables

        return CassandraTables(environment)
    return DynamoTables(environment)


class StoreTables(ABC):
    """What the tables of any engine tell."""

    async def __aenter__(self) -> StoreTables:
        await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def read_into(self, history: History) -> None:
        """Add the stored entries of the history's chats; the last existing position counts as the head."""
        for chat_id in sorted({event.chat_id for event in history.events}):
            positions = await self._positions(chat_id)
            for position in positions:
                history.add(position)
            head = positions[-1].sequence if positions else 0
            history.add(StoreRead(chat_id=chat_id, head=head))

    @abstractmethod
    async def _open(self) -> None: ...

    @abstractmethod
    async def _close(self) -> None: ...

    @abstractmethod
    async def _positions(self, chat_id: str) -> list[Stored | StoredVoid]:
        """Entries and voids of a chat, ascending."""

    @abstractmethod
    async def counter(self, chat_id: str) -> int | None:
        """The last allocated number, if a counter of the store allocates."""

    @abstractmethod
    async def unpublished(self) -> list[str]:
        """The chats that the outbox lists."""

    @abstractmethod
    async def queues(self) -> list[str]:
        """Who is not up to date with which chat, and how far."""


def told_queues(queues: Iterable[DeliveryQueue]) -> list[str]:
    return sorted(
        f"{queue.recipient} has {queue.chat_id} to {queue.next_sequence - 1},"
        f" not to {queue.target}; {queue.claim or 'nobody'} runs it"
        for queue in queues
    )


class DynamoTables(StoreTables):
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._dynamo = Dynamo(
            environment["PARLEY_DYNAMODB_ENDPOINT"],
            environment["PARLEY_DYNAMODB_REGION"],
            prefix=environment.get("PARLEY_DYNAMODB_PREFIX", ""),
            credentials=credentials_from(environment),
        )

    async def _open(self) -> None:
        await self._dynamo.open()

    async def _close(self) -> None:
        await self._dynamo.close()

    async def _positions(self, chat_id: str) -> list[Stored | StoredVoid]:
        items = all_unbundled(await self._dynamo.query_all(MESSAGES, "chat_id = :chat", {":chat": chat_id}))
        return [_event(item) for item in items]

    async def counter(self, chat_id: str) -> int | None:
        item = await self._dynamo.get(COUNTERS, {"chat_id": chat_id})
        return None if item is None else cast(int, item["sequence_counter"])

    async def unpublished(self) -> list[str]:
        found: list[Item] = []
        for table in (CHATS, COUNTERS):
            found += await self._scan(table, "attribute_exists(unpublished)")
        return sorted(str(item["chat_id"]) for item in found)

    async def queues(self) -> list[str]:
        return told_queues(map(queue_in, await self._scan(QUEUES, "attribute_exists(target)")))

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
