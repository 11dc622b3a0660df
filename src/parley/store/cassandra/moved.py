"""Version 4: what earlier versions kept in tables of their own becomes records (`store/moved.py`)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from parley.store.cassandra.connection import Row
from parley.store.cassandra.records import CassandraRecords
from parley.store.cassandra.schema import SCHEMA, Report, table_names
from parley.store.moved import DERIVED, KEY_PREFIX, OLD_TABLES, Columns, move_all
from parley.store.tables import RecordTable

FIRST_WITH_RECORDS = 4
WHOLE = ("books", "chats")
"""Tables whose JSON is no part of the columns."""
READ_PEOPLE = "SELECT DISTINCT user_id FROM relations"
READ_RELATIONS = "SELECT kind, other_id, record FROM relations WHERE user_id = ?"


class CassandraOldTables:
    """Most rows had all of a record as JSON. The outcomes tell the newest notification of a device."""

    notes_notified = False

    def __init__(self, records: CassandraRecords) -> None:
        self._records = records
        self._cassandra = records.cassandra
        self.prefix = f"{records.cassandra.keyspace}."

    async def there(self) -> set[str]:
        found = await table_names(self._cassandra) & {*OLD_TABLES, *DERIVED}
        return found - {"push_rung"} | {"server_keys"}

    async def pages(self, name: str) -> AsyncIterator[list[Columns]]:
        if name == "relations":
            async for rows in self._cassandra.pages(READ_PEOPLE):
                found = [await self._said_by(row["user_id"]) for row in rows]
                yield [one for one in found if one["said"]]
            return
        async for rows in self._cassandra.pages(f"SELECT * FROM {SCHEMA if name == 'server_keys' else name}"):
            yield [columns for row in rows if (columns := _columns(name, row)) is not None]

    async def _said_by(self, user_id: str) -> Columns:
        """Their contacts, blocks and invitations had a row each, of a kind."""
        said: list[Columns] = []
        for row in await self._cassandra.rows(READ_RELATIONS, user_id):
            match row["kind"]:
                case "contact":
                    said.append({"other_id": row["other_id"], "contact_since": row["record"]})
                case "block":
                    said.append({"other_id": row["other_id"], "blocked_since": row["record"]})
                case "invitation":
                    said.append(msgspec.json.decode(row["record"]))
        return {"user_id": user_id, "said": said}

    async def put(self, table: RecordTable[Any], records: list[Any]) -> None:
        await self._records.put_all(table, records)


def _columns(name: str, row: Row) -> Columns | None:
    """None for a row without a record, and for the version, which is no key."""
    kept = {column: value for column, value in row.items() if value is not None}
    if name == "server_keys":
        return kept if "value" in kept and kept["name"].startswith(KEY_PREFIX) else None
    if "record" not in row or name in WHOLE:
        return kept if "record" in kept or "record" not in row else None
    if row["record"] is None:
        return None
    record = msgspec.json.decode(row["record"])
    if name == "push_devices":
        return {**kept, "devices": record}
    if name == "sessions":
        kept["lengthened_at_ms"] = kept.pop("last_used_at_ms", 0)
    return kept | {field: value for field, value in record.items() if value is not None}


async def move_to_records(records: CassandraRecords, version: int, report: Report) -> None:
    """From the tables of that version."""
    if version < FIRST_WITH_RECORDS:
        await move_all(CassandraOldTables(records), report)
