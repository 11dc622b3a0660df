"""What a person with a store's own tools can do to its rows, on every engine: suites break rows by it."""

import copy
from base64 import b64encode
from collections.abc import Callable
from typing import Any, Protocol

import msgspec
from msgspec import structs

from parley.model import Role
from parley.store.dynamodb.bundles import BUNDLE, span_of, unbundled
from parley.store.dynamodb.driver import Item, from_item, to_item
from parley.store.dynamodb.entries import put_entry
from parley.store.dynamodb.schema import TABLES, device_key
from parley.wire.frames import Entry
from tests.memory.tables import Tables

Execute = Callable[..., list[tuple[Any, ...]]]


class RowEditor(Protocol):
    """Edits rows without the engine, which may be open meanwhile."""

    def everything(self) -> object:
        """All that is stored, to be compared with a later look."""
        ...

    def delete_entry(self, chat_id: str, sequence: int) -> None:
        """The position is empty then."""
        ...

    def delete_body(self, chat_id: str, sequence: int) -> None:
        """The entry is there, and says nothing."""
        ...

    def replace_entry(self, entry: Entry) -> None:
        """What is at the position of this entry says what this one says."""
        ...

    def delete_keys(self, chat_id: str) -> None:
        """Every idempotency key of a chat, as if they had expired."""
        ...

    def delete_user(self, user_id: str) -> None:
        """The account is gone; everything else of the person stays."""
        ...

    def delete_state(self, user_id: str, chat_id: str) -> None:
        """The member no longer finds the chat in their overview."""
        ...

    def set_role(self, chat_id: str, user_id: str, role: Role) -> None: ...

    def set_delivered(self, user_id: str, chat_id: str, sequence: int) -> None: ...

    def set_read(self, user_id: str, chat_id: str, sequence: int) -> None: ...

    def set_acked(self, user_id: str, device_id: str, chat_id: str, sequence: int) -> None:
        """Only of a device that has a position already."""
        ...

    def set_direct_key(self, chat_id: str, key: str) -> None: ...


class MemoryRows:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def everything(self) -> object:
        return copy.deepcopy(self._tables)

    def delete_entry(self, chat_id: str, sequence: int) -> None:
        chat = self._tables.chats[chat_id]
        del chat.entries[sequence]
        chat.wires.pop(sequence, None)
        chat.last = max(chat.entries, default=0)

    def delete_body(self, chat_id: str, sequence: int) -> None:
        del self._tables.chats[chat_id].wires[sequence]

    def replace_entry(self, entry: Entry) -> None:
        chat = self._tables.chats[entry.chat_id]
        chat.entries[entry.sequence] = entry
        chat.wires[entry.sequence] = msgspec.json.encode(entry)

    def delete_keys(self, chat_id: str) -> None:
        self._tables.chats[chat_id].keys.clear()

    def delete_user(self, user_id: str) -> None:
        del self._tables.records["people"][user_id, "-"]

    def delete_state(self, user_id: str, chat_id: str) -> None:
        del self._tables.states[user_id, chat_id]

    def set_role(self, chat_id: str, user_id: str, role: Role) -> None:
        members = self._tables.chats[chat_id].members
        members[user_id] = structs.replace(members[user_id], role=role)

    def set_delivered(self, user_id: str, chat_id: str, sequence: int) -> None:
        self._tables.states[user_id, chat_id].delivered = sequence, None

    def set_read(self, user_id: str, chat_id: str, sequence: int) -> None:
        self._tables.states[user_id, chat_id].read = sequence, None

    def set_acked(self, user_id: str, device_id: str, chat_id: str, sequence: int) -> None:
        self._tables.devices[user_id, device_id, chat_id] = sequence

    def set_direct_key(self, chat_id: str, key: str) -> None:
        self._tables.chats[chat_id].pair = tuple(key.split("|"))


class SqliteRows:
    """`execute` does one statement on a connection of its own."""

    def __init__(self, execute: Execute) -> None:
        self._execute = execute

    def everything(self) -> object:
        names = self._execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
        return {name: sorted(map(repr, self._execute(f"SELECT * FROM {name}"))) for (name,) in names}

    def delete_entry(self, chat_id: str, sequence: int) -> None:
        self._entry("DELETE FROM entries", chat_id, sequence)

    def delete_body(self, chat_id: str, sequence: int) -> None:
        self._entry("UPDATE entries SET wire = NULL", chat_id, sequence)

    def replace_entry(self, entry: Entry) -> None:
        where = "chat_no = (SELECT chat_no FROM chats WHERE chat_id = ?) AND sequence = ?"
        values = (msgspec.json.encode(entry), entry.chat_id, entry.sequence)
        self._execute(f"UPDATE entries SET wire = ? WHERE {where}", values)

    def _entry(self, statement: str, chat_id: str, sequence: int) -> None:
        where = "chat_no = (SELECT chat_no FROM chats WHERE chat_id = ?) AND sequence = ?"
        self._execute(f"{statement} WHERE {where}", (chat_id, sequence))

    def delete_keys(self, chat_id: str) -> None:
        self._execute("DELETE FROM idempotency_keys WHERE chat_id = ?", (chat_id,))

    def delete_user(self, user_id: str) -> None:
        self._execute("DELETE FROM records WHERE kind = 'people' AND partition = ?", (user_id,))

    def delete_state(self, user_id: str, chat_id: str) -> None:
        self._execute("DELETE FROM delivery_state WHERE user_id = ? AND chat_id = ?", (user_id, chat_id))

    def set_role(self, chat_id: str, user_id: str, role: Role) -> None:
        sql = "UPDATE chat_memberships SET role = ? WHERE chat_id = ? AND user_id = ?"
        self._execute(sql, (role.value, chat_id, user_id))

    def set_delivered(self, user_id: str, chat_id: str, sequence: int) -> None:
        self._state("last_acked_sequence", user_id, chat_id, sequence)

    def set_read(self, user_id: str, chat_id: str, sequence: int) -> None:
        self._state("read_up_to", user_id, chat_id, sequence)

    def _state(self, column: str, user_id: str, chat_id: str, sequence: int) -> None:
        sql = f"UPDATE delivery_state SET {column} = ? WHERE user_id = ? AND chat_id = ?"
        self._execute(sql, (sequence, user_id, chat_id))

    def set_acked(self, user_id: str, device_id: str, chat_id: str, sequence: int) -> None:
        where = "user_id = ? AND device_id = ? AND chat_id = ?"
        sql = f"UPDATE user_device_cursors SET last_acked_sequence = ? WHERE {where}"
        self._execute(sql, (sequence, user_id, device_id, chat_id))

    def set_direct_key(self, chat_id: str, key: str) -> None:
        self._execute("UPDATE chats SET direct_key = ? WHERE chat_id = ?", (key, chat_id))


class DynamoRows:
    """`client` is one of AWS's own library."""

    def __init__(self, client: Any, prefix: str) -> None:
        self._client = client
        self._prefix = prefix

    def everything(self) -> object:
        return {name: sorted(map(repr, self._items(name))) for name in TABLES}

    def _items(self, table: str, **options: Any) -> list[Item]:
        pages = self._client.get_paginator("scan").paginate(
            TableName=self._prefix + table, ConsistentRead=True, **options
        )
        return [from_item(_as_sent(item)) for page in pages for item in page["Items"]]

    def _delete(self, table: str, **key: Any) -> None:
        self._client.delete_item(TableName=self._prefix + table, Key=to_item(key))

    def _update(self, table: str, key: Item, expression: str, **values: Any) -> None:
        given = {f":{name}": value for name, value in values.items()}
        options = {"ExpressionAttributeValues": to_item(given)} if given else {}
        self._client.update_item(
            TableName=self._prefix + table, Key=to_item(key), UpdateExpression=expression, **options
        )

    def _take_apart(self, chat_id: str, sequence: int) -> None:
        """Entries that share an item with this one get items of their own."""
        for item in self._items("messages"):
            if item["chat_id"] == chat_id and item.get("kind") == BUNDLE and sequence in span_of(item):
                for plain in unbundled(item):
                    self._client.put_item(TableName=self._prefix + "messages", Item=to_item(plain))
                self._take_hints(item)

    def _take_hints(self, bundle: Item) -> None:
        """The keys of these entries name their own items then."""
        for key in self._items("idempotency_keys"):
            is_in = key["chat_id"] == bundle["chat_id"] and key["sequence"] in span_of(bundle)
            if is_in and "item_sequence" in key:
                place = {name: key[name] for name in ("chat_id", "client_message_id")}
                self._update("idempotency_keys", place, "REMOVE item_sequence")

    def delete_entry(self, chat_id: str, sequence: int) -> None:
        self._take_apart(chat_id, sequence)
        self._delete("messages", chat_id=chat_id, sequence=sequence)

    def delete_body(self, chat_id: str, sequence: int) -> None:
        self._take_apart(chat_id, sequence)
        self._update("messages", {"chat_id": chat_id, "sequence": sequence}, "REMOVE content")

    def replace_entry(self, entry: Entry) -> None:
        self._take_apart(entry.chat_id, entry.sequence)
        self._client.put_item(TableName=self._prefix + "messages", Item=to_item(put_entry(entry).item))

    def delete_keys(self, chat_id: str) -> None:
        for key in self._items("idempotency_keys"):
            if key["chat_id"] == chat_id:
                name = key["client_message_id"]
                self._delete("idempotency_keys", chat_id=chat_id, client_message_id=name)

    def delete_user(self, user_id: str) -> None:
        self._delete("records_people", partition=user_id, place="-")

    def delete_state(self, user_id: str, chat_id: str) -> None:
        self._delete("delivery_state", user_id=user_id, chat_id=chat_id)

    def set_role(self, chat_id: str, user_id: str, role: Role) -> None:
        key: Item = {"chat_id": chat_id, "user_id": user_id}
        self._client.update_item(
            TableName=self._prefix + "chat_memberships",
            Key=to_item(key),
            UpdateExpression="SET #role = :role",
            ExpressionAttributeNames={"#role": "role"},
            ExpressionAttributeValues=to_item({":role": role.value}),
        )

    def set_delivered(self, user_id: str, chat_id: str, sequence: int) -> None:
        key: Item = {"user_id": user_id, "chat_id": chat_id}
        self._update("delivery_state", key, "SET last_acked_sequence = :at", at=sequence)

    def set_read(self, user_id: str, chat_id: str, sequence: int) -> None:
        self._update(
            "delivery_state", {"user_id": user_id, "chat_id": chat_id}, "SET read_up_to = :at", at=sequence
        )

    def set_acked(self, user_id: str, device_id: str, chat_id: str, sequence: int) -> None:
        key = device_key(user_id, device_id, chat_id)
        self._update("user_device_cursors", key, "SET last_acked_sequence = :at", at=sequence)

    def set_direct_key(self, chat_id: str, key: str) -> None:
        self._update("chats", {"chat_id": chat_id}, "SET direct_key = :pair", pair=key)


def _as_sent(item: dict[str, Any]) -> dict[str, Any]:
    """An item as DynamoDB sends it: AWS's library has decoded its bytes."""
    return {
        name: {"B": b64encode(value["B"]).decode()} if "B" in value else value for name, value in item.items()
    }
