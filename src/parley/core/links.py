"""Whether a link of an operator may be used, and why not. Pure.

A link that was used, has run out or was revoked is refused for its own reason, so that whoever holds it knows
what to ask for.
"""

from __future__ import annotations

from enum import StrEnum

from parley.errors import LINK_EXPIRED, LINK_REVOKED, LINK_USED, NO_SUCH_LINK, Refusal
from parley.model import Link, LinkPurpose


class LinkState(StrEnum):
    """What a link can still be used for."""

    OPEN = "open"
    USED = "used"
    EXPIRED = "expired"
    REVOKED = "revoked"


REFUSALS = {
    LinkState.USED: LINK_USED,
    LinkState.EXPIRED: LINK_EXPIRED,
    LinkState.REVOKED: LINK_REVOKED,
}


def state_of(link: Link, now_ms: int) -> LinkState:
    """What somebody did to it comes before what time did."""
    if link.revoked_at_ms:
        return LinkState.REVOKED
    if len(link.used_by) >= link.uses_max:
        return LinkState.USED
    return LinkState.EXPIRED if link.expires_at_ms <= now_ms else LinkState.OPEN


def decide_use(link: Link | None, digest: str, purpose: LinkPurpose, now_ms: int) -> Refusal | None:
    """Why a link cannot be used now; None if it can. Whoever has a wrong token learns nothing of the link."""
    if link is None or link.digest != digest or link.purpose is not purpose:
        return NO_SUCH_LINK
    return REFUSALS.get(state_of(link, now_ms))
