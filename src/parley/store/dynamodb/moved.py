"""Version 14: what earlier versions kept in tables of their own becomes records.

`parley store init` moves it, and may be interrupted: what was moved is moved again, and the version is
written last. The old tables stay, and nothing reads them any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import msgspec

from parley.dynamodb import Dynamo, Item
from parley.store.dynamodb.records import load
from parley.store.dynamodb.scans import table_pages
from parley.store.dynamodb.schema import SCHEMA, Report, has_table
from parley.store.records import BOOKS, record_of
from parley.store.tables import (
    API_TOKENS,
    ATTACHMENT_LINES,
    ATTACHMENTS,
    AUDIT,
    ERASURES,
    EXTERNAL_IDS,
    SERVER_KEYS,
    WEBHOOKS,
    KeptKey,
    RecordTable,
)

FIRST_WITH_RECORDS = 14
KEY_PREFIX = "key:"
"""Before the name of a server's key, where it was beside the version."""
REVISION_KEY = "revision"
"""The `webhook_id` of the item that was no webhook."""

Read = Callable[[Item], Iterable[tuple[RecordTable[Any], Any]]]
"""The records of an item, each with its table."""


def _each(table: RecordTable[Any]) -> Read:
    """Attributes have the names of the fields."""
    return lambda item: [(table, record_of(table.kind, item))]


def _json_of(table: RecordTable[Any]) -> Read:
    """An attribute has all of it, as JSON."""
    return lambda item: [(table, table.decode(cast("bytes | str", item["record"])))]


def _of_book(item: Item) -> Iterable[tuple[RecordTable[Any], Any]]:
    table = BOOKS[cast(str, item["book"])]
    yield table, table.decode(cast(str, item["record"]))


def _webhook(item: Item) -> Iterable[tuple[RecordTable[Any], Any]]:
    if item["webhook_id"] != REVISION_KEY:
        yield WEBHOOKS, record_of(WEBHOOKS.kind, item)


def _server_key(item: Item) -> Iterable[tuple[RecordTable[Any], Any]]:
    name = cast(str, item["name"])
    if name.startswith(KEY_PREFIX):
        yield SERVER_KEYS, KeptKey(name=name.removeprefix(KEY_PREFIX), value=cast(str, item["value"]))


MOVED: dict[str, Read] = {
    "books": _of_book,
    "api_tokens": _each(API_TOKENS),
    "external_ids": _each(EXTERNAL_IDS),
    "webhooks": _webhook,
    "audit": _each(AUDIT),
    "erasures": _each(ERASURES),
    "attachments": _json_of(ATTACHMENTS),
    "attachment_lists": _each(ATTACHMENT_LINES),
    SCHEMA: _server_key,
}


async def move_to_records(dynamo: Dynamo, version: int, report: Report) -> None:
    """From the tables of that version."""
    if version >= FIRST_WITH_RECORDS:
        return
    for name, read in MOVED.items():
        if not await has_table(dynamo, name):
            continue
        moved = 0
        async for items in table_pages(dynamo, name):
            by_table: dict[RecordTable[Any], list[msgspec.Struct]] = {}
            for item in items:
                for table, record in read(item):
                    by_table.setdefault(table, []).append(record)
            for table, records in by_table.items():
                await load(dynamo, table, records)
                moved += len(records)
        report(f"{dynamo.table(name)}: {moved} records moved")
    old = ", ".join(dynamo.table(name) for name in MOVED if name != SCHEMA)
    report(f"no longer read, to be deleted when all is well: {old}")
