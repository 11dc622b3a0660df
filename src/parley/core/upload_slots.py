"""Who may send bytes of files to a node at once, and how slowly. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from parley.wire.limits import (
    UPLOAD_BYTES_PER_SECOND_MIN,
    UPLOAD_GRACE_SECONDS,
    UPLOADS_AT_ONCE_MAX,
    UPLOADS_PER_PERSON_MAX,
)


def whose_slot(held: Mapping[str, int], user_id: str) -> str | None:
    """Whose place an upload of this person gets: their own if one is free, else one of the person who has
    the most, unless this person would then have as many or more. None if there is none.
    """
    own = held.get(user_id, 0)
    if own >= UPLOADS_PER_PERSON_MAX:
        return None
    if sum(held.values()) < UPLOADS_AT_ONCE_MAX:
        return user_id
    richest = max(held, key=lambda one: held[one])
    return richest if own + 1 < held[richest] else None


def part_seconds_max(received_bytes: int) -> float:
    """How long a part may take until so much of it is there and a little more comes."""
    return UPLOAD_GRACE_SECONDS + received_bytes / UPLOAD_BYTES_PER_SECOND_MIN
