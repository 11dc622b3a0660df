"""Version 4: what earlier versions kept in tables of their own becomes records.

`parley store init` moves it, and may be interrupted: what was moved is moved again, and the version is
written last. The old tables stay, and nothing reads them any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from parley.clock import from_iso
from parley.core.push_devices import GIVEN, PersonPushDevices, PushDevice
from parley.model import AccountDeletion, ChatSettings, Fanout, Session, User
from parley.store.cassandra.connection import Row
from parley.store.cassandra.records import CassandraRecords
from parley.store.cassandra.schema import CHATS, SCHEMA, Report, table_names
from parley.store.records import (
    BOOKS,
    WindowsOfChats,
    line_of_session,
    lines_of,
    records_of_person,
    rung_by,
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
    USERNAMES,
    WEBHOOKS,
    KeptPerson,
    KeptSession,
    RecordTable,
    ServerKey,
    TakenName,
)

FIRST_WITH_RECORDS = 4
KEY_PREFIX = "key:"
"""Before the name of a server's key, where it was beside the version."""

Read = Callable[[Row], Iterable[tuple[RecordTable[Any], Any]]]
"""The records of a row, each with its table."""


def _each(table: RecordTable[Any]) -> Read:
    """Each row is one record, as JSON."""
    decode = msgspec.json.Decoder(table.kind).decode
    return lambda row: [(table, decode(row["record"]))] if row["record"] is not None else []


def _of_book(row: Row) -> Iterable[tuple[RecordTable[Any], Any]]:
    table = BOOKS[row["book"]]
    if row["record"] is not None:
        yield table, table.decode(row["record"])


def _attachment_line(row: Row) -> Iterable[tuple[RecordTable[Any], Any]]:
    if row["record"] is not None:
        line = msgspec.json.decode(row["record"], type=dict[str, Any])
        yield ATTACHMENT_LINES, msgspec.convert({"list": row["list"], **line}, ATTACHMENT_LINES.kind)


def _fields(table: RecordTable[Any], **renamed: str) -> Read:
    """Each row is one record, a column a field. `renamed`: the columns of fields that are named otherwise."""
    names = {name: renamed.get(name, name) for name in table.kind.__struct_fields__}
    return lambda row: [(table, table.kind(**{name: row[column] for name, column in names.items()}))]


def _letter(row: Row) -> Iterable[tuple[RecordTable[Any], Any]]:
    if row["record"] is not None:
        letter = DEAD_LETTERS.decode(row["record"])
        yield from [(DEAD_LETTERS, letter), *lines_of(letter)]


def _devices(row: Row) -> Iterable[tuple[RecordTable[Any], Any]]:
    devices = msgspec.json.decode(row["record"] or b"[]", type=tuple[PushDevice, ...])
    if devices:
        yield PUSH_DEVICES, PersonPushDevices(user_id=row["user_id"], devices=devices)


def _outcome(row: Row) -> Iterable[tuple[RecordTable[Any], Any]]:
    """The newest ring of a device was noted by itself; the outcomes say it, too."""
    if row["record"] is not None:
        outcome = PUSH_OUTCOMES.decode(row["record"])
        yield PUSH_OUTCOMES, outcome
        if outcome.outcome in GIVEN:
            yield PUSH_RUNG, rung_by(outcome)


def _person(row: Row) -> Iterable[tuple[RecordTable[Any], Any]]:
    if row["record"] is not None:
        seen = row["last_seen"]
        person = KeptPerson(
            user=msgspec.json.decode(row["record"], type=User),
            password_hash=row["password_hash"] or "",
            last_seen_ms=from_iso(seen) if seen is not None else 0,
        )
        yield from records_of_person(person)


def _just_added(row: Row) -> Iterable[tuple[RecordTable[Any], Any]]:
    """Somebody who has taken their name, and whose node died before it wrote their account."""
    if row["record"] is not None:
        user = msgspec.json.decode(row["record"], type=User)
        person = KeptPerson(user=user, password_hash=row["password_hash"] or "")
        yield USERNAMES, TakenName(username=user.username, user_id=user.user_id, person=person)


def _session(row: Row) -> Iterable[tuple[RecordTable[Any], Any]]:
    """A row without a record is what is left of one that has ended."""
    if row["record"] is not None:
        session = KeptSession(
            session=msgspec.json.decode(row["record"], type=Session),
            token_hash=row["token_hash"],
            last_used_at_ms=row["last_used_at_ms"] or 0,
        )
        yield SESSIONS, session
        yield USER_SESSIONS, line_of_session(session)


def _deletion(row: Row) -> Iterable[tuple[RecordTable[Any], Any]]:
    yield DELETIONS, AccountDeletion(row["user_id"], row["since_ms"], row["username"] or "")


def _mark(windows: WindowsOfChats) -> Read:
    read = _fields(MESSAGE_MARKS)
    return lambda row: [(table, mark) for table, mark in read(row) if not windows.takes(mark)]


def _settings(windows: WindowsOfChats) -> Read:
    def read(row: Row) -> Iterable[tuple[RecordTable[Any], Any]]:
        settings = windows.settings(
            ChatSettings(
                chat_id=row["chat_id"],
                fanout=Fanout(row["fanout"]) if row["fanout"] else None,
                retention_days=row["retention_days"],
                is_held=bool(row["is_held"]),
            )
        )
        return [(CHAT_SETTINGS, settings)] if row["record"] is not None and settings is not None else []

    return read


def _server_key(row: Row) -> Iterable[tuple[RecordTable[Any], Any]]:
    name: str = row["name"]
    if name.startswith(KEY_PREFIX) and row["value"] is not None:
        yield SERVER_KEYS, ServerKey(name=name.removeprefix(KEY_PREFIX), value=row["value"])


MOVED: dict[str, Read] = {
    "usernames": _just_added,
    "users": _person,
    "sessions": _session,
    "account_deletions": _deletion,
    "books": _of_book,
    "api_tokens": _each(API_TOKENS),
    "external_ids": _each(EXTERNAL_IDS),
    "webhooks": _each(WEBHOOKS),
    "audit": _each(AUDIT),
    "erasures": _fields(ERASURES),
    "dead_letters": _letter,
    "attachments": _each(ATTACHMENTS),
    "attachment_lists": _attachment_line,
    "push_devices": _devices,
    "push_outcomes": _outcome,
    "amendments": _fields(AMENDMENTS),
    "log_hashes": _fields(LOG_HASHES, value="log_hash"),
    SCHEMA: _server_key,
}


RELATIONS = "relations"
"""The rows of a person: their contacts, blocks and invitations, each of a kind."""
READ_PEOPLE = f"SELECT DISTINCT user_id FROM {RELATIONS}"
READ_RELATIONS = f"SELECT kind, other_id, record FROM {RELATIONS} WHERE user_id = ?"


async def _move_consents(records: CassandraRecords, report: Report) -> None:
    moved = 0
    async for people in records.cassandra.pages(READ_PEOPLE):
        for person in people:
            user_id, by_kind = person["user_id"], dict[str, list[Row]]()
            for row in await records.cassandra.rows(READ_RELATIONS, user_id):
                if row["kind"] is not None:
                    by_kind.setdefault(row["kind"], []).append(row)
            relations = [
                {"other_id": row["other_id"], f"{name}_since": row["record"]}
                for kind, name in (("contact", "contact"), ("block", "blocked"))
                for row in by_kind.get(kind, [])
            ]
            invitations = [
                msgspec.json.decode(row["record"], type=dict[str, Any])
                for row in by_kind.get("invitation", [])
            ]
            if relations or invitations:
                for table, record in said_by(user_id, relations, invitations):
                    await records.put_all(table, [record])
                    moved += 1
    report(f"{records.cassandra.keyspace}.{RELATIONS}: {moved} records moved")


async def move_to_records(records: CassandraRecords, version: int, report: Report) -> None:
    """From the tables of that version."""
    if version >= FIRST_WITH_RECORDS:
        return
    cassandra = records.cassandra
    there = await table_names(cassandra)
    windows = WindowsOfChats()
    moves = MOVED | {"message_marks": _mark(windows), CHATS: _settings(windows)}
    for name, read in moves.items():
        if name not in there:
            continue
        moved = 0
        async for rows in cassandra.pages(f"SELECT * FROM {name}"):
            by_table: dict[RecordTable[Any], list[msgspec.Struct]] = {}
            for row in rows:
                for table, record in read(row):
                    by_table.setdefault(table, []).append(record)
            for table, found in by_table.items():
                await records.put_all(table, found)
                moved += len(found)
        report(f"{cassandra.keyspace}.{name}: {moved} records moved")
    if RELATIONS in there:
        await _move_consents(records, report)
    names = (*moves, RELATIONS, "chat_invitations", "operators", "user_sessions")
    old = ", ".join(f"{cassandra.keyspace}.{name}" for name in names if name not in (CHATS, SCHEMA))
    report(f"no longer read, to be dropped when all is well: {old}")
