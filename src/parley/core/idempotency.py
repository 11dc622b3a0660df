"""What an `Idempotency-Key` stands for: the id of a message, or the answer of a request. Pure.

The same key of the same sender in the same chat gives the same id, so the log itself finds the retry. Without
the secret nobody can tell the id from the key, and so nobody can take it before the sender does.
"""

from __future__ import annotations

import hashlib
import hmac
import uuid
from enum import Enum, auto

import msgspec
from msgspec import Struct

from parley.errors import BAD_REQUEST, Refusal
from parley.ids import RANDOM_BITS, ulid
from parley.model import AnsweredRequest
from parley.wire.limits import IDEMPOTENCY_DAYS, IDEMPOTENCY_KEY_CHARS_MAX

MS_PER_DAY = 86_400_000
UPGRADE_DAYS = 1
"""How long nodes that make ids without the secret may still run beside those that have it."""
BAD_KEY = BAD_REQUEST.because(
    f"Idempotency-Key is 1 to {IDEMPOTENCY_KEY_CHARS_MAX} printable characters, given once"
)
CLAIM_MS = 90_000
"""Longer than any request is at work, so a claim that is older has nobody at work for it."""
UNSEEN = "password"
"""A digest of a body says nothing of the password in it: whoever stole it could guess at the password."""
TWO_IDS = BAD_REQUEST.because("give client_message_id or Idempotency-Key, not both")


class IdempotencySecret(Struct, frozen=True):
    """One for all servers of a store. `since_ms`: when it was made; ids were made without one before."""

    secret: bytes
    since_ms: int

    @classmethod
    def parse(cls, text: str) -> IdempotencySecret:
        """As `str` wrote it."""
        since_ms, _, secret = text.partition(":")
        return cls(bytes.fromhex(secret), int(since_ms))

    def __str__(self) -> str:
        return f"{self.since_ms}:{self.secret.hex()}"

    def may_meet_earlier_ids(self, now_ms: int) -> bool:
        """Whether a retry may be of a message whose id was made without a secret."""
        return now_ms < self.since_ms + (IDEMPOTENCY_DAYS + UPGRADE_DAYS) * MS_PER_DAY

    def digest(self, *parts: str) -> bytes:
        """32 bytes that nobody can tell without the secret. No part runs into the next."""
        return hmac.digest(self.secret, _joined(parts), "sha256")


def check_key(keys: list[str]) -> str | Refusal:
    """The key in these headers; empty without one."""
    if not keys:
        return ""
    key = keys[0]
    if len(keys) > 1 or not (1 <= len(key) <= IDEMPOTENCY_KEY_CHARS_MAX and key.isprintable()):
        return BAD_KEY
    return key


def client_id_of(key: str, sender_id: str, chat_id: str, secret: IdempotencySecret) -> str:
    """The client message id that a key stands for."""
    return _uuid(secret.digest("message", sender_id, chat_id, key))


def earlier_client_id_of(key: str, sender_id: str, chat_id: str) -> str:
    """The one that servers without the secret make: so can anybody who knows the key."""
    return _uuid(hashlib.sha256(_joined((sender_id, chat_id, key))).digest())


def _uuid(digest: bytes) -> str:
    return str(uuid.UUID(bytes=digest[:16], version=4))


def _joined(parts: tuple[str, ...]) -> bytes:
    """Only the last part may be a client's own text."""
    return "\x1f".join(parts).encode("utf-8", "surrogatepass")


class Repeat(Enum):
    """What a request is to one with the same key before it."""

    TAKE_OVER = auto()
    """There is nothing to answer with: the other one is over, or whoever was at it is gone."""
    CONFLICT = auto()
    ANSWERED = auto()
    UNDER_WAY = auto()


def decide_repeat(kept: AnsweredRequest, digest: str, now_ms: int) -> Repeat:
    """About a request with this digest of its body, when this record is there."""
    if is_over(kept, now_ms):
        return Repeat.TAKE_OVER
    if kept.digest != digest:
        return Repeat.CONFLICT
    if kept.status:
        return Repeat.ANSWERED
    return Repeat.UNDER_WAY if now_ms < kept.claimed_until_ms else Repeat.TAKE_OVER


def is_over(kept: AnsweredRequest, now_ms: int) -> bool:
    """Whether the key may be used for something else."""
    return now_ms >= kept.made_at_ms + IDEMPOTENCY_DAYS * MS_PER_DAY


def body_digest(body: bytes, key: str, secret: IdempotencySecret) -> str:
    """Equal for equal JSON, however it is written."""
    try:
        found = msgspec.json.decode(body)
        if isinstance(found, dict):
            found.pop(UNSEEN, None)
        body = msgspec.json.encode(found, order="deterministic")
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        pass  # the route refuses it
    return secret.digest("body", body.hex(), key).hex()


def id_of(record: AnsweredRequest, prefix: str) -> str:
    """An id for what a request creates: the same one if it is carried out again after a crash."""
    chance = hashlib.sha256(f"{prefix}{record.request_id}".encode()).digest()[: RANDOM_BITS // 8]
    return prefix + ulid(record.made_at_ms, int.from_bytes(chance))
