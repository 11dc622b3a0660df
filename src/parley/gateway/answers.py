"""Frames that answer a request, made of what the chats say, and what they cost."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from parley.core import log_hash
from parley.core.rates import work_of
from parley.model import Appended, Draft, Page
from parley.wire import frames
from parley.wire.codec import Codec
from parley.wire.frames import RequestId, answer_to


def ack_of(draft: Draft, request_id: RequestId, appended: Appended) -> frames.Ack:
    return frames.Ack(
        re=answer_to(request_id),
        chat_id=draft.chat_id,
        client_message_id=draft.client_message_id or "",
        message_id=appended.message_id,
        sequence=appended.sequence,
        epoch=appended.epoch,
        created_at=appended.created_at,
        deduplicated=appended.deduplicated,
        conflict=appended.conflict,
    )


def batch_of(page: Page, codec: Codec) -> frames.MessageBatch:
    return frames.MessageBatch(**batch_fields(page, codec))


def batch_fields(page: Page, codec: Codec) -> dict[str, Any]:
    """What a page of a log has in a frame and over HTTP."""
    return {
        "chat_id": page.chat_id,
        "epoch": page.epoch,
        "entries": codec.entries(page.entries),
        "voids": page.voids,
        "from_sequence": page.from_sequence,
        "to_sequence": page.to_sequence,
        "head": page.head,
        "complete": page.complete,
        "reset": page.reset,
        "log_hash": UNSET if page.log_hash is None else log_hash.shown(page.log_hash),
    }


def work_in(answer: frames.ServerFrame, size_bytes: int, chats_heard: int) -> float:
    """What an answer cost beyond the frame that asked for it."""
    match answer:
        case frames.MessageBatch():
            return work_of(rows=answer.to_sequence - answer.from_sequence, size_bytes=size_bytes)
        case frames.Overview():  # every chat of the user was looked at
            return work_of(rows=chats_heard, chats=len(answer.chats), size_bytes=size_bytes)
        case frames.PresenceState():
            return work_of(people=len(answer.presences), size_bytes=size_bytes)
    return 0.0
