"""The page layout of the log on SQLite without the server: the cost of a batch alone."""

from __future__ import annotations

import os
from pathlib import Path

import apsw

WIRE_BYTES = 480
BATCH_MESSAGES = 256
MOMENT = "2026-01-01T00:00:00.000Z"

SCHEMA = """
CREATE TABLE entries (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    chat_no INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    client_id BLOB,
    message_id BLOB NOT NULL,
    sender_no INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    wire BLOB NOT NULL
);
CREATE UNIQUE INDEX entries_by_sequence ON entries (chat_no, sequence);
CREATE UNIQUE INDEX entries_by_client_id ON entries (chat_no, client_id);
CREATE UNIQUE INDEX entries_by_message_id ON entries (message_id);
CREATE TABLE chat_counters (
    chat_id TEXT PRIMARY KEY,
    sequence_counter INTEGER NOT NULL,
    change INTEGER NOT NULL,
    updated_at TEXT NOT NULL
) WITHOUT ROWID;
"""
INSERT = (
    "INSERT INTO entries (chat_no, sequence, client_id, message_id, sender_no, kind, wire) "
    "VALUES (?, ?, ?, ?, ?, ?, ?)"
)
COUNT = "UPDATE chat_counters SET sequence_counter=?, change=?, updated_at=? WHERE chat_id=?"

EntryRow = tuple[int, int, bytes, bytes, int, int, bytes]
CounterRow = tuple[int, int, str, str]
Batch = tuple[list[EntryRow], list[CounterRow]]


def open_log(path: Path) -> apsw.Connection:
    """A connection whose commits are durable."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    return connection


def create_log(path: Path, chats: int) -> None:
    """An empty log with one counter for each chat."""
    connection = open_log(path)
    connection.execute(SCHEMA)
    with connection:
        connection.executemany(
            "INSERT INTO chat_counters VALUES (?, 0, 0, '')",
            ((chat_id(chat_no),) for chat_no in range(chats)),
        )
    connection.close()


def chat_id(chat_no: int) -> str:
    return f"chat_{chat_no:026d}"


def write(connection: apsw.Connection, batch: Batch) -> None:
    """Everything of a batch but its COMMIT."""
    entries, counters = batch
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(INSERT, entries)
    connection.executemany(COUNT, counters)


def commit(connection: apsw.Connection) -> None:
    connection.execute("COMMIT")


class Batches:
    """Makes batches of new entries, over the chats in turn: random client ids, ascending message ids."""

    def __init__(self, chats: int) -> None:
        self._heads = [0] * chats
        self._written = 0
        self._change = 0

    def next(self, wires: list[bytes]) -> Batch:
        chance = os.urandom(16 * len(wires))
        entries: list[EntryRow] = []
        touched: dict[int, int] = {}
        for index, wire in enumerate(wires):
            chat_no = self._written % len(self._heads)
            self._written += 1
            self._heads[chat_no] = touched[chat_no] = self._heads[chat_no] + 1
            client_id = chance[16 * index : 16 * index + 16]
            message_id = self._written.to_bytes(16, "big")
            entries.append((chat_no, touched[chat_no], client_id, message_id, 1, 0, wire))
        self._change += 1
        return entries, [(head, self._change, MOMENT, chat_id(chat_no)) for chat_no, head in touched.items()]
