"""What is asked of DynamoDB, as values: conditions, actions of a transaction, pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from parley.store.dynamodb.values import Item, to_item

Names = Mapping[str, str]
TableName = Callable[[str], str]


class Page(Struct):
    """One page of a query or a scan; `next_key` is where the next one starts, None at the end."""

    items: list[Item]
    next_key: Item | None = None


class Put(Struct, gc=False):
    table: str
    item: Item
    condition: str | None = None
    values: Item | None = None
    names: Names | None = None

    def request(self, table_name: TableName) -> dict[str, Any]:
        request = {"TableName": table_name(self.table), "Item": to_item(self.item)}
        return {"Put": with_condition(request, self.condition, self.values, self.names)}


class Update(Struct, gc=False):
    table: str
    key: Item
    expression: str
    values: Item | None = None
    condition: str | None = None
    names: Names | None = None

    def request(self, table_name: TableName) -> dict[str, Any]:
        request = {
            "TableName": table_name(self.table),
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

    def request(self, table_name: TableName) -> dict[str, Any]:
        request = {"TableName": table_name(self.table), "Key": to_item(self.key)}
        return {"Delete": with_condition(request, self.condition, self.values, self.names)}


class Check(Struct, gc=False):
    """Writes nothing; the transaction happens only if the condition holds."""

    table: str
    key: Item
    condition: str
    values: Item | None = None
    names: Names | None = None

    def request(self, table_name: TableName) -> dict[str, Any]:
        request = {"TableName": table_name(self.table), "Key": to_item(self.key)}
        return {"ConditionCheck": with_condition(request, self.condition, self.values, self.names)}


Action = Put | Update | Delete | Check


def with_condition(
    request: dict[str, Any], condition: str | None, values: Item | None, names: Names | None
) -> dict[str, Any]:
    """The request with its condition; a failure then says what stood there instead."""
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
