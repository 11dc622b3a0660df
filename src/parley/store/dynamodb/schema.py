"""The tables: their definitions, their creation, and their version.

`parley store init` creates missing tables and changes no other; a server only checks them. An older version
lacks tables or attributes, and its items stay valid: `parley store init` upgrades it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from msgspec import Struct

from parley.errors import ConfigError, StoreError, StoreUnavailable
from parley.store.dynamodb.driver import ConditionFailed, Dynamo, Item, RequestRejected
from parley.store.tables import TABLES as RECORD_TABLES
from parley.store.tables import R, RecordTable

VERSION = 14
"""2: relations; settings of people, read receipts of chats. 3: states of accounts, deletions, the audit log;
invitations, and who may add a person.
Items without them have the defaults. 4: bundles in `messages`, which earlier versions cannot read.
5: `keys_through` in `chat_counters`: earlier versions would store a message again whose key is missing.
6: deliveries to others: queues, dead letters, webhooks. 7: push. 8: hashes of logs, ids of
messages that were copied here. 9: logs are trimmed, and contents removed. 10: API tokens, bots, and
people of other systems. 11: edits, reactions and replies. 12: links and reports,
and who may post in a group. 13: attachments. 14: tables of records."""
MARK: Item = {"name": "parley"}
"""The key of the item in `schema` that holds the version."""

ACTIVE_SECONDS_MAX = 120.0
ACTIVE_POLL_SECONDS = 0.25
INIT = "run parley store init"

AttributeType = Literal["S", "N", "B"]
Report = Callable[[str], None]


class Table(Struct, frozen=True):
    """A table by its keys; `indexes` are sparse and hold keys, and the attributes in `carried`."""

    name: str
    hash_key: str
    range_key: str | None = None
    hash_kind: AttributeType = "S"
    range_kind: AttributeType = "S"
    indexes: tuple[tuple[str, AttributeType], ...] = ()
    ttl: str | None = None
    carried: tuple[str, ...] = ()

    @property
    def keys(self) -> list[dict[str, str]]:
        keys = [{"AttributeName": self.hash_key, "KeyType": "HASH"}]
        if self.range_key is not None:
            keys.append({"AttributeName": self.range_key, "KeyType": "RANGE"})
        return keys

    @property
    def attributes(self) -> list[dict[str, str]]:
        kinds = {self.hash_key: self.hash_kind, **dict(self.indexes)}
        if self.range_key is not None:
            kinds[self.range_key] = self.range_kind
        return [{"AttributeName": name, "AttributeType": kind} for name, kind in kinds.items()]

    def request(self, name: str) -> dict[str, Any]:
        request: dict[str, Any] = {
            "TableName": name,
            "BillingMode": "PAY_PER_REQUEST",
            "KeySchema": self.keys,
            "AttributeDefinitions": self.attributes,
        }
        if self.indexes:
            request["GlobalSecondaryIndexes"] = [
                _index(attribute, self.carried) for attribute, _ in self.indexes
            ]
        return request


def _index(attribute: str, carried: tuple[str, ...]) -> dict[str, Any]:
    """The index has the name of its attribute, and holds only items with that attribute."""
    projection: dict[str, Any] = {"ProjectionType": "KEYS_ONLY"}
    if carried:
        projection = {"ProjectionType": "INCLUDE", "NonKeyAttributes": list(carried)}
    return {
        "IndexName": attribute,
        "KeySchema": [{"AttributeName": attribute, "KeyType": "HASH"}],
        "Projection": projection,
    }


Upgrade = Callable[[Dynamo, int, Report], Awaitable[None]]

TABLES: dict[str, Table] = {}


def _define(table: Table) -> str:
    """Add a table to `TABLES` and return its name."""
    TABLES[table.name] = table
    return table.name


UNPUBLISHED: tuple[tuple[str, AttributeType], ...] = (("unpublished", "N"),)

CHATS = _define(Table("chats", "chat_id", indexes=UNPUBLISHED))
"""Chats, each with the revision of its membership; in two_phase also the mark of the bus."""
COUNTERS = _define(Table("chat_counters", "chat_id", indexes=UNPUBLISHED))
"""The last allocated number of each chat; in atomic also the mark of the bus."""
MEMBERSHIPS = _define(Table("chat_memberships", "chat_id", "user_id"))
"""Who is in a chat, with which role, since which position."""
KEYS = _define(Table("idempotency_keys", "chat_id", "client_message_id", ttl="ttl"))
"""The position of each client's message id, for as long as a retry may arrive."""
MESSAGES = _define(Table("messages", "chat_id", "sequence", range_kind="N"))
"""The logs: entries and voids by position."""
DELIVERY = _define(Table("delivery_state", "user_id", "chat_id"))
"""A person's own row of a chat: how far they are, whether they left, whether it is muted."""
DEVICES = _define(Table("user_device_cursors", "user_id", "device_chat"))
"""How far each device has received each chat; see `device_key`."""
DIRECT_CHATS = _define(Table("direct_chats", "direct_key"))
"""Which chat is the direct chat of two people."""
QUEUES = _define(Table("lanes", "shard_no", "lane", hash_kind="N"))
"""Which recipients are not up to date; `lane` is recipient and chat."""
IMPORTED_IDS = _define(Table("imported_ids", "message_id"))
"""Where a message is whose id another engine made: such an id does not lead to its place."""
SCHEMA = _define(Table("schema", "name"))
"""The version of these tables, and keys of the server."""

CONSENT_REVISION = "consent_revision"
"""Beside the record of a person; see `consents`."""
PARTITION, PLACE, RECORD, NUMBER, TTL = "partition", "place", "record", "number", "ttl"
"""The attributes of every record: see `store/tables.py`."""


def records_of(table: RecordTable[R]) -> str:
    """The name of a table of records."""
    return f"records_{table.name}"


for kept in RECORD_TABLES:
    _define(Table(records_of(kept), PARTITION, PLACE, ttl=TTL if kept.expires_ms is not None else None))

SEPARATOR = "\x1f"
"""Between the parts of a key, such as a device and a chat. Ids have only printable characters."""


def device_key(user_id: str, device_id: str, chat_id: str) -> Item:
    """The key of `DEVICES` for one device in one chat."""
    return {"user_id": user_id, "device_chat": f"{device_prefix(device_id)}{chat_id}"}


def device_prefix(device_id: str) -> str:
    """What `device_chat` begins with in every row of a device."""
    return f"{device_id}{SEPARATOR}"


async def create_tables(
    dynamo: Dynamo, report: Report = lambda _: None, upgrade: Upgrade | None = None
) -> list[str]:
    """Create all missing tables concurrently, and wait until they are active. Safe to repeat.

    Returns the names of those it created. ConfigError if existing tables are not Parley's, or are newer.
    The version is written last: before that, no server of this version starts on them. `upgrade` moves
    what is in the tables of that version.
    """
    await dynamo.check()
    before = await _version_if_any(dynamo)
    if before is not None and before > VERSION:
        await check_version(dynamo)
    made = await _all_of([_create(dynamo, table, report) for table in TABLES.values()])
    await _all_of([_expire(dynamo, table) for table in TABLES.values() if table.ttl is not None])
    for finding in sorted(
        set(await _all_of([_make_recoverable(dynamo, table) for table in TABLES.values()]))
    ):
        report(finding)
    if upgrade is not None and before is not None:
        await upgrade(dynamo, before, report)
    await _mark(dynamo)
    if before is not None and before < VERSION:
        report(f"upgraded from version {before} to {VERSION}")
    return [name for name in made if name is not None]


async def _create(dynamo: Dynamo, table: Table, report: Report) -> str | None:
    name, is_new = dynamo.table(table.name), True
    try:
        await dynamo.call("CreateTable", table.request(name))
    except RequestRejected as error:
        if error.code != "ResourceInUseException":
            raise
        is_new = False
    _check_keys(table, name, await _until_active(dynamo, name))
    report(f"{name}: {'created' if is_new else 'already exists'}")
    return name if is_new else None


async def _until_active(dynamo: Dynamo, name: str) -> dict[str, Any]:
    """The table's description, once it and its indexes can be used."""
    try:
        async with asyncio.timeout(ACTIVE_SECONDS_MAX):
            while True:
                description = await _describe(dynamo, name)
                if description is not None and _is_active(description):
                    return description
                await asyncio.sleep(ACTIVE_POLL_SECONDS)
    except TimeoutError as error:
        raise StoreUnavailable(f"the table {name} is still not active; {INIT} again later") from error


async def item_count(dynamo: Dynamo, table: str) -> int:
    """How many items a table has, as of DynamoDB's last count: it makes one about every six hours."""
    described = await _describe(dynamo, dynamo.prefix + table)
    return int(described["ItemCount"]) if described is not None else 0


async def _describe(dynamo: Dynamo, name: str) -> dict[str, Any] | None:
    try:
        answer = await dynamo.call("DescribeTable", {"TableName": name})
    except RequestRejected as error:
        if error.code == "ResourceNotFoundException":
            return None
        raise
    description: dict[str, Any] = answer["Table"]
    return description


async def has_table(dynamo: Dynamo, table: str) -> bool:
    return await _describe(dynamo, dynamo.table(table)) is not None


def _is_active(description: dict[str, Any]) -> bool:
    indexes = description.get("GlobalSecondaryIndexes", ())
    return all(
        part.get("TableStatus", part.get("IndexStatus")) == "ACTIVE" for part in (description, *indexes)
    )


def _check_keys(table: Table, name: str, description: dict[str, Any]) -> None:
    """ConfigError if a table of this name has other keys: it belongs to another program."""
    found = sorted((key["AttributeName"], key["KeyType"]) for key in description["KeySchema"])
    wanted = sorted((key["AttributeName"], key["KeyType"]) for key in table.keys)
    indexes = {index["IndexName"] for index in description.get("GlobalSecondaryIndexes", ())}
    if found != wanted or not {index for index, _ in table.indexes} <= indexes:
        raise ConfigError(f"the table {name} has other keys than Parley's; choose another dynamodb.prefix")


# Time to live, and point-in-time recovery


async def _expire(dynamo: Dynamo, table: Table) -> None:
    name = dynamo.table(table.name)
    if await _expires(dynamo, name):
        return
    wanted = {"Enabled": True, "AttributeName": table.ttl}
    try:
        await dynamo.call("UpdateTimeToLive", {"TableName": name, "TimeToLiveSpecification": wanted})
    except RequestRejected:
        if not await _expires(dynamo, name):  # another operator may have turned it on meanwhile
            raise


async def _expires(dynamo: Dynamo, name: str) -> bool:
    found = await dynamo.call("DescribeTimeToLive", {"TableName": name})
    return found["TimeToLiveDescription"]["TimeToLiveStatus"] in ("ENABLED", "ENABLING")


async def _make_recoverable(dynamo: Dynamo, table: Table) -> str:
    """Turn on point-in-time recovery, and report whether that worked. The server works without it."""
    name, wanted = dynamo.table(table.name), {"PointInTimeRecoveryEnabled": True}
    request = {"TableName": name, "PointInTimeRecoverySpecification": wanted}
    try:
        await dynamo.call("UpdateContinuousBackups", request)
    except RequestRejected as error:
        if error.code == "UnknownOperationException":
            return "point-in-time recovery: not available at this endpoint"
        return f"point-in-time recovery: not for {name}: {error}"
    return "point-in-time recovery: on"


async def is_recoverable(dynamo: Dynamo) -> bool | None:
    """Whether the counters have point-in-time recovery; None if the endpoint does not offer it."""
    request = {"TableName": dynamo.table(COUNTERS)}
    try:
        found = await dynamo.call("DescribeContinuousBackups", request)
    except RequestRejected as error:
        return None if error.code == "UnknownOperationException" else False
    backups = found["ContinuousBackupsDescription"].get("PointInTimeRecoveryDescription", {})
    return bool(backups.get("PointInTimeRecoveryStatus") == "ENABLED")


# The version


async def _mark(dynamo: Dynamo) -> None:
    try:
        await dynamo.put(
            SCHEMA,
            {**MARK, "version": VERSION},
            condition="attribute_not_exists(#name) OR #version < :version",
            values={":version": VERSION},
            names={"#name": "name", "#version": "version"},
        )
    except ConditionFailed:
        await check_version(dynamo)


async def _version_if_any(dynamo: Dynamo) -> int | None:
    try:
        mark = await dynamo.get(SCHEMA, MARK)
    except RequestRejected as error:
        if error.code == "ResourceNotFoundException":
            return None
        raise
    version = mark.get("version") if mark is not None else None
    return version if isinstance(version, int) else None


async def check_version(dynamo: Dynamo) -> None:
    """ConfigError unless the tables have this version."""
    version = await _version_if_any(dynamo)
    where = f"the tables {dynamo.prefix}* in {dynamo.region} ({dynamo.endpoint})"
    if version is None:
        raise ConfigError(f"{where} are missing or incomplete: {INIT}, or check region and prefix")
    if version > VERSION:
        raise ConfigError(f"{where} have version {version}, of a newer Parley: install a newer Parley")
    if version < VERSION:
        raise ConfigError(f"{where} have the old version {version}: {INIT}")


async def check_tables(dynamo: Dynamo) -> None:
    """ConfigError, in one sentence, if a server cannot start on these tables."""
    await dynamo.check()
    try:
        await check_version(dynamo)
        await _all_of([_check_table(dynamo, table) for table in TABLES.values()])
    except StoreError as error:
        raise ConfigError(f"the tables cannot be used: {error}") from error


async def _check_table(dynamo: Dynamo, table: Table) -> None:
    name = dynamo.table(table.name)
    try:
        description = await _describe(dynamo, name)
    except RequestRejected as error:
        if (
            error.code == "AccessDeniedException"
        ):  # a server may lack the right to describe tables: it only uses them
            return
        raise
    if description is None:
        raise ConfigError(f"there is no table {name} in {dynamo.region} ({dynamo.endpoint}): {INIT}")
    if not _is_active(description):
        raise ConfigError(f"the table {name} is not active yet: wait, or {INIT}")
    _check_keys(table, name, description)


async def _all_of(work: list[Any]) -> list[Any]:
    """Run all concurrently, and wait for all of them before raising the first failure."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results
