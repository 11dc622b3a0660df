"""Refusals and limits that all engines share."""

from __future__ import annotations

from unicodedata import normalize

from msgspec.structs import replace

from parley.clock import MS_PER_DAY, iso
from parley.errors import (
    BAD_REQUEST,
    COUNTER_INCONSISTENT,
    COUNTER_MISSING,
    InconsistentCounterError,
    Refusal,
)
from parley.model import AccountState, Privacy, Relation, User
from parley.wire.limits import BLOCKS_MAX, CONTACTS_MAX, INVITATION_DAYS

RELATIONS_MAX = {Relation.CONTACT: CONTACTS_MAX, Relation.BLOCK: BLOCKS_MAX}
TOO_MANY_RELATED = {
    Relation.CONTACT: BAD_REQUEST.because(f"a person can have at most {CONTACTS_MAX} contacts"),
    Relation.BLOCK: BAD_REQUEST.because(f"a person can block at most {BLOCKS_MAX} others"),
}
NEWEST = "newest."
"""Instead of a token of an overview, and at the beginning of those that go on in this order."""
NO_TOKEN = BAD_REQUEST.because("changed_since is not a token of an overview; omit it to start over")

USERS_LOOKED_AT_MAX = 10_000
"""A page of people looks at so many at most, however few of them it finds."""
DELETED_NAME = "deleted"

SAME_TITLE_MAX = 10
"""How many chats of one title `Listing.find_chats` finds: more than a person chooses from."""
STRAY_POSITIONS_MAX = 10_000
"""A counter further ahead of its log than this is a mistake, not a crash."""


def expired_invitations(now_ms: int) -> str:
    """The time of the youngest invitation that has expired by now."""
    return iso(max(0, now_ms - INVITATION_DAYS * MS_PER_DAY))


def counter_trouble(counter: int | None, last: int) -> Refusal | None:
    """Why a chat takes nothing: its counter is missing, or cannot be right for a log that ends at `last`."""
    if counter is None:
        return COUNTER_MISSING
    if counter < last:
        return COUNTER_INCONSISTENT.because(str(InconsistentCounterError(counter, last)))
    if counter - last > STRAY_POSITIONS_MAX:
        return COUNTER_INCONSISTENT.because(f"Counter is {counter} but the log ends at {last}")
    return None


def direct_key(people: list[str]) -> str:
    """The key of the direct chat of two people, in either order."""
    return "|".join(sorted(people))


def folded(text: str) -> str:
    """A text as names are compared: without regard to case, in any script."""
    return normalize("NFKC", text).casefold()


def begins_with(wanted: str, username: str, display_name: str) -> bool:
    """Whether a person's username, or a word of their name, begins like this. `wanted` is folded."""
    name = folded(display_name)
    begins = [folded(username), name, *name.split()]
    return any(one.startswith(wanted) for one in begins)


def is_found_by(wanted: str, username: str, display_name: str) -> bool:
    """Whether a person's names contain what somebody looks for. `wanted` is folded."""
    return wanted in folded(username) or wanted in folded(display_name)


def emptied(user: User) -> User:
    """A deleted account: nothing of the person is left, and its username is none that anybody can have."""
    return replace(
        user,
        username=f"{DELETED_NAME}:{user.user_id}",
        display_name=DELETED_NAME,
        about="",
        is_operator=False,
        last_seen_privacy=Privacy.NOBODY,
        send_read_receipts=False,
        last_seen=None,
        state=AccountState.DELETED,
        do_not_disturb=None,
        external_id="",
    )
