"""The one item per chat that every write compares and marks: what goes into it."""

from __future__ import annotations

from typing import Protocol

from parley.store.dynamodb.actions import Put, Update
from parley.store.dynamodb.client import ConditionFailed, Dynamo
from parley.store.dynamodb.message_ids import tag_of
from parley.store.dynamodb.states import CHATS
from parley.store.dynamodb.values import Item

UNPUBLISHED_SHARDS = 8
"""Chats with news for the bus are listed under so many numbers, so that no one of them gets hot."""


class Marks(Protocol):
    """How far each chat is on the bus, as far as it is not in the store yet."""

    def take_mark(self, chat_id: str) -> int | None:
        """The newest mark of a chat, if there is one that the store does not have."""
        ...


def ride(marks: Marks, chat_id: str, values: Item) -> str:
    """More to set in the fence: that there is news, and how far older news is published."""
    values[":shard"] = tag_of(chat_id) % UNPUBLISHED_SHARDS
    mark = marks.take_mark(chat_id)
    if mark is None:
        return ", unpublished = :shard"
    values[":mark"] = mark
    return ", unpublished = :shard, published_through = :mark"


def set_clauses(attributes: Item, values: Item) -> tuple[str, dict[str, str]]:
    """More to set in an update, with its values; aliased, for `name` and others are reserved words."""
    names = {f"#n{number}": name for number, name in enumerate(attributes)}
    values |= {f":n{number}": value for number, value in enumerate(attributes.values())}
    return "".join(f", #n{number} = :n{number}" for number in range(len(attributes))), names


def update_chat(chat_id: str, attributes: Item) -> Update:
    """Set attributes of a chat's own item."""
    values: Item = {}
    clauses, names = set_clauses(attributes, values)
    expression = f"SET {clauses.removeprefix(', ')}"
    return Update(CHATS, {"chat_id": chat_id}, expression, values, "attribute_exists(chat_id)", names)


async def put_if_new(dynamo: Dynamo, put: Put) -> bool:
    """Whether it was put; False when somebody was faster: a position is written once."""
    try:
        await dynamo.put(put.table, put.item, condition=put.condition)
    except ConditionFailed:
        return False
    return True
