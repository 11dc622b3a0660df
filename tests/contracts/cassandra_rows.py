"""What a person with cqlsh can do to the rows on Cassandra: suites break rows by it."""

from typing import Any

import msgspec

from parley.model import Role
from parley.store.cassandra.connection import CassandraConnection
from parley.store.cassandra.schema import TABLES, records_of
from parley.store.tables import TABLES as RECORD_TABLES
from parley.wire.frames import Entry

TRUNCATED = ("sessions", "push_rung", *(records_of(table) for table in RECORD_TABLES if table.raised))
BUCKETS_LOOKED_AT = 4
LATE = 2**40
"""A time of a write that stays, whatever the engine writes with positions as times."""


class CassandraRows:
    def __init__(self, connection: CassandraConnection, bucket_positions: int) -> None:
        self._connection = connection
        self._bucket_positions = bucket_positions

    def execute(self, cql: str) -> list[dict[str, Any]]:
        return self._connection.execute(cql)

    def empty(self, table: str) -> None:
        """Some are truncated: tests use the same keys there, and a tombstone would hide what comes."""
        if table in TRUNCATED:
            if self.execute(f"SELECT * FROM {table} LIMIT 1"):
                self.execute(f"TRUNCATE {table}")
            return
        partition = TABLES[table].split("PRIMARY KEY")[-1]
        keys = (
            [name.strip() for name in partition.split("((")[1].split(")")[0].split(",")]
            if "((" in partition
            else [TABLES[table].split()[0]]
        )
        columns = ", ".join(keys)
        for row in self.execute(f"SELECT DISTINCT {columns} FROM {table}"):
            where = " AND ".join(f"{key} = {_literal(row[key])}" for key in keys)
            self.execute(f"DELETE FROM {table} WHERE {where}")

    def everything(self) -> object:
        """Of logs and joins only those of chats and people that exist: others are of earlier tests."""
        chats = [row["chat_id"] for row in self.execute("SELECT chat_id FROM chats")]
        people = [row["partition"] for row in self.execute("SELECT partition FROM records_people")]
        buckets = ", ".join(map(str, range(BUCKETS_LOOKED_AT)))
        own = {
            "log": [f"chat_id = '{chat}' AND bucket IN ({buckets})" for chat in chats],
            "joining": [f"user_id = '{person}'" for person in people],
        }
        found: dict[str, list[str]] = {}
        for name in TABLES:
            wheres = [f" WHERE {where}" for where in own[name]] if name in own else [""]
            rows = [row for where in wheres for row in self.execute(f"SELECT * FROM {name}{where}")]
            found[name] = sorted(map(repr, rows))
        return found

    # The log

    def _bucket(self, sequence: int) -> int:
        return max(0, sequence - 1) // self._bucket_positions

    def _open_bucket(self, chat_id: str) -> int:
        bucket = 0
        while self._is_there(chat_id, bucket + 1):
            bucket += 1
        return bucket

    def _is_there(self, chat_id: str, bucket: int) -> bool:
        where = f"chat_id = '{chat_id}' AND bucket = {bucket}"
        rows = self.execute(f"SELECT is_closed FROM log WHERE {where} LIMIT 1")
        return bool(rows) and rows[0]["is_closed"] is not None

    def _at(self, chat_id: str, sequence: int) -> str:
        return f"chat_id = '{chat_id}' AND bucket = {self._bucket(sequence)} AND sequence = {sequence}"

    def delete_entry(self, chat_id: str, sequence: int) -> None:
        self.execute(f"DELETE FROM log WHERE {self._at(chat_id, sequence)} AND client_key = 0x IF EXISTS")

    def delete_body(self, chat_id: str, sequence: int) -> None:
        where = f"{self._at(chat_id, sequence)} AND client_key = 0x IF EXISTS"
        self.execute(f"UPDATE log SET wire = null WHERE {where}")

    def replace_entry(self, entry: Entry) -> None:
        where = f"{self._at(entry.chat_id, entry.sequence)} AND client_key = 0x IF EXISTS"
        self.execute(f"UPDATE log SET wire = {_literal(msgspec.json.encode(entry))} WHERE {where}")

    def delete_keys(self, chat_id: str) -> None:
        for bucket in range(self._open_bucket(chat_id) + 1):
            where = f"chat_id = '{chat_id}' AND bucket = {bucket} AND sequence = 0"
            for row in self.execute(f"SELECT client_key FROM log WHERE {where}"):
                key = _literal(row["client_key"])
                self.execute(f"DELETE FROM log WHERE {where} AND client_key = {key} IF EXISTS")
        for row in self.execute("SELECT chat_id, client_key FROM idempotency_keys"):
            if row["chat_id"] == chat_id:
                key = _literal(row["client_key"])
                self.execute(
                    f"DELETE FROM idempotency_keys WHERE chat_id = '{chat_id}' AND client_key = {key}"
                )

    def counter(self, chat_id: str) -> int | None:
        where = f"chat_id = '{chat_id}' AND bucket = {self._open_bucket(chat_id)}"
        rows = self.execute(f"SELECT sequence_counter FROM log WHERE {where} LIMIT 1")
        return rows[0]["sequence_counter"] if rows else None

    def set_counter(self, chat_id: str, counter: int | None) -> None:
        where = f"chat_id = '{chat_id}' AND bucket = {self._open_bucket(chat_id)}"
        value = "null" if counter is None else str(counter)
        self.execute(f"UPDATE log SET sequence_counter = {value} WHERE {where} IF is_closed = false")

    # People

    def positions(self, user_id: str, chat_id: str) -> tuple[int, int]:
        where = f"user_id = '{user_id}' AND chat_id = '{chat_id}'"
        (row,) = self.execute(f"SELECT last_acked_sequence, read_up_to FROM delivery_state WHERE {where}")
        return row["last_acked_sequence"] or 0, row["read_up_to"] or 0

    def remove_member(self, chat_id: str, user_id: str, revision: str) -> None:
        """As any program must do it: with a new revision, for whoever remembers the old."""
        self.execute(
            f"DELETE FROM chat_memberships USING TIMESTAMP {LATE}"
            f" WHERE chat_id = '{chat_id}' AND user_id = '{user_id}'"
        )
        where = f"chat_id = '{chat_id}' AND bucket = {self._open_bucket(chat_id)}"
        self.execute(f"UPDATE log SET revision = '{revision}' WHERE {where} IF is_closed = false")

    def delete_user(self, user_id: str) -> None:
        self.execute(f"DELETE FROM records_people WHERE partition = '{user_id}' AND place = '-' IF EXISTS")

    def delete_state(self, user_id: str, chat_id: str) -> None:
        self.execute(f"DELETE FROM delivery_state WHERE user_id = '{user_id}' AND chat_id = '{chat_id}'")

    def set_role(self, chat_id: str, user_id: str, role: Role) -> None:
        self.execute(
            f"UPDATE chat_memberships USING TIMESTAMP {LATE} SET role = '{role.value}'"
            f" WHERE chat_id = '{chat_id}' AND user_id = '{user_id}'"
        )

    def set_delivered(self, user_id: str, chat_id: str, sequence: int) -> None:
        self._set("last_acked_sequence", user_id, chat_id, sequence)

    def set_read(self, user_id: str, chat_id: str, sequence: int) -> None:
        self._set("read_up_to", user_id, chat_id, sequence)

    def _set(self, column: str, user_id: str, chat_id: str, sequence: int) -> None:
        self.execute(
            f"UPDATE delivery_state USING TIMESTAMP {LATE} SET {column} = {sequence}"
            f" WHERE user_id = '{user_id}' AND chat_id = '{chat_id}'"
        )

    def set_acked(self, user_id: str, device_id: str, chat_id: str, sequence: int) -> None:
        where = f"user_id = '{user_id}' AND device_id = '{device_id}' AND chat_id = '{chat_id}'"
        self.execute(
            f"UPDATE user_device_cursors SET last_acked_sequence = {sequence} WHERE {where} IF EXISTS"
        )

    def set_direct_key(self, chat_id: str, key: str) -> None:
        self.execute(
            f"UPDATE chats USING TIMESTAMP {LATE} SET direct_key = '{key}' WHERE chat_id = '{chat_id}'"
        )


def _literal(value: object) -> str:
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, int):
        return str(value)
    return "'" + str(value).replace("'", "''") + "'"
