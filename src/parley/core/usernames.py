"""Which usernames there are, and which of them people cannot take by themselves. Pure."""

from __future__ import annotations

import re

from parley.errors import BAD_REQUEST, USERNAME_TAKEN, Refusal
from parley.wire.limits import USERNAME_CHARS_MAX

USERNAME = re.compile(rf"[a-z0-9._-]{{1,{USERNAME_CHARS_MAX}}}")
SEPARATORS = str.maketrans("", "", "._-")
RESERVED = frozenset(
    (
        *("abuse", "admin", "administrator", "all", "anonymous", "billing", "bot", "channel", "deleted"),
        *(
            "everyone",
            "help",
            "here",
            "hostmaster",
            "info",
            "mailerdaemon",
            "me",
            "mod",
            "moderator",
            "nobody",
        ),
        *("noreply", "null", "official", "operator", "owner", "parley", "postmaster", "root", "security"),
        *("self", "server", "service", "staff", "superuser", "support", "sysadmin", "system", "team"),
        *("undefined", "unknown", "user", "webmaster"),
    )
)
"""Names that speak for the server or for nobody, written without separators."""

BAD_USERNAME = BAD_REQUEST.because(f"a username is 1 to {USERNAME_CHARS_MAX} of a-z 0-9 . _ -")
ONLY_SEPARATORS = BAD_REQUEST.because("a username has a letter or a digit")
RESERVED_USERNAME = USERNAME_TAKEN.because("this username is reserved: only an operator can give it")


def check_new_username(username: str, *, by_operator: bool) -> Refusal | None:
    """Why a new account cannot have this name; None if it can. Accounts that have it keep it.

    Separators do not count: `ad-min` is reserved as `admin` is.
    """
    if not USERNAME.fullmatch(username):
        return BAD_USERNAME
    letters = username.translate(SEPARATORS)
    if not letters:
        return ONLY_SEPARATORS
    return RESERVED_USERNAME if letters in RESERVED and not by_operator else None
