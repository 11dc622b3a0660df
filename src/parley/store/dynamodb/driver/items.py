"""Items as Python values and in DynamoDB's JSON, and the actions of a transaction."""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

KEY_BYTES_MAX = 1_024

Value = str | int | bytes | bool | None
Item = dict[str, Value]
"""One item of a table: whole numbers are N, bytes are B, None is NULL."""
Names = Mapping[str, str]

Attribute = dict[str, Any]
"""A value in JSON: `{"S": "…"}`, `{"N": "…"}`, `{"B": "<base64>"}`, `{"BOOL": …}`, `{"NULL": true}`."""


def to_item(item: Mapping[str, Value]) -> dict[str, Attribute]:
    """An item in DynamoDB's JSON; TypeError for a value of any other type."""
    attributes = {}
    for name, value in item.items():
        kind = type(value)
        if kind is str:
            attributes[name] = {"S": value}
        elif kind is int:
            attributes[name] = {"N": str(value)}
        else:
            attributes[name] = _to_attribute(value)
    return attributes


def _to_attribute(value: Value) -> Attribute:
    """The rarer types, and subclasses such as members of a StrEnum."""
    if isinstance(value, bytes):
        return {"B": b2a_base64(value, newline=False).decode("ascii")}
    if value is None:
        return {"NULL": True}
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, str):
        return {"S": str.__str__(value)}
    if isinstance(value, int):
        return {"N": int.__repr__(value)}
    raise TypeError(f"{type(value).__name__} is not a type that an item may hold")


def from_item(attributes: Mapping[str, Attribute]) -> Item:
    """An item from DynamoDB's JSON. Leaves out what Parley never writes: sets, maps and fractions."""
    item: Item = {}
    for name, attribute in attributes.items():
        for kind, value in attribute.items():
            if kind == "S" or kind == "BOOL":
                item[name] = value
            elif kind == "N":
                _add_number(item, name, value)
            elif kind == "B":
                item[name] = a2b_base64(value)
            elif kind == "NULL":
                item[name] = None
    return item


def _add_number(item: Item, name: str, text: str) -> None:
    try:
        item[name] = int(text)
    except ValueError:
        number = float(text)
        if number.is_integer():
            item[name] = int(number)


def number(item: Item, name: str) -> int:
    """An attribute that is a whole number; 0 if it is missing or something else."""
    value = item.get(name)
    return value if isinstance(value, int) else 0


def is_valid_key(*texts: str) -> bool:
    """Whether each text can be a key of an item. DynamoDB rejects a request with any other text."""
    try:
        return all(0 < len(text.encode()) <= KEY_BYTES_MAX for text in texts)
    except UnicodeEncodeError:
        return False


class ItemPage(Struct):
    """One page of a query or a scan; `next_key` is where the next one starts, None at the end."""

    items: list[Item]
    next_key: Item | None = None


# The actions of a transaction


class Put(Struct, gc=False):
    table: str
    item: Item
    condition: str | None = None
    values: Item | None = None
    names: Names | None = None

    def request(self, prefix: str) -> dict[str, Any]:
        request = {"TableName": prefix + self.table, "Item": to_item(self.item)}
        return {"Put": with_condition(request, self.condition, self.values, self.names)}


class UpdateItem(Struct, gc=False):
    table: str
    key: Item
    expression: str
    values: Item | None = None
    condition: str | None = None
    names: Names | None = None

    def request(self, prefix: str) -> dict[str, Any]:
        request = {
            "TableName": prefix + self.table,
            "Key": to_item(self.key),
            "UpdateExpression": self.expression,
        }
        return {"Update": with_condition(request, self.condition, self.values, self.names)}


class Delete(Struct, gc=False):
    table: str
    key: Item
    condition: str | None = None
    values: Item | None = None
    names: Names | None = None

    def request(self, prefix: str) -> dict[str, Any]:
        request = {"TableName": prefix + self.table, "Key": to_item(self.key)}
        return {"Delete": with_condition(request, self.condition, self.values, self.names)}


class ConditionCheck(Struct, gc=False):
    """Writes nothing. The transaction fails if the condition does not hold."""

    table: str
    key: Item
    condition: str
    values: Item | None = None
    names: Names | None = None

    def request(self, prefix: str) -> dict[str, Any]:
        request = {"TableName": prefix + self.table, "Key": to_item(self.key)}
        return {"ConditionCheck": with_condition(request, self.condition, self.values, self.names)}


Action = Put | UpdateItem | Delete | ConditionCheck


def with_condition(
    request: dict[str, Any], condition: str | None, values: Item | None, names: Names | None
) -> dict[str, Any]:
    """Add the condition to the request. If it fails, DynamoDB returns the stored item."""
    if condition is not None:
        request["ConditionExpression"] = condition
        request["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
    return with_expression(request, values, names)


def with_expression(request: dict[str, Any], values: Item | None, names: Names | None) -> dict[str, Any]:
    if values:
        request["ExpressionAttributeValues"] = to_item(values)
    if names:
        request["ExpressionAttributeNames"] = dict(names)
    return request
