"""Message ids that lead to their place without an index.

A ULID has 48 bits of time and 80 bits of chance. Here the 80 bits are 24 of the chat's name, the sequence in
48, and 8 of chance: who knows the chat reads the sequence off the id, who knows a person's chats tries the
few whose name fits. That the message really stands there is always read from the log.
"""

from __future__ import annotations

from hashlib import blake2b

from parley import ids

TAG_BITS = 24
SEQUENCE_BITS = 48
CHANCE_BITS = 8
assert TAG_BITS + SEQUENCE_BITS + CHANCE_BITS == ids.RANDOM_BITS


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
