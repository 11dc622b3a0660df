"""Version 17: what earlier versions kept in tables of their own becomes records.

The last of the migrations that knows what a row means. Never change it once it is released.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any

import apsw
from msgspec import Struct, field

from parley.clock import from_iso
from parley.core.attachments import line_of
from parley.core.log_hash import StoredHash
from parley.core.push_devices import GIVEN, PersonPushDevices, PushDevice, PushOutcome
from parley.model import AccountDeletion, ChatSettings, Session, User
from parley.store.records import (
    BOOKS,
    WindowsOfChats,
    line_of_session,
    lines_of,
    record_of,
    records_of_person,
    rung_by,
    said_by,
)
from parley.store.sqlite.record_rows import load
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
    PEOPLE,
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
)


class MovedTable(Struct, frozen=True):
    """A table whose rows become records. `renamed`: columns that were named other than the field."""

    name: str
    table: RecordTable[Any]
    renamed: Mapping[str, str] = field(default_factory=dict)


MOVED = (
    MovedTable("api_tokens", API_TOKENS),
    MovedTable("external_ids", EXTERNAL_IDS),
    MovedTable("webhooks", WEBHOOKS),
    MovedTable("audit", AUDIT),
    MovedTable("erasures", ERASURES),
    MovedTable("server_keys", SERVER_KEYS),
    MovedTable("attachments", ATTACHMENTS),
    MovedTable("dead_letters", DEAD_LETTERS),
    MovedTable("message_marks", MESSAGE_MARKS),
    MovedTable("amendments", AMENDMENTS, {"client_id": "client_key"}),
)


def move_to_records(connection: apsw.Connection) -> None:
    """In the transaction that is open."""
    for book, table in BOOKS.items():
        rows = connection.execute("SELECT record FROM books WHERE book = ?", (book,)).fetchall()
        load(connection, table, [table.decode(str(record)) for (record,) in rows])
    windows = WindowsOfChats()
    for moved in MOVED:
        records = [record_of(moved.table.kind, columns) for columns in rows_of(connection, moved)]
        if moved.table is MESSAGE_MARKS:
            records = [mark for mark in records if not windows.takes(mark)]
        load(connection, moved.table, records)
        if moved.table is ATTACHMENTS:
            lines = [line_of(name, file, file.since_ms) for file in records for name in file.lists]
            load(connection, ATTACHMENT_LINES, lines)
        if moved.table is DEAD_LETTERS:
            for table, line in [both for letter in records for both in lines_of(letter)]:
                load(connection, table, [line])
    move_people(connection)
    move_hashes(connection)
    move_push(connection)
    move_settings(connection, windows)
    move_consents(connection)
    for name in ("books", *(moved.name for moved in MOVED)):
        connection.execute(f"DROP TABLE {name}")


def move_people(connection: apsw.Connection) -> None:
    """A person becomes a record, as do their name, their place among the operators, and each session."""
    for row in rows_of(connection, MovedTable("users", PEOPLE, {"account_state": "state"})):
        seen_ms = from_iso(row["last_seen"]) if row["last_seen"] is not None else 0
        user = record_of(User, row | {"last_seen": None})
        person = KeptPerson(user=user, password_hash=row["password_hash"], last_seen_ms=seen_ms)
        for table, record in records_of_person(person):
            load(connection, table, [record])
    for row in rows_of(connection, MovedTable("sessions", SESSIONS)):
        session = KeptSession(session=record_of(Session, row), token_hash=row["token_hash"])
        load(connection, SESSIONS, [session])
        load(connection, USER_SESSIONS, [line_of_session(session)])
    rows = rows_of(connection, MovedTable("account_deletions", DELETIONS))
    load(connection, DELETIONS, [record_of(AccountDeletion, row) for row in rows])
    for name in ("users", "sessions", "account_deletions"):
        connection.execute(f"DROP TABLE {name}")


def move_hashes(connection: apsw.Connection) -> None:
    """They named chats by numbers."""
    sql = "SELECT chat_id, log_hashes.epoch, sequence, log_hash FROM log_hashes JOIN chats USING (chat_no)"
    names = ("chat_id", "epoch", "sequence", "value")
    rows = connection.execute(sql).fetchall()
    load(connection, LOG_HASHES, [record_of(StoredHash, dict(zip(names, row, strict=True))) for row in rows])
    connection.execute("DROP TABLE log_hashes")


def move_push(connection: apsw.Connection) -> None:
    """The devices of a person become one record; the newest ring of each device is noted by itself."""
    rows = rows_of(connection, MovedTable("push_devices", PUSH_DEVICES))
    devices = sorted(
        (record_of(PushDevice, row) for row in rows), key=lambda one: (one.user_id, one.device_id)
    )
    people = groupby(devices, key=lambda one: one.user_id)
    found = [PersonPushDevices(user_id=user_id, devices=tuple(some)) for user_id, some in people]
    load(connection, PUSH_DEVICES, found)
    rows = rows_of(connection, MovedTable("push_outcomes", PUSH_OUTCOMES))
    outcomes = [record_of(PushOutcome, row) for row in rows]
    load(connection, PUSH_OUTCOMES, outcomes)
    load(connection, PUSH_RUNG, [rung_by(one) for one in outcomes if one.outcome in GIVEN])
    for name in ("push_devices", "push_outcomes"):
        connection.execute(f"DROP TABLE {name}")


def move_settings(connection: apsw.Connection, windows: WindowsOfChats) -> None:
    """The strategy of a chat, how long it is kept and its messages may be edited become one record."""
    sql = (
        "SELECT chat_id, fanout, retention_days, coalesce(is_held, 0) FROM chats"
        " LEFT JOIN chat_fanouts USING (chat_id) LEFT JOIN chat_archives USING (chat_id)"
    )
    names = ("chat_id", "fanout", "retention_days", "is_held")
    rows = connection.execute(sql).fetchall()
    found = [windows.settings(record_of(ChatSettings, dict(zip(names, row, strict=True)))) for row in rows]
    load(connection, CHAT_SETTINGS, [settings for settings in found if settings is not None])
    connection.execute("DROP TABLE chat_fanouts")
    for name in ("retention_days", "is_held"):
        connection.execute(f"ALTER TABLE chat_archives DROP COLUMN {name}")


def move_consents(connection: apsw.Connection) -> None:
    """The blocks of a person and the invitations that wait for them become one record."""
    relations, invitations = (
        {
            user_id: list(rows)
            for user_id, rows in groupby(
                sorted(_dicts(connection, name), key=itemgetter("user_id")), key=itemgetter("user_id")
            )
        }
        for name in ("relations", "invitations")
    )
    for user_id in sorted(relations.keys() | invitations.keys()):
        for table, record in said_by(user_id, relations.get(user_id, []), invitations.get(user_id, [])):
            load(connection, table, [record])
    for name in ("relations", "invitations"):
        connection.execute(f"DROP TABLE {name}")


def rows_of(connection: apsw.Connection, moved: MovedTable) -> Iterator[dict[str, Any]]:
    """Each row, by the names of the fields."""
    for row in _dicts(connection, moved.name):
        yield {moved.renamed.get(name, name): value for name, value in row.items()}


def _dicts(connection: apsw.Connection, table: str) -> Iterator[dict[str, Any]]:
    cursor = connection.execute(f"SELECT * FROM {table}")
    names: list[str] = []
    for row in cursor:
        names = names or [name for name, _ in cursor.get_description()]
        yield dict(zip(names, row, strict=True))
