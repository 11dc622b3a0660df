"""Entries, voids and idempotency keys as items of their tables, and back into the bytes that travel."""

from __future__ import annotations

import uuid
from typing import Any, cast

import msgspec

from parley.clock import MS_PER_DAY
from parley.model import Draft, Stored
from parley.store.dynamodb.actions import Put
from parley.store.dynamodb.values import Item
from parley.wire.frames import Entry
from parley.wire.limits import IDEMPOTENCY_DAYS

MESSAGES = "messages"
KEYS = "idempotency_keys"
VOID = "void"
KEY_DAYS = IDEMPOTENCY_DAYS
MS_PER_SECOND = 1_000
KEY_SECONDS = KEY_DAYS * MS_PER_DAY // MS_PER_SECOND
NEW_POSITION = "attribute_not_exists(chat_id)"
NEW_KEY = "attribute_not_exists(chat_id) OR #ttl < :now"
TTL_NAME = {"#ttl": "ttl"}

encode_json = msgspec.json.Encoder().encode


def encode_entry(entry: Entry) -> bytes:
    """An entry as it travels."""
    return encode_json(entry)


def entry_of(draft: Draft, sequence: int, epoch: int, message_id: str, created_at: str) -> Entry:
    return Entry(
        chat_id=draft.chat_id,
        sequence=sequence,
        epoch=epoch,
        kind=draft.kind,
        message_id=message_id,
        sender_id=draft.sender_id,
        client_message_id=draft.client_message_id,
        content=draft.content,
        content_type=draft.content_type,
        created_at=created_at,
        server_timestamp=created_at,
        display_time=draft.display_time,
    )


def put_entry(entry: Entry) -> Put:
    """A position is written once."""
    item: Item = {name: value for name, value in msgspec.structs.asdict(entry).items() if value is not None}
    return Put(MESSAGES, item, NEW_POSITION)


def put_void(chat_id: str, sequence: int, epoch: int) -> Put:
    item: Item = {"chat_id": chat_id, "sequence": sequence, "epoch": epoch, "kind": VOID}
    return Put(MESSAGES, item, NEW_POSITION)


def put_key(draft: Draft, key: bytes, entry: Entry, now_ms: int) -> Put:
    """An id is used once; one whose time has run out may still be returned, so the condition looks."""
    now = now_ms // MS_PER_SECOND
    item: Item = {
        "chat_id": draft.chat_id,
        "client_message_id": key_text(key),
        "message_id": entry.message_id,
        "sequence": entry.sequence,
        "sender_id": draft.sender_id,
        "created_at": entry.created_at,
        "ttl": now + KEY_SECONDS,
    }
    return Put(KEYS, item, NEW_KEY, {":now": now}, TTL_NAME)


def key_text(key: bytes) -> str:
    return str(uuid.UUID(bytes=key))


def key_of(chat_id: str, key: bytes) -> Item:
    return {"chat_id": chat_id, "client_message_id": key_text(key)}


def is_live(key: Item, now_ms: int) -> bool:
    """Whether a key still counts: DynamoDB forgets expired ones when it likes."""
    return cast(int, key["ttl"]) >= now_ms // MS_PER_SECOND


def entry_in(item: Item) -> Entry | None:
    """The entry at a position; None for a void."""
    if item["kind"] == VOID:
        return None
    fields = cast(Any, item)
    return Entry(
        chat_id=fields["chat_id"],
        sequence=fields["sequence"],
        epoch=fields["epoch"],
        kind=fields["kind"],
        message_id=fields["message_id"],
        sender_id=fields["sender_id"],
        client_message_id=fields.get("client_message_id"),
        content=fields["content"],
        content_type=fields["content_type"],
        created_at=fields["created_at"],
        server_timestamp=fields["server_timestamp"],
        display_time=fields.get("display_time"),
    )


def stored_in(item: Item) -> Stored:
    entry = entry_in(item)
    return Stored(sequence_of(item), None if entry is None else encode_entry(entry))


def sequence_of(item: Item) -> int:
    return cast(int, item["sequence"])
