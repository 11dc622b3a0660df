"""What a draft is told whose client id is in the log already."""

from __future__ import annotations

from parley.model import Appended, Draft
from parley.wire.frames import Entry


def answer_again(draft: Draft, original: Entry) -> Appended:
    """The original's place; `conflict` when the retry says something else, which is not kept."""
    return Appended(
        message_id=original.message_id,
        sequence=original.sequence,
        epoch=original.epoch,
        created_at=original.created_at,
        deduplicated=True,
        conflict=(original.content, original.content_type) != (draft.content, draft.content_type),
    )
