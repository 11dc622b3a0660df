"""Which passwords are too easy to guess to protect an account that anybody may try to log in to.

Attackers try words, what people make of words, keys that lie beside each other, and the username. A long
password of one's own passes, whatever characters it has.
"""

from __future__ import annotations

from functools import lru_cache

from parley.core.common_passwords import COMMON_WORDS

AROUND_A_WORD_MAX = 6
"""Digits and signs before and after a common word that make no difference to an attacker."""
AROUND_A_NAME_MAX = 4
NAME_CHARS_MIN = 3
"""A shorter username is in many good passwords by chance."""
RUN_CHARS_MIN = 3
RUNS = (
    "abcdefghijklmnopqrstuvwxyz",
    "01234567890",
    "qwertyuiop[]",
    "qwertzuiopü",
    "azertyuiop",
    "asdfghjkl;'",
    "qsdfghjklm",
    "yxcvbnm",
    "zxcvbnm,./",
    "wxcvbn",
    "1qaz2wsx3edc4rfv5tgb6yhn7ujm8ik9ol0p",
    "1q2w3e4r5t6y7u8i9o0p",
    "qazwsxedcrfvtgbyhnujm",
    "q1w2e3r4t5y6u7i8o9p0",
    "!@#$%^&*()_+",
    "147258369",
    "159357",
    "741852963",
)
RUN_CHARS_MAX = max(map(len, RUNS))
LOOK_ALIKES = str.maketrans("@4301!|$57", "aaeoiiisst")

COMMON = "this password is one of the first that attackers try; choose another"
REPEATED = "this password repeats itself; choose another"
KEYBOARD = "this password is a run of keys or letters; choose another"
USERNAME_AGAIN = "this password is little more than the username; choose another"


def weakness(password: str, username: str) -> str | None:
    """Why an attacker guesses this password early; None when there is no such reason."""
    plain = password.casefold()
    if _is_the_name(plain, username):
        return USERNAME_AGAIN
    if plain in (plain + plain)[1:-1]:
        return REPEATED
    if _is_runs(plain):
        return KEYBOARD
    return COMMON if _is_common(plain) else None


def _is_the_name(plain: str, username: str) -> bool:
    if len(username) < NAME_CHARS_MIN or len(plain) - len(username) > AROUND_A_NAME_MAX:
        return False
    return username in plain or username[::-1] in plain


def _is_common(plain: str) -> bool:
    """A common word, with few digits and signs around it, in letters or in what looks like them."""
    for text in (plain, plain.replace(" ", "")):
        start, end = 0, len(text)
        while start < end and not text[start].isalpha():
            start += 1
        while end > start and not text[end - 1].isalpha():
            end -= 1
        if len(text) - (end - start) <= AROUND_A_WORD_MAX and _is_word(text[start:end]):
            return True
    return _is_word(plain)


def _is_word(text: str) -> bool:
    return text in COMMON_WORDS or text.translate(LOOK_ALIKES) in COMMON_WORDS


def _is_runs(plain: str) -> bool:
    """Whether it is nothing but runs, one after the other, each of some length."""
    reached = {0}
    for end in range(RUN_CHARS_MIN, len(plain) + 1):
        starts = range(max(0, end - RUN_CHARS_MAX), end - RUN_CHARS_MIN + 1)
        if any(start in reached and plain[start:end] in _pieces() for start in starts):
            reached.add(end)
    return len(plain) in reached


@lru_cache(maxsize=1)
def _pieces() -> frozenset[str]:
    """Every part of every run, forwards and backwards."""
    return frozenset(
        run[start:end]
        for forwards in RUNS
        for run in (forwards, forwards[::-1])
        for start in range(len(run))
        for end in range(start + RUN_CHARS_MIN, len(run) + 1)
    )
