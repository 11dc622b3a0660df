"""Entries as they travel, and ids of messages that lead to their place, for stores without joins.

A message id leads to its place without an index. A ULID has 48 bits of time and 80 bits of chance. Here the
80 bits are 24 of the chat's name, the sequence in 48, and 8 of chance: who knows the chat reads the sequence
off the id, who knows a person's chats tries the few whose name fits. That the message really stands there is
always read from the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from itertools import islice

import msgspec
from msgspec import UNSET

from parley import ids
from parley.model import Draft, Kind
from parley.store.rules import STRAY_POSITIONS_MAX
from parley.wire.frames import Entry

MESSAGE = Kind.MESSAGE.value
TAG_BITS = 24
SEQUENCE_BITS = 48
CHANCE_BITS = 8
assert TAG_BITS + SEQUENCE_BITS + CHANCE_BITS == ids.RANDOM_BITS
UNPUBLISHED_SHARDS = 8
"""Chats with news for the bus are listed under so many numbers, so that no one of them gets hot."""

encode_json = msgspec.json.Encoder().encode


def entry_of(draft: Draft, sequence: int, epoch: int, message_id: str, created_at: str) -> Entry:
    """The entry that a draft becomes at its position."""
    entry = Entry(
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
    # Given above, these would make every entry five times as costly: most messages have none of them.
    if draft.kind != MESSAGE or draft.mentions or draft.reply_to is not None or draft.files:
        entry.mentions = list(draft.mentions) or UNSET
        entry.reply_to = draft.reply_to or UNSET
        entry.target_id = draft.target_id or UNSET
        entry.reaction = draft.content if draft.on is not None else UNSET
        entry.on = UNSET if draft.on is None else draft.on
        entry.attachments = list(draft.files) or UNSET
    return entry


def dense_end(start: int, found: Iterable[int]) -> int:
    """The last of the numbers that follow each other from `start` on."""
    end = start
    for sequence in found:
        if sequence != end + 1:
            break
        end = sequence
    return end


def missing_in(resolved: int, found: list[int]) -> list[int]:
    """The first numbers after `resolved` that are missing below the last one found."""
    last, there = (found[-1] if found else 0), set(found)
    return list(islice((at for at in range(resolved + 1, last) if at not in there), STRAY_POSITIONS_MAX))


# Message ids


def tag_of(chat_id: str) -> int:
    return int.from_bytes(blake2b(chat_id.encode(), digest_size=TAG_BITS // 8).digest())


def message_id(now_ms: int, tag: int, sequence: int, chance: int) -> str:
    low = (tag << SEQUENCE_BITS | sequence & (1 << SEQUENCE_BITS) - 1) << CHANCE_BITS
    return ids.MESSAGE + ids.ulid(now_ms, low | chance & (1 << CHANCE_BITS) - 1)


def place_in(message_id: str) -> tuple[int, int] | None:
    """The tag of the chat and the sequence that an id speaks of; None when it is no id of ours."""
    key = ids.message_key(message_id)
    if key is None:
        return None
    low = int.from_bytes(key) & (1 << ids.RANDOM_BITS) - 1
    return low >> SEQUENCE_BITS + CHANCE_BITS, low >> CHANCE_BITS & (1 << SEQUENCE_BITS) - 1


def shard_of(tag: int) -> int:
    """The number under which a chat with this tag is listed while it has news for the bus."""
    return tag % UNPUBLISHED_SHARDS
