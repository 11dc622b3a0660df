"""Who may notice what of whom, as decisions over settings and relations.

Seeing is mutual: who hides from somebody does not see them either. A block hides like any other setting.
"""

from __future__ import annotations

from parley.model import Privacy, Regard, User


def may_see_presence(viewer: User, regard: Regard) -> bool:
    """Whether `viewer` may see that the person in `regard` is there, or when they last were."""
    if viewer.user_id == regard.user.user_id:
        return True
    is_shown = shows(regard.user.last_seen_privacy, regard.has_contact, regard.has_blocked)
    shows_too = shows(viewer.last_seen_privacy, regard.is_contact, regard.is_blocked)
    return regard.is_acquainted and is_shown and shows_too


def shows(privacy: Privacy, to_contact: bool, to_blocked: bool) -> bool:
    """Whether somebody with this setting shows themself to another person."""
    if to_blocked:
        return False
    return privacy is Privacy.EVERYONE or (privacy is Privacy.CONTACTS and to_contact)


def may_see_reads(reader_sends: bool, viewer_sends: bool) -> bool:
    """Whether read receipts of one are shown to the other: who sends none sees none."""
    return reader_sends and viewer_sends
