"""The tables, with the names that operators expect, and the migrations of older files.

Entries of all chats are in one append-only table in commit order: that order is the feed, and pages stay
dense however many chats are active. A void is an entry without a body, so one unique index prevents that a
position is both written and sealed. `messages`, `idempotency_keys` and `voids` are views over it; a key lives
as long as its entry.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import apsw
import structlog

from parley.errors import StoreUnavailable
from parley.store.folder import create_private
from parley.store.sqlite.moved import move_to_records

log = structlog.get_logger("parley.store")

VOID, MESSAGE, OTHER = 0, 1, 2
"""Values of entries.kind: unread counts distinguish these without reading the body."""

VERSION_1 = """
CREATE TABLE changes (last INTEGER NOT NULL);
INSERT INTO changes VALUES (0);

CREATE TABLE users (
    user_no INTEGER PRIMARY KEY,
    user_id TEXT NOT NULL UNIQUE,
    username TEXT NOT NULL UNIQUE,
    password_hash TEXT NOT NULL,
    display_name TEXT NOT NULL,
    about TEXT NOT NULL DEFAULT '',
    is_operator INTEGER NOT NULL DEFAULT 0,
    last_seen TEXT,
    last_seen_privacy TEXT NOT NULL DEFAULT 'everyone',
    send_read_receipts INTEGER NOT NULL DEFAULT 1,
    created_at TEXT NOT NULL
);

CREATE TABLE sessions (
    session_id TEXT PRIMARY KEY,
    token_hash BLOB NOT NULL UNIQUE,
    user_id TEXT NOT NULL,
    device_id TEXT NOT NULL,
    device_name TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    last_used_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL
);
CREATE INDEX sessions_of_user ON sessions (user_id);

CREATE TABLE chats (
    chat_no INTEGER PRIMARY KEY,
    chat_id TEXT NOT NULL UNIQUE,
    chat_type TEXT NOT NULL,
    name TEXT,
    created_by TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    epoch INTEGER NOT NULL DEFAULT 1,
    direct_key TEXT UNIQUE,
    open_to_join INTEGER NOT NULL DEFAULT 0,
    read_receipts TEXT NOT NULL DEFAULT 'full'
);

CREATE TABLE chat_counters (
    chat_id TEXT PRIMARY KEY,
    sequence_counter INTEGER NOT NULL,
    created_at TEXT,
    updated_at TEXT,
    recovered_at TEXT,
    recovered_from_sequence INTEGER,
    change INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE chat_memberships (
    chat_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    role TEXT NOT NULL,
    joined_at TEXT NOT NULL,
    joined_sequence INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (chat_id, user_id)
) WITHOUT ROWID;
CREATE INDEX chats_of_user ON chat_memberships (user_id, chat_id);

CREATE TABLE delivery_state (
    user_id TEXT NOT NULL,
    chat_id TEXT NOT NULL,
    last_acked_sequence INTEGER NOT NULL DEFAULT 0,
    delivered_at TEXT,
    read_up_to INTEGER NOT NULL DEFAULT 0,
    read_at TEXT,
    has_left INTEGER NOT NULL DEFAULT 0,
    left_sequence INTEGER NOT NULL DEFAULT 0,
    change INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (user_id, chat_id)
) WITHOUT ROWID;

CREATE TABLE user_device_cursors (
    user_id TEXT NOT NULL,
    device_id TEXT NOT NULL,
    chat_id TEXT NOT NULL,
    last_acked_sequence INTEGER NOT NULL,
    PRIMARY KEY (user_id, device_id, chat_id)
) WITHOUT ROWID;

CREATE TABLE entries (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    chat_no INTEGER NOT NULL,
    sequence INTEGER NOT NULL CHECK (sequence >= 1),
    kind INTEGER NOT NULL,
    sender_no INTEGER,
    client_id BLOB,
    message_id BLOB,
    wire BLOB
);
CREATE UNIQUE INDEX entry_at ON entries (chat_no, sequence);
CREATE UNIQUE INDEX entry_by_client_id ON entries (chat_no, client_id) WHERE client_id IS NOT NULL;
CREATE UNIQUE INDEX entry_by_message_id ON entries (message_id) WHERE message_id IS NOT NULL;

CREATE TABLE open_allocations (
    chat_no INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    allocated_at_ms INTEGER NOT NULL,
    PRIMARY KEY (chat_no, sequence)
) WITHOUT ROWID;

CREATE VIEW messages AS
SELECT chats.chat_id AS chat_id, entries.sequence AS sequence, wire ->> 'message_id' AS message_id,
    wire ->> 'sender_id' AS sender_id, wire ->> 'client_message_id' AS client_message_id,
    wire ->> 'content' AS content, wire ->> 'content_type' AS content_type,
    wire ->> 'created_at' AS created_at, wire ->> 'server_timestamp' AS server_timestamp,
    wire ->> 'display_time' AS display_time, wire ->> 'kind' AS kind, wire ->> 'epoch' AS epoch
FROM (SELECT chat_no, sequence, CAST(wire AS TEXT) AS wire FROM entries WHERE kind <> 0) AS entries
JOIN chats USING (chat_no);

CREATE TRIGGER messages_delete INSTEAD OF DELETE ON messages BEGIN
    DELETE FROM entries WHERE sequence = OLD.sequence
        AND chat_no = (SELECT chat_no FROM chats WHERE chat_id = OLD.chat_id);
END;

CREATE VIEW idempotency_keys AS
SELECT chats.chat_id AS chat_id, wire ->> 'client_message_id' AS client_message_id,
    wire ->> 'message_id' AS message_id, entries.sequence AS sequence, wire ->> 'created_at' AS created_at,
    CAST(strftime('%s', wire ->> 'created_at') AS INTEGER) + 604800 AS ttl
FROM (
    SELECT chat_no, sequence, CAST(wire AS TEXT) AS wire FROM entries WHERE client_id IS NOT NULL
) AS entries
JOIN chats USING (chat_no);

CREATE TRIGGER idempotency_keys_delete INSTEAD OF DELETE ON idempotency_keys BEGIN
    UPDATE entries SET client_id = NULL WHERE sequence = OLD.sequence
        AND chat_no = (SELECT chat_no FROM chats WHERE chat_id = OLD.chat_id);
END;

CREATE VIEW voids AS
SELECT chats.chat_id AS chat_id, entries.sequence AS sequence
FROM entries JOIN chats USING (chat_no) WHERE entries.kind = 0;

CREATE TRIGGER voids_delete INSTEAD OF DELETE ON voids BEGIN
    DELETE FROM entries WHERE kind = 0 AND sequence = OLD.sequence
        AND chat_no = (SELECT chat_no FROM chats WHERE chat_id = OLD.chat_id);
END;
"""

VERSION_2 = """
CREATE TABLE consumer_offsets (
    group_name TEXT PRIMARY KEY,
    position INTEGER NOT NULL
) WITHOUT ROWID;
"""
"""How far each group of consumers is in the entries, in commit order."""

VERSION_3 = """
ALTER TABLE delivery_state ADD COLUMN muted_until TEXT;
"""

VERSION_5 = """
ALTER TABLE chat_memberships ADD COLUMN is_unasked INTEGER NOT NULL DEFAULT 0;
CREATE INDEX unasked_chats_of_user ON chat_memberships (user_id) WHERE is_unasked;
"""
"""Who was put into a chat by a stranger."""

VERSION_6 = """
CREATE TABLE lanes (
    chat_id TEXT NOT NULL,
    recipient TEXT NOT NULL,
    next_sequence INTEGER NOT NULL,
    target INTEGER NOT NULL,
    due_ms INTEGER NOT NULL,
    retry_count INTEGER NOT NULL,
    crashes INTEGER NOT NULL,
    attempts TEXT NOT NULL,
    PRIMARY KEY (chat_id, recipient)
) WITHOUT ROWID;
CREATE INDEX lanes_by_due ON lanes (due_ms);
CREATE INDEX lanes_of_recipient ON lanes (recipient);
"""
"""What is to be delivered to others."""

VERSION_7 = """
ALTER TABLE lanes ADD COLUMN claim TEXT NOT NULL DEFAULT '';
"""
"""Which worker runs a queue."""

VERSION_8 = """
ALTER TABLE delivery_state ADD COLUMN notify TEXT NOT NULL DEFAULT 'all';
"""

VERSION_10 = """
CREATE TABLE chat_archives (
    chat_id TEXT PRIMARY KEY,
    archived_through INTEGER NOT NULL DEFAULT 0,
    trimmed_through INTEGER NOT NULL DEFAULT 0,
    version INTEGER NOT NULL DEFAULT 0,
    manifest TEXT NOT NULL DEFAULT '',
    retention_days INTEGER,
    is_held INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE TABLE archived_messages (
    message_id BLOB PRIMARY KEY,
    chat_no INTEGER NOT NULL,
    sequence INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE archived_keys (
    chat_no INTEGER NOT NULL,
    client_id BLOB NOT NULL,
    sequence INTEGER NOT NULL,
    sender_no INTEGER NOT NULL,
    message_id BLOB NOT NULL,
    created_at TEXT NOT NULL,
    PRIMARY KEY (chat_no, client_id)
) WITHOUT ROWID;
CREATE INDEX archived_keys_by_age ON archived_keys (created_at);
"""
"""How far each log is in the cold tier and how long it is kept; where archived messages are, and the keys of
those that are younger than a key may be."""

REWRITTEN_SPAN = 1_024
"""How many positions a row of rewritten_spans stands for."""

VERSION_11 = """
CREATE TABLE rewritten_spans (
    span INTEGER PRIMARY KEY,
    number INTEGER NOT NULL
);
CREATE INDEX rewritten_spans_by_number ON rewritten_spans (number);

CREATE TRIGGER entry_rewritten AFTER UPDATE OF wire ON entries BEGIN
    INSERT INTO rewritten_spans
    VALUES (OLD.position / 1024, (SELECT coalesce(max(number), 0) + 1 FROM rewritten_spans))
    ON CONFLICT (span) DO UPDATE SET number = excluded.number;
END;
"""
"""Where entries were changed or removed after they were written, and the number of the last such change: by
that a backup knows which of its parts to write anew."""

VERSION_14 = """
ALTER TABLE chats ADD COLUMN announcement_only INTEGER NOT NULL DEFAULT 0;
ALTER TABLE chats ADD COLUMN slow_mode_seconds INTEGER NOT NULL DEFAULT 0;
"""
"""Who may post in a group, and how often."""

ONLY_RECORDS = ""
"""A version that added what became records: a file of its time has those tables, and no other needs them."""

VERSION_17 = """
CREATE TABLE records (
    kind TEXT NOT NULL,
    partition TEXT NOT NULL,
    place TEXT NOT NULL,
    record TEXT NOT NULL,
    number INTEGER NOT NULL,
    expires_ms INTEGER,
    PRIMARY KEY (kind, partition, place)
) WITHOUT ROWID;
CREATE INDEX records_by_expiry ON records (kind, expires_ms) WHERE expires_ms IS NOT NULL;
"""
"""All tables of records (`store/tables.py`), by the name of each."""

PEOPLE_17 = """
CREATE TABLE user_numbers (
    user_no INTEGER PRIMARY KEY,
    user_id TEXT NOT NULL UNIQUE
);
INSERT INTO user_numbers SELECT user_no, user_id FROM users;

CREATE TRIGGER user_numbered AFTER INSERT ON records WHEN NEW.kind = 'people' BEGIN
    INSERT OR IGNORE INTO user_numbers (user_id) VALUES (NEW.partition);
END;
"""
"""The numbers of people, which entries have instead of their ids: each gets one when they are added."""

VIEWS_17 = """
CREATE VIEW users AS
SELECT (SELECT user_no FROM user_numbers AS n WHERE n.user_id = partition) AS user_no, partition AS user_id,
    record ->> '$.user.username' AS username, record ->> '$.password_hash' AS password_hash,
    record ->> '$.user.display_name' AS display_name, record ->> '$.user.about' AS about,
    record ->> '$.user.is_operator' AS is_operator,
    CASE WHEN number > 0 THEN strftime('%Y-%m-%dT%H:%M:%fZ', number / 1000.0, 'unixepoch') END AS last_seen,
    record ->> '$.user.last_seen_privacy' AS last_seen_privacy,
    record ->> '$.user.send_read_receipts' AS send_read_receipts,
    record ->> '$.user.created_at' AS created_at,
    record ->> '$.user.state' AS account_state, record ->> '$.user.who_may_add' AS who_may_add,
    record ->> '$.user.do_not_disturb' AS do_not_disturb, record ->> '$.user.is_bot' AS is_bot,
    record ->> '$.user.external_id' AS external_id
FROM records WHERE kind = 'people' AND place = '-';

CREATE VIEW sessions AS
SELECT record ->> '$.session.session_id' AS session_id, partition AS token_hash,
    record ->> '$.session.user_id' AS user_id, record ->> '$.session.device_id' AS device_id,
    record ->> '$.session.device_name' AS device_name,
    record ->> '$.session.created_at_ms' AS created_at_ms,
    max(number, record ->> '$.session.last_used_at_ms') AS last_used_at_ms,
    record ->> '$.session.expires_at_ms' AS expires_at_ms, record ->> '$.session.origin' AS origin
FROM records WHERE kind = 'sessions';
"""
"""People and sessions as operators look at them; a use lengthens a session."""


def to_version_17(connection: apsw.Connection) -> None:
    connection.execute(VERSION_17)
    connection.execute(PEOPLE_17)
    move_to_records(connection)
    connection.execute(VIEWS_17)


MIGRATIONS: list[str | Callable[[apsw.Connection], None]] = [
    VERSION_1,
    VERSION_2,
    VERSION_3,
    ONLY_RECORDS,
    VERSION_5,
    VERSION_6,
    VERSION_7,
    VERSION_8,
    ONLY_RECORDS,
    VERSION_10,
    VERSION_11,
    *[ONLY_RECORDS] * 2,
    VERSION_14,
    *[ONLY_RECORDS] * 2,
    to_version_17,
]
"""Step n brings a file from version n to n + 1. Never change one that was released; add the next."""


def migrate(connection: apsw.Connection) -> None:
    """Bring the file to this program's version in one transaction, after a copy of an older one was made."""
    known = len(MIGRATIONS)
    if (version := version_of(connection)) > known:
        raise StoreUnavailable(
            f"the store has schema version {version}, this Parley knows {known}: use a newer Parley"
        )
    if version == known:
        return
    copy = keep_copy(connection, version) if version else None
    connection.execute("BEGIN IMMEDIATE")
    try:
        advance(connection, known)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    if copy is not None:
        log.warning("the store was brought up to date", before=version, now=known, copy=str(copy))


def advance(connection: apsw.Connection, version: int) -> None:
    """From whatever version the file has by now."""
    for step in MIGRATIONS[version_of(connection) : version]:
        if callable(step):
            step(connection)
        else:
            connection.execute(step)
    connection.execute(f"PRAGMA user_version = {version}")


def keep_copy(connection: apsw.Connection, version: int) -> Path:
    """The file as it is, beside it: whole or not there. It holds what the store held, until it is deleted."""
    file = Path(connection.filename)
    copy, part = (file.with_name(f"{file.name}.version-{version}{end}") for end in ("", ".part"))
    part.unlink(missing_ok=True)
    create_private(part)
    connection.execute("VACUUM INTO ?", (str(part),))
    with part.open("rb") as file_of_copy:
        os.fsync(file_of_copy.fileno())
    part.replace(copy)
    return copy


def version_of(connection: apsw.Connection) -> int:
    return int(connection.pragma("user_version"))
