"""Names of new accounts."""

import pytest

from parley.core.usernames import (
    BAD_USERNAME,
    ONLY_SEPARATORS,
    RESERVED,
    RESERVED_USERNAME,
    USERNAME,
    check_new_username,
)


@pytest.mark.parametrize("name", ["admin", "system", "deleted", "root", "ad-min", "_support_", "every.one"])
def test_reserved_names_are_given_by_operators_alone(name: str) -> None:
    """However they are written with separators."""
    assert check_new_username(name, by_operator=False) is RESERVED_USERNAME
    assert check_new_username(name, by_operator=True) is None


@pytest.mark.parametrize("name", [".", "..", "...", "-", "_.-"])
def test_a_name_has_a_letter_or_a_digit(name: str) -> None:
    """A path may hold it, and people can tell it apart: also if an operator asks."""
    assert check_new_username(name, by_operator=True) is ONLY_SEPARATORS


@pytest.mark.parametrize("name", ["", "Ann", "a b", "ä", "a" * 65, "ann\n"])
def test_a_name_has_few_letters_to_choose_from(name: str) -> None:
    """What looks like another name cannot be one."""
    assert check_new_username(name, by_operator=True) is BAD_USERNAME


@pytest.mark.parametrize("name", ["ann", "a.b-c_d", "7", "admin2", "administrators"])
def test_other_names_are_free(name: str) -> None:
    """What only begins like a reserved name is not reserved."""
    assert check_new_username(name, by_operator=False) is None


def test_reserved_names_are_written_without_separators() -> None:
    """One with a separator would never be met."""
    assert all(USERNAME.fullmatch(name) and name.isalnum() for name in RESERVED)
