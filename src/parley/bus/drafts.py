"""The topic `messages.store` and its records: drafts on their way to the log, with the chat as key. Pure.

A record is signed like an event: only what a node of this cluster took from a client is appended.
"""

from __future__ import annotations

import msgspec

from parley.bus.events import Record
from parley.bus.ports import BufferedDraft
from parley.bus.topics import Topic
from parley.clock import MS_PER_DAY
from parley.wire.limits import IDEMPOTENCY_DAYS

STORE = Topic(
    "messages.store", key="chat_id", retention_days=1, holds="a draft on its way to a node that appends"
)
DRAFT_AGE_MS_MAX = STORE.retention_days * MS_PER_DAY
"""An older record is not appended, whoever puts it into the topic again."""
assert DRAFT_AGE_MS_MAX < IDEMPOTENCY_DAYS * MS_PER_DAY, "what is read twice is recognised by its client's id"

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(BufferedDraft).decode


class NotADraft(ValueError):
    """A record that no node of this cluster would write."""


def encode_draft(buffered: BufferedDraft) -> Record:
    return Record(buffered.draft.chat_id.encode(), _encode(buffered), [])


def decode_draft(value: bytes, now_ms: int) -> BufferedDraft:
    """NotADraft for what must not be appended."""
    try:
        buffered = _decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotADraft(str(error)) from error
    if buffered.draft.client_key is None:
        raise NotADraft("a draft without a client's id may be appended twice")
    if now_ms - buffered.at_ms > DRAFT_AGE_MS_MAX:
        raise NotADraft("it is too old: its client's id may be forgotten")
    return buffered
