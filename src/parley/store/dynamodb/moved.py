"""Version 14: what earlier versions kept in tables of their own becomes records.

`parley store init` moves it, and may be interrupted: what was moved is moved again, and the version is
written last. The old tables stay, and nothing reads them any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import msgspec

from parley.clock import MS_PER_DAY, MS_PER_SECOND, from_iso
from parley.core.deliveries import DeadLetter
from parley.core.marks import MessageMark
from parley.core.push_devices import OUTCOME_DAYS, RungThrough
from parley.model import AccountState, ChatSettings, Session, User
from parley.store.dynamodb.driver import Dynamo, Item, number
from parley.store.dynamodb.records import load
from parley.store.dynamodb.scans import table_pages
from parley.store.dynamodb.schema import CHATS, SCHEMA, SEPARATOR, Report, has_table
from parley.store.records import (
    BOOKS,
    WindowsOfChats,
    line_of_session,
    lines_of,
    record_of,
    records_of_person,
    said_by,
)
from parley.store.tables import (
    AMENDMENTS,
    API_TOKENS,
    ATTACHMENT_LINES,
    ATTACHMENTS,
    AUDIT,
    CHAT_SETTINGS,
    DEAD_LETTERS,
    DELETIONS,
    ERASURES,
    EXTERNAL_IDS,
    LOG_HASHES,
    MESSAGE_MARKS,
    PUSH_DEVICES,
    PUSH_OUTCOMES,
    PUSH_RUNG,
    SERVER_KEYS,
    SESSIONS,
    USER_SESSIONS,
    WEBHOOKS,
    KeptPerson,
    KeptSession,
    RecordTable,
    ServerKey,
)

FIRST_WITH_RECORDS = 14
WRITES_AT_ONCE_MAX = 16
KEY_PREFIX = "key:"
"""Before the name of a server's key, where it was beside the version."""
RUNG = "rung"
"""Instead of a position, where the newest one was that rang on a device."""
DEVICE_FIELDS = ("device_id", "provider", "address", "public_key", "auth", "preview", "secret", "created_ms")
"""What a device was, in this order."""
SETTINGS = ("chat_id", "fanout", "retention_days", "is_held")
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


def _letter(item: Item) -> Iterable[tuple[RecordTable[Any], Any]]:
    letter = record_of(DeadLetter, item)
    return [(DEAD_LETTERS, letter), *lines_of(letter)]


def _devices(item: Item) -> Iterable[tuple[RecordTable[Any], Any]]:
    user_id = cast(str, item["user_id"])
    found = msgspec.msgpack.decode(cast(bytes, item["devices"]), type=list[list[Any]])
    devices = [dict(zip(DEVICE_FIELDS, one, strict=True)) | {"user_id": user_id} for one in found]
    if devices:
        yield PUSH_DEVICES, msgspec.convert({"user_id": user_id, "devices": devices}, PUSH_DEVICES.kind)


def _outcome(item: Item) -> Iterable[tuple[RecordTable[Any], Any]]:
    chat_id, _, sequence = cast(str, item["place"]).partition(SEPARATOR)
    user_id, _, device_id = cast(str, item["device"]).partition(SEPARATOR)
    if sequence == RUNG:
        since_ms = number(item, "ttl") * MS_PER_SECOND - OUTCOME_DAYS * MS_PER_DAY
        rung = RungThrough(
            chat_id=chat_id,
            user_id=user_id,
            device_id=device_id,
            since_ms=since_ms,
            sequence=number(item, "sequence"),
        )
        yield PUSH_RUNG, rung
    else:
        whose = {"chat_id": chat_id, "sequence": int(sequence), "user_id": user_id, "device_id": device_id}
        yield PUSH_OUTCOMES, record_of(PUSH_OUTCOMES.kind, item | whose)


def _person(item: Item) -> Iterable[tuple[RecordTable[Any], Any]]:
    state = item.get("account_state", AccountState.ACTIVE.value)
    user = record_of(User, item | {"last_seen": None, "state": state})
    seen = cast("str | None", item.get("last_seen"))
    person = KeptPerson(
        user=user,
        password_hash=cast(str, item["password_hash"]),
        last_seen_ms=from_iso(seen) if seen is not None else 0,
    )
    return records_of_person(person)


def _session(item: Item) -> Iterable[tuple[RecordTable[Any], Any]]:
    session = KeptSession(session=record_of(Session, item), token_hash=cast(bytes, item["token_hash"]))
    return [(SESSIONS, session), (USER_SESSIONS, line_of_session(session))]


def _mark(windows: WindowsOfChats) -> Read:
    def read(item: Item) -> Iterable[tuple[RecordTable[Any], Any]]:
        chat_id, _, target = cast(str, item["place"]).partition(SEPARATOR)
        mark = record_of(MessageMark, item | {"chat_id": chat_id, "target": int(target)})
        return [] if windows.takes(mark) else [(MESSAGE_MARKS, mark)]

    return read


def _settings(windows: WindowsOfChats) -> Read:
    def read(item: Item) -> Iterable[tuple[RecordTable[Any], Any]]:
        stored = {name: item[name] for name in SETTINGS if item.get(name) is not None}
        settings = windows.settings(record_of(ChatSettings, stored))
        return [] if settings is None else [(CHAT_SETTINGS, settings)]

    return read


def _hash(item: Item) -> Iterable[tuple[RecordTable[Any], Any]]:
    yield LOG_HASHES, record_of(LOG_HASHES.kind, item | {"value": item["log_hash"]})


def _server_key(item: Item) -> Iterable[tuple[RecordTable[Any], Any]]:
    name = cast(str, item["name"])
    if name.startswith(KEY_PREFIX):
        yield SERVER_KEYS, ServerKey(name=name.removeprefix(KEY_PREFIX), value=cast(str, item["value"]))


MOVED: dict[str, Read] = {
    "users": _person,
    "sessions": _session,
    "account_deletions": _each(DELETIONS),
    "books": _of_book,
    "api_tokens": _each(API_TOKENS),
    "external_ids": _each(EXTERNAL_IDS),
    "webhooks": _webhook,
    "audit": _each(AUDIT),
    "erasures": _each(ERASURES),
    "dead_letters": _letter,
    "attachments": _json_of(ATTACHMENTS),
    "attachment_lists": _each(ATTACHMENT_LINES),
    "push_devices": _devices,
    "push_outcomes": _outcome,
    "amendments": _each(AMENDMENTS),
    "log_hashes": _hash,
    SCHEMA: _server_key,
}


OF_PEOPLE = ("relations", "invitations", "chat_invitations")
"""Tables of which all that is about one person becomes a record. The last repeats the one before."""


async def _move_consents(dynamo: Dynamo, report: Report) -> None:
    there = [name for name in OF_PEOPLE[:2] if await has_table(dynamo, name)]
    for name in there:
        moved, last = 0, ""
        async for items in table_pages(dynamo, name):
            for user_id in dict.fromkeys(cast(str, item["user_id"]) for item in items):
                if user_id != last:  # the items of a person follow each other
                    moved += await _move_consent(dynamo, user_id, there)
                last = user_id
        report(f"{dynamo.table(name)}: {moved} records moved")


async def _move_consent(dynamo: Dynamo, user_id: str, there: list[str]) -> int:
    """All that a person has said. Who was moved is asked for it: see `load`."""
    found = {name: await dynamo.query_all(name, "user_id = :user", {":user": user_id}) for name in there}
    relations, invitations = [found.get(name, []) for name in OF_PEOPLE[:2]]
    records = said_by(user_id, relations, invitations)
    for table, record in records:
        await load(dynamo, table, [record])
    return len(records)


async def move_to_records(dynamo: Dynamo, version: int, report: Report) -> None:
    """From the tables of that version."""
    if version >= FIRST_WITH_RECORDS:
        return
    windows = WindowsOfChats()
    moves = MOVED | {"message_marks": _mark(windows), CHATS: _settings(windows)}
    for name, read in moves.items():
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
    await _move_consents(dynamo, report)
    gone = (*moves, *OF_PEOPLE, "usernames", "user_sessions")
    old = ", ".join(dynamo.table(name) for name in gone if name not in (CHATS, SCHEMA))
    report(f"no longer read, to be deleted when all is well: {old}")
