"""How each kind of record is stored in the tables of SQLite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from parley.core.deliveries import DeliveryQueue
from parley.store.records import (
    ChatRecord,
    CursorRecord,
    MemberRecord,
    MemberStateRecord,
    Record,
    column_names,
    columns_of,
)


class TableOfRecords(Struct, frozen=True, kw_only=True):
    """A table with the columns of a record. `key`: its primary key, or another one that is unique.

    `derived`: columns that are read by an expression and not written. `renamed`: those that have another name
    here than in the record. `last_change`: whether its rows say when they changed.
    """

    name: str
    key: tuple[str, ...]
    derived: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    last_change: bool = False

    @property
    def after(self) -> str:
        """The condition of a page that is not the first one."""
        return f"({', '.join(self.key)}) > ({', '.join('?' * len(self.key))})"

    def select(self, kind: type[Record], where: str) -> str:
        """A page of rows in the order of their keys."""
        names = [f"{self.derived.get(n) or self.renamed.get(n, n)} AS {n}" for n in column_names(kind)]
        order = ", ".join(self.key)
        columns = f"{order}, {', '.join(names)}"
        return f"SELECT {columns} FROM {self.name} AS t WHERE {where} ORDER BY {order} LIMIT ?"

    def insert(self, kind: type[Record]) -> str:
        """Keeps the number of a row that is there: others refer to it."""
        names = [self.renamed.get(n, n) for n in column_names(kind) if n not in self.derived]
        values = ["?"] * len(names)
        if self.last_change:
            names, values = [*names, "change"], [*values, "(SELECT last FROM changes)"]
        changed = ", ".join(f"{name} = excluded.{name}" for name in names if name not in self.key)
        action = f"DO UPDATE SET {changed}" if changed else "DO NOTHING"
        return (
            f"INSERT INTO {self.name} ({', '.join(names)}) VALUES ({', '.join(values)})"
            f" ON CONFLICT ({', '.join(self.key)}) {action}"
        )

    def values(self, record: Record) -> tuple[Any, ...]:
        return tuple(value for name, value in columns_of(record).items() if name not in self.derived)


COUNTED = "(SELECT count(*) FROM chat_memberships AS m WHERE m.chat_id = t.chat_id{})"
COUNTER = "(SELECT {} FROM chat_counters AS c WHERE c.chat_id = t.chat_id)"
IS_UNASKED = (
    "coalesce((SELECT is_unasked FROM chat_memberships AS m"
    " WHERE m.chat_id = t.chat_id AND m.user_id = t.user_id), 0)"
)

TABLES: dict[type[Record], TableOfRecords] = {
    ChatRecord: TableOfRecords(
        name="chats",
        key=("chat_id",),
        derived={
            "counter": COUNTER.format("sequence_counter"),
            "member_count": COUNTED.format(""),
            "owner_count": COUNTED.format(" AND role = 'owner'"),
            "recovered_at": COUNTER.format("recovered_at"),
            "recovered_from_sequence": COUNTER.format("recovered_from_sequence"),
        },
        renamed={"title": "name"},
    ),
    MemberRecord: TableOfRecords(name="chat_memberships", key=("chat_id", "user_id")),
    MemberStateRecord: TableOfRecords(
        name="delivery_state",
        key=("user_id", "chat_id"),
        derived={"is_unasked": IS_UNASKED},
        last_change=True,
    ),
    CursorRecord: TableOfRecords(name="user_device_cursors", key=("user_id", "device_id", "chat_id")),
    DeliveryQueue: TableOfRecords(name="lanes", key=("chat_id", "recipient")),
}
