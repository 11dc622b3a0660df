"""Attribute values: what is put comes back as it was."""

from enum import IntEnum, StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.store.dynamodb.driver import Item, Value, from_item, to_item

VALUES = st.one_of(st.text(), st.integers(-(10**37), 10**37), st.binary(), st.booleans(), st.none())


class Colour(StrEnum):
    RED = "red"


class Rank(IntEnum):
    FIRST = 1


@given(st.dictionaries(st.text(min_size=1), VALUES))
def test_an_item_comes_back_as_it_was(item: Item) -> None:
    """Every value that an item may hold survives the way to DynamoDB and back."""
    assert from_item(to_item(item)) == item


@pytest.mark.parametrize(
    ("value", "attribute"),
    [
        ("é\0", {"S": "é\0"}),
        ("", {"S": ""}),
        (2**63 - 1, {"N": "9223372036854775807"}),
        (-5, {"N": "-5"}),
        (b"\x00\xff", {"B": "AP8="}),
        (True, {"BOOL": True}),
        (False, {"BOOL": False}),
        (None, {"NULL": True}),
        (Colour.RED, {"S": "red"}),
        (Rank.FIRST, {"N": "1"}),
    ],
)
def test_each_type_has_its_own_kind(value: Value, attribute: dict[str, Any]) -> None:
    """A value travels under the letter that DynamoDB has for its type, and a truth is no number."""
    assert to_item({"a": value}) == {"a": attribute}
    assert type(from_item({"a": attribute})["a"]) is not float


def test_an_enumeration_leaves_as_a_plain_string() -> None:
    """A member of a StrEnum is stored as its text, not as an object of ours."""
    [attribute] = to_item({"role": Colour.RED}).values()
    assert type(attribute["S"]) is str


@pytest.mark.parametrize("value", [1.5, ["a"], {"a": 1}, {"a"}])
def test_any_other_type_is_refused(value: Any) -> None:
    """What an item may not hold is a TypeError before anything is sent."""
    with pytest.raises(TypeError, match="is not a type that an item may hold"):
        to_item({"a": value})


def test_what_parley_never_writes_is_left_out() -> None:
    """Attributes that somebody else added to an item do not stop it from being read."""
    found: dict[str, Any] = {
        "a": {"N": "7"},
        "b": {"SS": ["x"]},
        "c": {"M": {}},
        "d": {"N": "1.5"},
        "e": {"L": []},
    }
    assert from_item(found) == {"a": 7}


def test_a_whole_number_with_an_exponent_is_whole() -> None:
    """DynamoDB may write a round number with an exponent, and it is an int nevertheless."""
    assert from_item({"a": {"N": "1E+3"}, "b": {"N": "2.0"}}) == {"a": 1000, "b": 2}
