"""The tables of a cluster on Cassandra, read directly, as an operator would."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

from parley.core.deliveries import DeliveryQueue
from parley.store.cassandra.client import Cassandra
from parley.store.cassandra.connection import Address, CassandraConnection, Row
from parley.store.cassandra.json_rows import JsonRows
from parley.store.cassandra.log_rows import VOID
from parley.store.cassandra.schema import LOG, QUEUES, UNPUBLISHED
from parley.wire.codec import decode_entry
from tests.harness.events import Stored, StoredVoid
from tests.harness.tables import StoreTables, told_queues

READ_BUCKET = (
    f"SELECT sequence, kind, wire, epoch FROM {LOG} WHERE chat_id = ? AND bucket = ? AND sequence > 0"
)
READ_FENCE = (
    f"SELECT is_closed, sequence_counter, listing FROM {LOG} WHERE chat_id = ? AND bucket = ? LIMIT 1"
)


def connection_of(environment: Mapping[str, str]) -> CassandraConnection:
    """To the keyspace of nodes with this environment."""
    return CassandraConnection(
        Address(
            contact_points=(environment["PARLEY_CASSANDRA_CONTACT_POINTS"],),
            port=int(environment["PARLEY_CASSANDRA_PORT"]),
            keyspace=environment["PARLEY_CASSANDRA_KEYSPACE"],
        )
    )


class CassandraTables(StoreTables):
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._cassandra = Cassandra(connection_of(environment))

    async def _open(self) -> None:
        await self._cassandra.connect()
        await self._cassandra.use_keyspace()

    async def _close(self) -> None:
        await self._cassandra.close()

    async def _positions(self, chat_id: str) -> list[Stored | StoredVoid]:
        found: list[Stored | StoredVoid] = []
        for bucket in count():
            if await self._fence(chat_id, bucket) is None:
                return found
            rows = await self._cassandra.rows(READ_BUCKET, chat_id, bucket)
            found += [_event(chat_id, row) for row in rows]
        raise AssertionError

    async def _fence(self, chat_id: str, bucket: int) -> Row | None:
        fence = await self._cassandra.row(READ_FENCE, chat_id, bucket)
        return None if fence is None or fence["is_closed"] is None else fence

    async def _open_fence(self, chat_id: str) -> Row:
        last: Row = {}
        for bucket in count():
            fence = await self._fence(chat_id, bucket)
            if fence is None:
                return last
            last = fence
        raise AssertionError

    async def counter(self, chat_id: str) -> int | None:
        return (await self._open_fence(chat_id)).get("sequence_counter")

    async def unpublished(self) -> list[str]:
        """A name on the list that is not in the fence is that of an append which has failed."""
        rows = await self._cassandra.rows(f"SELECT chat_id, listing FROM {UNPUBLISHED}")
        fences = {row["chat_id"]: await self._open_fence(row["chat_id"]) for row in rows}
        return sorted(
            {row["chat_id"] for row in rows if fences[row["chat_id"]].get("listing") == row["listing"]}
        )

    async def queues(self) -> list[str]:
        records = JsonRows(self._cassandra, QUEUES, ("shard_no", "recipient", "chat_id"), DeliveryQueue)
        return told_queues([queue async for queues in records.pages() for queue in queues])


def _event(chat_id: str, row: Row) -> Stored | StoredVoid:
    if row["kind"] == VOID:
        return StoredVoid(chat_id=chat_id, sequence=row["sequence"], epoch=row["epoch"])
    entry = decode_entry(row["wire"])
    return Stored(
        chat_id=chat_id,
        sequence=row["sequence"],
        epoch=entry.epoch,
        message_id=entry.message_id,
        sender_id=entry.sender_id,
        client_message_id=entry.client_message_id,
        content=entry.content,
    )
