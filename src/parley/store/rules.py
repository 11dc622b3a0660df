"""What every engine refuses in the same words."""

from __future__ import annotations

from parley.errors import BAD_REQUEST, NOT_FOUND, Refusal
from parley.model import Relation
from parley.wire.limits import (
    BLOCKS_MAX,
    CHAT_MEMBERS_MAX,
    CONTACTS_MAX,
    USER_CHATS_MAX,
)

CHAT_FULL = BAD_REQUEST.because(f"a chat has at most {CHAT_MEMBERS_MAX} members")
TOO_MANY_CHATS = BAD_REQUEST.because(f"a person is in at most {USER_CHATS_MAX} chats")
RELATIONS_MAX = {Relation.CONTACT: CONTACTS_MAX, Relation.BLOCK: BLOCKS_MAX}
TOO_MANY_RELATED = {
    Relation.CONTACT: BAD_REQUEST.because(f"a person has at most {CONTACTS_MAX} contacts"),
    Relation.BLOCK: BAD_REQUEST.because(f"a person blocks at most {BLOCKS_MAX} others"),
}
NO_TOKEN = BAD_REQUEST.because("this changed_since is no token of an overview; leave it out to start over")

ID_LETTERS_TOLD_MAX = 64
STRAY_POSITIONS_MAX = 10_000
"""A counter further ahead of its log than this is a mistake, not a crash."""


def no_user(user_id: str) -> Refusal:
    """Somebody was named who does not exist."""
    return NOT_FOUND.because(f"there is no user {user_id[:ID_LETTERS_TOLD_MAX]}")


def direct_key(people: list[str]) -> str:
    """What the direct chat of two people is known by, whoever of them is named first."""
    return "|".join(sorted(people))
