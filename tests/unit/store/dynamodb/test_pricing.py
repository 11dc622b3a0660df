"""Write units as AWS reckons them."""

from typing import Any

import pytest

from bench.dynamodb.pricing import item_bytes, write_units
from parley.store.dynamodb.driver import Action, ConditionCheck, Item, Put, UpdateItem, to_item


@pytest.mark.parametrize(
    ("item", "size"),
    [
        ({}, 0),
        ({"name": "é"}, 6),
        ({"n": 1234}, 4),
        ({"n": -1234}, 5),
        ({"n": 1000}, 3),
        ({"b": b"abc"}, 4),
        ({"t": True, "z": None}, 4),
    ],
)
def test_an_item_is_as_large_as_its_names_and_values(item: Item, size: int) -> None:
    """Text counts its bytes in UTF-8, a number half a byte per digit and one more."""
    assert item_bytes(to_item(item)) == size


@pytest.mark.parametrize(("letters", "units"), [(0, 1), (1022, 1), (1023, 1), (1024, 2), (3000, 3)])
def test_a_write_is_paid_by_the_kilobyte(letters: int, units: int) -> None:
    """Every kilobyte that is begun costs a unit."""
    assert write_units("PutItem", {"Item": to_item({"a": "x" * letters})}) == units


def test_a_transaction_is_paid_twice() -> None:
    """Each action of a transaction costs what it would cost alone, twice, checks included."""
    actions: list[Action] = [
        Put("t", {"a": "x" * 1500}),
        UpdateItem("t", {"a": "y"}, "SET b = :b"),
        ConditionCheck("t", {"a": "z"}, "b = :b"),
    ]
    request: dict[str, Any] = {"TransactItems": [action.request("") for action in actions]}
    assert write_units("TransactWriteItems", request) == 2 * (2 + 1 + 1)


def test_a_batch_is_paid_by_the_item() -> None:
    """A batch saves requests and no units."""
    writes: list[dict[str, Any]] = [{"PutRequest": {"Item": {}}}, {"DeleteRequest": {"Key": {}}}]
    assert write_units("BatchWriteItem", {"RequestItems": {"t": writes}}) == 2


def test_reading_writes_nothing() -> None:
    """A read consumes no write units."""
    assert write_units("GetItem", {"Key": {}}) == 0
