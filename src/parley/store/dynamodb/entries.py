"""Entries, voids and idempotency keys as items of their tables, and back into the bytes that travel.

Message ids are those of `store.entries`.
"""

from __future__ import annotations

import uuid
from typing import Any, cast

import msgspec
from msgspec import UNSET

from parley.clock import MS_PER_DAY, from_iso
from parley.errors import StoreDamaged
from parley.model import AttachedFile, Draft, StoredEntry
from parley.store.dynamodb.driver import Item, Put
from parley.store.dynamodb.schema import KEYS, MESSAGES, SEPARATOR
from parley.store.entries import encode_json, entry_of
from parley.wire.codec import encode_entry
from parley.wire.frames import Entry
from parley.wire.limits import IDEMPOTENCY_DAYS

VOID = "void"
UNREADABLE = (KeyError, TypeError, AttributeError, msgspec.MsgspecError)
"""What a damaged item raises: attributes are missing, or of another type."""
NO_ENTRY = b""
LIFE_FIELDS = ("reply_to", "target_id", "reaction", "on", "edited_at", "edit_sequence")
"""Fields of an entry that most do not have; an item has them by the same names."""
KEY_DAYS = IDEMPOTENCY_DAYS
MS_PER_SECOND = 1_000
KEY_SECONDS = KEY_DAYS * MS_PER_DAY // MS_PER_SECOND
FAILED = "ConditionalCheckFailed"
"""The code of a condition that did not hold, among the reasons of a canceled transaction."""
NEW_POSITION = "attribute_not_exists(chat_id)"
NEW_KEY = "attribute_not_exists(chat_id) OR #ttl < :now"
TTL_NAME = {"#ttl": "ttl"}

_files = msgspec.json.Decoder(list[AttachedFile]).decode


def put_entry(entry: Entry) -> Put:
    """A position is written once."""
    fields = msgspec.structs.asdict(entry) | {
        "mentions": joined_mentions(entry),
        "body_digest": entry.body_digest or None,
        "attachments": packed_files(entry),
    }
    item: Item = {name: value for name, value in fields.items() if value not in (None, UNSET)}
    return Put(MESSAGES, item, NEW_POSITION)


def joined_mentions(entry: Entry) -> str | None:
    """As one attribute: ids are printable, so none holds the separator."""
    return SEPARATOR.join(entry.mentions) if entry.mentions else None


def packed_files(entry: Entry) -> str | None:
    """As one attribute."""
    return encode_json(entry.attachments).decode() if entry.attachments else None


def put_void(chat_id: str, sequence: int, epoch: int) -> Put:
    item: Item = {"chat_id": chat_id, "sequence": sequence, "epoch": epoch, "kind": VOID}
    return Put(MESSAGES, item, NEW_POSITION)


def put_key(entry: Entry, key: bytes, now_ms: int, item_sequence: int) -> Put:
    """An id is used once; one whose time has run out may still be returned, so the condition looks."""
    return Put(
        KEYS, key_item(entry, key, item_sequence), NEW_KEY, {":now": now_ms // MS_PER_SECOND}, TTL_NAME
    )


def key_item(entry: Entry, key: bytes, item_sequence: int) -> Item:
    """The key of an entry, which follows from the entry: the same whoever writes it, and when.

    `item_sequence`: the position whose item holds the entry, if it shares one with others.
    """
    item: Item = {
        "chat_id": entry.chat_id,
        "client_message_id": key_text(key),
        "message_id": entry.message_id,
        "sequence": entry.sequence,
        "sender_id": entry.sender_id,
        "created_at": entry.created_at,
        "ttl": from_iso(entry.created_at) // MS_PER_SECOND + KEY_SECONDS,
    }
    if item_sequence != entry.sequence:
        item["item_sequence"] = item_sequence
    return item


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
        mentions=fields["mentions"].split(SEPARATOR) if "mentions" in fields else UNSET,
        deleted=True if fields.get("deleted") else UNSET,
        body_digest=fields.get("body_digest", UNSET),
        attachments=_files(fields["attachments"]) if "attachments" in fields else UNSET,
        **{name: fields[name] for name in LIFE_FIELDS if name in fields},
    )


def whole_entry(item: Item) -> Entry | None:
    """As `entry_in`. StoreDamaged if the item is not the one that was written."""
    try:
        return entry_in(item)
    except UNREADABLE as error:
        problem = f"position {sequence_of(item)} does not decode ({type(error).__name__})"
        raise StoreDamaged(cast(str, item["chat_id"]), problem) from error


def row_in(item: Item) -> tuple[int, bytes | None]:
    """A row of a page of the log; one that does not decode has a wire that does not, either."""
    try:
        entry = entry_in(item)
    except UNREADABLE:
        return sequence_of(item), NO_ENTRY
    return sequence_of(item), None if entry is None else encode_entry(entry)


def stored_in(item: Item) -> StoredEntry:
    entry = entry_in(item)
    return StoredEntry(sequence_of(item), None if entry is None else encode_entry(entry))


def sequence_of(item: Item) -> int:
    return cast(int, item["sequence"])


def original_in(key: Item, draft: Draft, epoch: int) -> Entry:
    """A draft's original as far as its key tells, when the entry itself is no more."""
    return entry_of(draft, sequence_of(key), epoch, str(key["message_id"]), str(key["created_at"]))
