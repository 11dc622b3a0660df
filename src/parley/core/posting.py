"""Who may post in a group, and how often: announcement-only groups and slow mode. Pure.

Both hold for members; owners and admins post as they like. What a member may still do in an announcement-only
group: react, and delete what is theirs. Slow mode is about new messages alone.
"""

from __future__ import annotations

from parley.errors import ANNOUNCEMENT_ONLY, SLOW_MODE, Refusal
from parley.model import Draft, Kind, Role

MS_PER_SECOND = 1_000
MESSAGE, EDIT = Kind.MESSAGE.value, Kind.EDIT.value


def decide_posting(draft: Draft, role: Role | None, announcement_only: bool) -> Refusal | None:
    """Why a member may not post here at all."""
    if not announcement_only or role is not Role.MEMBER or draft.change is not None:
        return None
    return ANNOUNCEMENT_ONLY if draft.kind in (MESSAGE, EDIT) else None


def is_slowed(draft: Draft, role: Role | None, slow_mode_seconds: int) -> bool:
    """Whether it counts when the sender has sent before."""
    return bool(slow_mode_seconds) and role is Role.MEMBER and draft.change is None and draft.kind == MESSAGE


def decide_pace(slow_mode_seconds: int, since_last_ms: int) -> Refusal | None:
    """Why a sender must wait: their last message is too young. The refusal says how long."""
    wait_ms = slow_mode_seconds * MS_PER_SECOND - since_last_ms
    return SLOW_MODE.after(wait_ms) if wait_ms > 0 else None
