"""The transaction that `atomic` sends for so many messages of one chat, without a log around it."""

from __future__ import annotations

import uuid

from bench.frames import CONTENT_BYTES
from parley.clock import iso, wall_clock
from parley.model import Draft
from parley.store.dynamodb.actions import Action, Update
from parley.store.dynamodb.appending import MESSAGES_PER_TRANSACTION_MAX
from parley.store.dynamodb.atomic import ADVANCE
from parley.store.dynamodb.entries import entry_of, put_entry, put_key
from parley.store.dynamodb.message_ids import message_id, tag_of
from parley.store.dynamodb.states import COUNTERS

FULL = MESSAGES_PER_TRANSACTION_MAX
SENDER_ID = "user_" + "0" * 26


def draft_for(chat_id: str, sender_id: str = SENDER_ID) -> Draft:
    client_id = uuid.uuid4()
    return Draft(
        chat_id=chat_id,
        sender_id=sender_id,
        content="x" * CONTENT_BYTES,
        client_message_id=str(client_id),
        client_key=client_id.bytes,
    )


def actions_of(chat_id: str, head: int, messages: int) -> list[Action]:
    """The head advanced, entries and keys; what the counter was before is not asked for."""
    now_ms = wall_clock()
    now, last = iso(now_ms), head + messages
    entries: list[Action] = []
    keys: list[Action] = []
    for sequence in range(head + 1, last + 1):
        draft = draft_for(chat_id)
        assert draft.client_key is not None
        name = message_id(now_ms, tag_of(chat_id), sequence, 0)
        entry = entry_of(draft, sequence, 1, name, now)
        entries.append(put_entry(entry))
        keys.append(put_key(draft, draft.client_key, entry, now_ms))
    advance = Update(COUNTERS, {"chat_id": chat_id}, ADVANCE, {":next": last, ":now": now})
    return [advance, *entries, *keys]
