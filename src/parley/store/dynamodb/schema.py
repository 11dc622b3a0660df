"""The tables, how they come to be, and the mark that says of which version they are.

`parley store init` makes what is missing and changes nothing that is there; a server only checks. Tables of
an older version lack something, and what they hold is still good: made whole, they are of this version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct

from parley.errors import ConfigError, StoreError, StoreUnavailable
from parley.store.dynamodb.answers import Rejected
from parley.store.dynamodb.client import ConditionFailed, Dynamo
from parley.store.dynamodb.values import Item

VERSION = 2
"""2: relations; people with settings, chats with read receipts. What lacks them has the usual ones."""
MARK: Item = {"name": "parley"}
"""The key of the item in `schema` that holds the version."""

ACTIVE_SECONDS_MAX = 120.0
ACTIVE_LOOK_SECONDS = 0.25
INIT = "run parley store init"

Kind = Literal["S", "N", "B"]
Report = Callable[[str], None]


class Table(Struct, frozen=True):
    """A table by its keys; `indexes` are sparse and hold keys only."""

    name: str
    hash_key: str
    range_key: str | None = None
    hash_kind: Kind = "S"
    range_kind: Kind = "S"
    indexes: tuple[tuple[str, Kind], ...] = ()
    ttl: str | None = None

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
            request["GlobalSecondaryIndexes"] = [_index(attribute) for attribute, _ in self.indexes]
        return request


def _index(attribute: str) -> dict[str, Any]:
    """An index is called as the attribute that it is over: only items that have it are in it."""
    return {
        "IndexName": attribute,
        "KeySchema": [{"AttributeName": attribute, "KeyType": "HASH"}],
        "Projection": {"ProjectionType": "KEYS_ONLY"},
    }


UNPUBLISHED: tuple[tuple[str, Kind], ...] = (("unpublished", "N"),)
SCHEMA = Table("schema", "name")
TABLES = (
    Table("chats", "chat_id", indexes=UNPUBLISHED),
    Table("chat_counters", "chat_id", indexes=UNPUBLISHED),
    Table("chat_memberships", "chat_id", "user_id"),
    Table("idempotency_keys", "chat_id", "client_message_id", ttl="ttl"),
    Table("messages", "chat_id", "sequence", range_kind="N"),
    Table("delivery_state", "user_id", "chat_id"),
    Table("user_device_cursors", "user_id", "device_chat"),
    Table("users", "user_id"),
    Table("usernames", "username"),
    Table("direct_chats", "direct_key"),
    Table("sessions", "token_hash", hash_kind="B"),
    Table("user_sessions", "user_id", "session_id"),
    Table("relations", "user_id", "other_id"),
    SCHEMA,
)


async def create_tables(dynamo: Dynamo, report: Report = lambda _: None) -> list[str]:
    """Make every table that is missing, all at once, and wait until they can be used; safe to repeat.

    Returns the names of those it made. ConfigError when the tables there are not Parley's, or are newer.
    The mark comes last: until then no server of this version starts on them.
    """
    await dynamo.check()
    before = await _version_if_any(dynamo)
    if before is not None and before > VERSION:
        await check_version(dynamo)
    made = await _all_of([_create(dynamo, table, report) for table in TABLES])
    await _all_of([_expire(dynamo, table) for table in TABLES if table.ttl is not None])
    for finding in sorted(set(await _all_of([_recoverable(dynamo, table) for table in TABLES]))):
        report(finding)
    await _mark(dynamo)
    if before is not None and before < VERSION:
        report(f"raised from version {before} to {VERSION}")
    return [name for name in made if name is not None]


async def _create(dynamo: Dynamo, table: Table, report: Report) -> str | None:
    name, is_made = dynamo.table(table.name), True
    try:
        await dynamo.call("CreateTable", table.request(name))
    except Rejected as error:
        if error.code != "ResourceInUseException":
            raise
        is_made = False
    _check_keys(table, name, await _until_active(dynamo, name))
    report(f"{name}: {'made' if is_made else 'was there'}")
    return name if is_made else None


async def _until_active(dynamo: Dynamo, name: str) -> dict[str, Any]:
    """The table's description, once it and its indexes can be used."""
    try:
        async with asyncio.timeout(ACTIVE_SECONDS_MAX):
            while True:
                description = await _describe(dynamo, name)
                if description is not None and _is_active(description):
                    return description
                await asyncio.sleep(ACTIVE_LOOK_SECONDS)
    except TimeoutError as error:
        raise StoreUnavailable(f"the table {name} is still not active; {INIT} again later") from error


async def _describe(dynamo: Dynamo, name: str) -> dict[str, Any] | None:
    try:
        answer = await dynamo.call("DescribeTable", {"TableName": name})
    except Rejected as error:
        if error.code == "ResourceNotFoundException":
            return None
        raise
    description: dict[str, Any] = answer["Table"]
    return description


def _is_active(description: dict[str, Any]) -> bool:
    indexes = description.get("GlobalSecondaryIndexes", ())
    return all(
        part.get("TableStatus", part.get("IndexStatus")) == "ACTIVE" for part in (description, *indexes)
    )


def _check_keys(table: Table, name: str, description: dict[str, Any]) -> None:
    """A table of the same name may be somebody else's."""
    found = sorted((key["AttributeName"], key["KeyType"]) for key in description["KeySchema"])
    wanted = sorted((key["AttributeName"], key["KeyType"]) for key in table.keys)
    indexes = {index["IndexName"] for index in description.get("GlobalSecondaryIndexes", ())}
    if found != wanted or not {index for index, _ in table.indexes} <= indexes:
        raise ConfigError(f"the table {name} has other keys than Parley's; choose another dynamodb.prefix")


# What the tables are given besides


async def _expire(dynamo: Dynamo, table: Table) -> None:
    name = dynamo.table(table.name)
    if await _expires(dynamo, name):
        return
    wanted = {"Enabled": True, "AttributeName": table.ttl}
    try:
        await dynamo.call("UpdateTimeToLive", {"TableName": name, "TimeToLiveSpecification": wanted})
    except Rejected:
        if not await _expires(dynamo, name):  # another operator may have been quicker
            raise


async def _expires(dynamo: Dynamo, name: str) -> bool:
    found = await dynamo.call("DescribeTimeToLive", {"TableName": name})
    return found["TimeToLiveDescription"]["TimeToLiveStatus"] in ("ENABLED", "ENABLING")


async def _recoverable(dynamo: Dynamo, table: Table) -> str:
    """Ask for point-in-time recovery, and say whether it can be had. The server works without it."""
    name, wanted = dynamo.table(table.name), {"PointInTimeRecoveryEnabled": True}
    request = {"TableName": name, "PointInTimeRecoverySpecification": wanted}
    try:
        await dynamo.call("UpdateContinuousBackups", request)
    except Rejected as error:
        if error.code == "UnknownOperationException":
            return "point-in-time recovery: this endpoint does not have it"
        return f"point-in-time recovery: not for {name}: {error}"
    return "point-in-time recovery: on"


async def is_recoverable(dynamo: Dynamo) -> bool | None:
    """Whether the counters can be brought back to a point in time; None where the endpoint cannot do it."""
    request = {"TableName": dynamo.table("chat_counters")}
    try:
        found = await dynamo.call("DescribeContinuousBackups", request)
    except Rejected as error:
        return None if error.code == "UnknownOperationException" else False
    backups = found["ContinuousBackupsDescription"].get("PointInTimeRecoveryDescription", {})
    return bool(backups.get("PointInTimeRecoveryStatus") == "ENABLED")


# The version


async def _mark(dynamo: Dynamo) -> None:
    try:
        await dynamo.put(
            SCHEMA.name,
            {**MARK, "version": VERSION},
            condition="attribute_not_exists(#name) OR #version < :version",
            values={":version": VERSION},
            names={"#name": "name", "#version": "version"},
        )
    except ConditionFailed:
        await check_version(dynamo)


async def _version_if_any(dynamo: Dynamo) -> int | None:
    try:
        mark = await dynamo.get(SCHEMA.name, MARK)
    except Rejected as error:
        if error.code == "ResourceNotFoundException":
            return None
        raise
    version = mark.get("version") if mark is not None else None
    return version if isinstance(version, int) else None


async def check_version(dynamo: Dynamo) -> None:
    """ConfigError unless the tables are of this version."""
    version = await _version_if_any(dynamo)
    where = f"the tables {dynamo.prefix}* in {dynamo.region} ({dynamo.endpoint})"
    if version is None:
        raise ConfigError(f"{where} are not there or not complete: {INIT}, or check region and prefix")
    if version > VERSION:
        raise ConfigError(f"{where} are of version {version}, made by a newer Parley: install that one")
    if version < VERSION:
        raise ConfigError(f"{where} are of the old version {version}: {INIT}")


async def check_tables(dynamo: Dynamo) -> None:
    """Whether a server can start on these tables: ConfigError in one sentence if not."""
    await dynamo.check()
    try:
        await check_version(dynamo)
        await _all_of([_check_table(dynamo, table) for table in TABLES])
    except StoreError as error:
        raise ConfigError(f"the tables cannot be used: {error}") from error


async def _check_table(dynamo: Dynamo, table: Table) -> None:
    name = dynamo.table(table.name)
    try:
        description = await _describe(dynamo, name)
    except Rejected as error:
        if error.code == "AccessDeniedException":  # a server needs no right to describe, only to use
            return
        raise
    if description is None:
        raise ConfigError(f"there is no table {name} in {dynamo.region} ({dynamo.endpoint}): {INIT}")
    if not _is_active(description):
        raise ConfigError(f"the table {name} is not active yet: wait, or {INIT}")
    _check_keys(table, name, description)


async def _all_of(work: list[Any]) -> list[Any]:
    """Everything at once. All of it ends before the first failure is raised."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results
