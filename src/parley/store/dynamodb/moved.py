"""Version 14: what earlier versions kept in tables of their own becomes records (`store/moved.py`)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec

from parley.clock import MS_PER_DAY, MS_PER_SECOND
from parley.core.push_devices import OUTCOME_DAYS
from parley.store.dynamodb.driver import Dynamo, Item, number
from parley.store.dynamodb.records import load
from parley.store.dynamodb.scans import table_pages
from parley.store.dynamodb.schema import SCHEMA, SEPARATOR, Report, has_table
from parley.store.moved import DERIVED, KEY_PREFIX, OLD_TABLES, Columns, move_all
from parley.store.tables import RecordTable

FIRST_WITH_RECORDS = 14
RUNG = "rung"
"""Instead of a position, where the newest one was that was shown on a device: in the table of outcomes."""
DEVICE_FIELDS = ("device_id", "provider", "address", "public_key", "auth", "preview", "secret", "created_ms")
"""What a device was, in this order."""
REVISION_KEY = "revision"
"""The `webhook_id` of the item that was no webhook."""
OF_PEOPLE = ("relations", "invitations")
UNDER_OTHER_NAMES = {"server_keys": SCHEMA, "push_rung": "push_outcomes"}


class DynamoOldTables:
    """Attributes have the names of fields, but for what was packed."""

    notes_notified = True

    def __init__(self, dynamo: Dynamo) -> None:
        self._dynamo = dynamo
        self.prefix = dynamo.prefix

    async def there(self) -> set[str]:
        names = [*OLD_TABLES, *DERIVED]
        return {name for name in names if await has_table(self._dynamo, UNDER_OTHER_NAMES.get(name, name))}

    async def pages(self, name: str) -> AsyncIterator[list[Columns]]:
        if name == "relations":
            async for page in self._said():
                yield page
            return
        async for items in table_pages(self._dynamo, UNDER_OTHER_NAMES.get(name, name)):
            yield [columns for item in items if (columns := _columns(name, item)) is not None]

    async def _said(self) -> AsyncIterator[list[Columns]]:
        """All that a person has said, from both tables: whoever was moved is asked for it, see `load`."""
        there = [name for name in OF_PEOPLE if await has_table(self._dynamo, name)]
        for name in there:
            async for items in table_pages(self._dynamo, name):
                people = dict.fromkeys(cast(str, item["user_id"]) for item in items)
                yield [{"user_id": person, "said": await self._said_by(person, there)} for person in people]

    async def _said_by(self, user_id: str, tables: list[str]) -> list[Item]:
        values: Item = {":user": user_id}
        found = [await self._dynamo.query_all(name, "user_id = :user", values) for name in tables]
        return [item for items in found for item in items]

    async def put(self, table: RecordTable[Any], records: list[Any]) -> None:
        await load(self._dynamo, table, records)


def _columns(name: str, item: Item) -> Columns | None:
    """None for what is no row of such a table."""
    match name:
        case "usernames":
            return None  # each account was written with its name
        case "server_keys":
            return item if str(item["name"]).startswith(KEY_PREFIX) else None
        case "webhooks":
            return item if item["webhook_id"] != REVISION_KEY else None
        case "attachments":
            return cast(Columns, msgspec.json.decode(cast("bytes | str", item["record"])))
        case "push_devices":
            packed = msgspec.msgpack.decode(cast(bytes, item["devices"]), type=list[list[Any]])
            devices = [dict(zip(DEVICE_FIELDS, one, strict=True)) for one in packed]
            named = [{**device, "user_id": item["user_id"]} for device in devices]
            return {"user_id": item["user_id"], "devices": named} if named else None
        case "push_outcomes" | "push_rung":
            return _notification(name, item)
        case "message_marks":
            chat_id, _, target = cast(str, item["place"]).partition(SEPARATOR)
            return {**item, "chat_id": chat_id, "target": int(target)}
        case _:
            return item


def _notification(name: str, item: Item) -> Columns | None:
    chat_id, _, sequence = cast(str, item["place"]).partition(SEPARATOR)
    user_id, _, device_id = cast(str, item["device"]).partition(SEPARATOR)
    if (sequence == RUNG) is not (name == "push_rung"):
        return None
    whose: Columns = {**item, "chat_id": chat_id, "user_id": user_id, "device_id": device_id}
    if name == "push_rung":
        return {**whose, "since_ms": number(item, "ttl") * MS_PER_SECOND - OUTCOME_DAYS * MS_PER_DAY}
    return {**whose, "sequence": int(sequence)}


async def move_to_records(dynamo: Dynamo, version: int, report: Report) -> None:
    """From the tables of that version."""
    if version < FIRST_WITH_RECORDS:
        await move_all(DynamoOldTables(dynamo), report)
