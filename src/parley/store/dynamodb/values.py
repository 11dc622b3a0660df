"""Attribute values: Parley's plain values as DynamoDB writes them, and back."""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from collections.abc import Mapping
from typing import Any

Value = str | int | bytes | bool | None
Item = dict[str, Value]
"""One item of a table: whole numbers are N, bytes are B, None is NULL."""

Attribute = dict[str, Any]
"""A value as it travels: `{"S": "…"}`, `{"N": "…"}`, `{"B": "<base64>"}`, `{"BOOL": …}`, `{"NULL": true}`."""


def to_item(item: Mapping[str, Value]) -> dict[str, Attribute]:
    """An item as it travels; TypeError for a value of any other type."""
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
    """An item as it was put. What Parley never writes (sets, maps, fractions) is not ours, and left out."""
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
