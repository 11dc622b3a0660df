"""What people may see of each other, decided from settings and relations.

Hiding is mutual: a person who hides from another does not see the other either. A block counts as hiding.
A contact is one-sided: adding a person as a contact shows you to them, and shows you nothing of them.
"""

from __future__ import annotations

from parley.model import Privacy, Relationship, User


def may_see_presence(viewer: User, relationship: Relationship) -> bool:
    """Whether `viewer` may see if the person in `relationship` is online, and when they last were."""
    if viewer.user_id == relationship.user.user_id:
        return True
    is_known = relationship.is_acquainted or relationship.has_contact
    return is_known and _shows_each_other(viewer, relationship)


def may_be_seen(viewer: User, relationship: Relationship) -> bool:
    """The other way round: whether the person in `relationship` may see the presence of `viewer`."""
    if viewer.user_id == relationship.user.user_id:
        return True
    is_known = relationship.is_acquainted or relationship.is_contact
    return is_known and _shows_each_other(viewer, relationship)


def _shows_each_other(viewer: User, relationship: Relationship) -> bool:
    is_shown = includes(
        relationship.user.last_seen_privacy, relationship.has_contact, relationship.has_blocked
    )
    return is_shown and includes(viewer.last_seen_privacy, relationship.is_contact, relationship.is_blocked)


def includes(privacy: Privacy, is_contact: bool, is_blocked: bool) -> bool:
    """Whether a person with this setting means another, who is a contact of theirs, or blocked by them."""
    if is_blocked:
        return False
    return privacy is Privacy.EVERYONE or (privacy is Privacy.CONTACTS and is_contact)


def may_see_reads(reader_sends: bool, viewer_sends: bool) -> bool:
    """Whether the viewer sees the reader's read receipts: a person who sends none sees none."""
    return reader_sends and viewer_sends
