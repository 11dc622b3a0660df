"""Write units of a request by AWS's rules, computed from the request.

DynamoDB Local counts a whole transaction as one item of each table, so its figures for transactions are
useless. Real DynamoDB reports the units: see `Capacity`. What a request does not contain is assumed to be
small: items that are updated, deleted or checked count as up to 1 KB, and indexes as unchanged.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Mapping
from typing import Any

UNIT_BYTES = 1024
TRANSACTION_FACTOR = 2
"""A transaction prepares each item and then commits it."""


def write_units(operation: str, request: Mapping[str, Any]) -> int:
    """The units that a request consumes if it succeeds; 0 for one that writes nothing."""
    if operation == "TransactWriteItems":
        actions = request["TransactItems"]
        return TRANSACTION_FACTOR * sum(_units(part) for action in actions for part in action.values())
    if operation == "BatchWriteItem":
        writes = (write for writes in request["RequestItems"].values() for write in writes)
        return sum(_units(part) for write in writes for part in write.values())
    return _units(request) if operation in ("PutItem", "UpdateItem", "DeleteItem") else 0


def _units(part: Mapping[str, Any]) -> int:
    return max(1, -(-item_bytes(part.get("Item", {})) // UNIT_BYTES))


def item_bytes(attributes: Mapping[str, Mapping[str, Any]]) -> int:
    """An item's size by DynamoDB's rules: names and values."""
    return sum(len(name.encode()) + _value_bytes(attribute) for name, attribute in attributes.items())


def _value_bytes(attribute: Mapping[str, Any]) -> int:
    [(kind, value)] = attribute.items()
    if kind == "S":
        return len(value.encode())
    if kind == "B":
        return len(a2b_base64(value))
    if kind == "N":
        digits = len(value.lstrip("-").strip("0"))
        return (digits + 1) // 2 + (2 if value.startswith("-") else 1)
    return 1
