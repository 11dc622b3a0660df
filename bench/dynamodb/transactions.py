"""The transaction that `atomic` sends for a number of messages of one chat, without a log."""

from __future__ import annotations

import uuid

from bench.frames import CONTENT_BYTES
from parley.clock import iso, wall_clock
from parley.model import Draft
from parley.store.dynamodb.append import MESSAGES_PER_TRANSACTION_MAX
from parley.store.dynamodb.atomic import ADVANCE
from parley.store.dynamodb.bundles import bundled, put_entries
from parley.store.dynamodb.driver import Action, UpdateItem
from parley.store.dynamodb.entries import put_key
from parley.store.dynamodb.schema import COUNTERS
from parley.store.entries import entry_of, message_id, tag_of
from parley.wire.frames import Entry

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
    """The advanced head, entries and keys, without the condition on the counter."""
    now_ms = wall_clock()
    now, last = iso(now_ms), head + messages
    entries: list[Entry] = []
    keys: list[Action] = []
    for sequence in range(head + 1, last + 1):
        draft = draft_for(chat_id)
        assert draft.client_key is not None
        name = message_id(now_ms, tag_of(chat_id), sequence, 0)
        entry = entry_of(draft, sequence, 1, name, now)
        entries.append(entry)
        keys.append(put_key(entry, draft.client_key, now_ms, head + 1))
    advance = UpdateItem(COUNTERS, {"chat_id": chat_id}, ADVANCE, {":next": last, ":now": now})
    return [advance, *(put_entries(share) for share in bundled(entries)), *keys]
