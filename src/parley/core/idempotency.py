"""A client message id for requests that bring none: from an `Idempotency-Key`, or by chance.

The same key by the same sender in the same chat gives the same id, so the log itself finds the retry.
"""

from __future__ import annotations

import hashlib
import uuid

from parley.errors import BAD_REQUEST, Refusal
from parley.wire.limits import IDEMPOTENCY_KEY_LETTERS_MAX

BAD_KEY = BAD_REQUEST.because(
    f"Idempotency-Key is 1 to {IDEMPOTENCY_KEY_LETTERS_MAX} printable characters, given once"
)
TWO_IDS = BAD_REQUEST.because("give client_message_id or Idempotency-Key, not both")


def client_id_for(
    keys: list[str], client_message_id: str, sender_id: str, chat_id: str, chance: bytes
) -> str | Refusal:
    """The client message id of a request with these headers. `chance`: 16 random bytes, for one with none."""
    if not keys:
        return client_message_id or str(uuid.UUID(bytes=chance, version=4))
    key = keys[0]
    if len(keys) > 1 or not (1 <= len(key) <= IDEMPOTENCY_KEY_LETTERS_MAX and key.isprintable()):
        return BAD_KEY
    if client_message_id:
        return TWO_IDS
    parts = (sender_id, chat_id, key)
    digest = hashlib.sha256("\x1f".join(parts).encode("utf-8", "surrogatepass")).digest()
    return str(uuid.UUID(bytes=digest[:16], version=4))
