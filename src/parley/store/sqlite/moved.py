"""Version 17: what earlier versions kept in tables of their own becomes records (`store/moved.py`).

The last of the migrations that knows what a row means. Never change it once it is released.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apsw

from parley.store.moved import DERIVED, OLD_TABLES, OldRows
from parley.store.sqlite.record_rows import load

DEVICE = "device_id, provider, address, public_key, auth, preview, secret, created_ms"
SELECTS = {
    "amendments": "SELECT *, client_id AS client_key FROM amendments",
    "log_hashes": "SELECT chat_id, log_hashes.* FROM log_hashes JOIN chats USING (chat_no)",
    "push_devices": """
        SELECT user_id, json_group_array(json_object('user_id', user_id, {})) AS devices
        FROM (SELECT * FROM push_devices ORDER BY user_id, device_id) GROUP BY user_id
        """.format(", ".join(f"'{name}', {name}" for name in DEVICE.split(", "))),
    "relations": """
        SELECT user_id, json_group_array(json(one)) AS said FROM (
            SELECT user_id, json_object('other_id', other_id, 'contact_since', contact_since,
                'blocked_since', blocked_since) AS one FROM relations
            UNION ALL SELECT user_id, json_object('user_id', user_id, 'chat_id', chat_id,
                'invited_by', invited_by, 'role', role, 'invited_at', invited_at) FROM invitations
        ) GROUP BY user_id
        """,
    "chats": """
        SELECT chat_id, fanout, retention_days, is_held FROM chats
        LEFT JOIN chat_fanouts USING (chat_id) LEFT JOIN chat_archives USING (chat_id)
        """,
}
"""Of tables whose rows are not the records."""
JOINED = """
CREATE TABLE IF NOT EXISTS relations (user_id, other_id, contact_since, blocked_since);
CREATE TABLE IF NOT EXISTS invitations (user_id, chat_id, invited_by, role, invited_at);
CREATE TABLE IF NOT EXISTS chat_fanouts (chat_id, fanout);
"""
"""Tables that are read with others, and that a file of their time need not have."""
TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table'"
MOVED = {*OLD_TABLES, *DERIVED, "chat_fanouts"} - {"chats"}
"""The tables that end here."""


def move_to_records(connection: apsw.Connection) -> None:
    """In the transaction that is open."""
    connection.execute(JOINED)
    there = {name for (name,) in connection.execute(TABLES)}
    old = OldRows(notes_notified=False)
    for name in (name for name in OLD_TABLES if name in there):
        for row in _rows(connection, name):
            for table, record in old.read(name, row):
                load(connection, table, [record])
    for name in sorted(MOVED & there):
        connection.execute(f"DROP TABLE {name}")
    for name in ("retention_days", "is_held"):
        connection.execute(f"ALTER TABLE chat_archives DROP COLUMN {name}")


def _rows(connection: apsw.Connection, name: str) -> Iterator[dict[str, Any]]:
    """Each row, by the names of the fields."""
    cursor = connection.execute(SELECTS.get(name, f"SELECT * FROM {name}"))
    names: list[str] = []
    for row in cursor:
        names = names or [name for name, _ in cursor.get_description()]
        yield dict(zip(names, row, strict=True))
