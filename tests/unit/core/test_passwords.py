"""Which passwords attackers try first."""

import pytest

from parley.core.common_passwords import COMMON_WORDS
from parley.core.passwords import COMMON, KEYBOARD, REPEATED, USERNAME_AGAIN, weakness


@pytest.mark.parametrize(
    ("password", "reason"),
    [
        ("password", COMMON),
        ("PassWord", COMMON),
        ("p4ssw0rd", COMMON),
        ("Password2024!", COMMON),
        ("!!dragon99", COMMON),
        ("iloveyou2", COMMON),
        ("i love you", COMMON),
        ("parleychat", COMMON),
        ("aaaaaaaa", REPEATED),
        ("abcabcabc", REPEATED),
        ("hunter2hunter2", REPEATED),
        ("12345678", KEYBOARD),
        ("87654321", KEYBOARD),
        ("qwertyuiop", KEYBOARD),
        ("qwerty123", KEYBOARD),
        ("1q2w3e4r", KEYBOARD),
        ("annabell", USERNAME_AGAIN),
        ("annabell2026", USERNAME_AGAIN),
        ("llebanna", USERNAME_AGAIN),
    ],
)
def test_a_first_guess_is_known(password: str, reason: str) -> None:
    """Words, what is made of them, repetitions, runs of keys and the username."""
    assert weakness(password, "annabell") == reason


@pytest.mark.parametrize(
    "password",
    [
        "correct horse battery",
        "x9Kd82mQ",
        "password-of-mine-is-long",
        "annabell walks in the rain",
        "dragon19870412",
        "wörter die niemand rät",
    ],
)
def test_a_password_of_ones_own_passes(password: str) -> None:
    """No kinds of characters are asked for."""
    assert weakness(password, "annabell") is None


def test_a_short_username_forbids_little() -> None:
    """Two letters are in many good passwords."""
    assert weakness("alsatia9", "al") is None


def test_the_longest_password_takes_no_time() -> None:
    """A run of a thousand letters is judged like any other."""
    assert weakness("abcdefgh" * 128, "") == REPEATED
    assert weakness("abcdefgh" * 127 + "abcdefgx", "") is None


def test_the_words_are_words() -> None:
    """A few thousand, in lower case, as the rules expect them."""
    assert 2_000 < len(COMMON_WORDS) < 10_000
    assert all(word == word.casefold() and word.isalpha() for word in COMMON_WORDS)
