"""Whether one person may put another into a chat, or can only invite them.

Three things speak for the person who is added: a block, their setting `who_may_add`, and a share of their
chats that strangers can never fill. See docs/decisions/0014-who-may-add-whom.md.
"""

from __future__ import annotations

from msgspec import Struct

from parley.core.privacy import includes
from parley.errors import BAD_REQUEST, BLOCKED, FORBIDDEN, NOT_FOUND, Refusal
from parley.model import Privacy
from parley.wire.limits import INVITATIONS_PER_INVITER_MAX, UNASKED_CHATS_MAX

INVITATION_NEEDED = FORBIDDEN.because("this person can only be invited")
NO_INVITATION = NOT_FOUND.because("there is no such invitation")
TOO_MANY_INVITED = BAD_REQUEST.because(
    f"at most {INVITATIONS_PER_INVITER_MAX} of your invitations wait for one person"
)


class ConsentFacts(Struct, frozen=True):
    """What a person's consent to being added by another one depends on."""

    who_may_add: Privacy = Privacy.EVERYONE
    is_contact: bool = False
    """They have the other one as a contact."""
    has_blocked: bool = False
    """They have blocked the other one."""
    unasked_chats: int = 0
    """How many chats they are in because a member who was not their contact added them."""


def decide_adding(facts: ConsentFacts) -> Refusal | None:
    """Why the person may not be added by this one; None when they may."""
    if facts.has_blocked:
        return BLOCKED
    is_meant = includes(facts.who_may_add, facts.is_contact, facts.has_blocked)
    has_room = facts.is_contact or facts.unasked_chats < UNASKED_CHATS_MAX
    return None if is_meant and has_room else INVITATION_NEEDED
