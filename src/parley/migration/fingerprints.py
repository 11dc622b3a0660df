"""What a store holds, as numbers that are the same on every engine, in whatever order it reads. Pure."""

from __future__ import annotations

import hashlib

import msgspec
from msgspec import Struct

from parley.clock import MS_PER_DAY
from parley.core.deliveries import DEAD_LETTER_DAYS, DeadLetter
from parley.core.log_hash import after_entry, after_void, empty_log
from parley.core.push_devices import OUTCOME_DAYS, PushOutcome
from parley.model import StoredEntry
from parley.store.records import COPY_MARK, Record
from parley.store.tables import TABLE_OF, ServerKey
from parley.wire.codec import decode_entry

DIGEST_BYTES = 32
MODULUS = 1 << 8 * DIGEST_BYTES

encode = msgspec.json.Encoder(order="deterministic").encode


class Fingerprint(Struct):
    """Things that were added, in any order: how many, and the sum of their digests."""

    count: int = 0
    total: int = 0

    def add(self, data: bytes) -> None:
        self.count += 1
        self.total = (self.total + int.from_bytes(hashlib.sha256(data).digest())) % MODULUS

    def merge(self, other: Fingerprint) -> None:
        self.count += other.count
        self.total = (self.total + other.total) % MODULUS

    @property
    def text(self) -> str:
        return f"{self.total:0{2 * DIGEST_BYTES}x}"


def counts_as_content(record: Record, now_ms: int) -> bool:
    """Whether a record belongs to what is copied.

    The mark of the copy does not, nor does what an engine may delete while it is copied, because its time is
    over or nearly.
    """
    match record:
        case ServerKey(name=name):
            return name != COPY_MARK
        case PushOutcome(at_ms=at_ms):
            return now_ms - at_ms < (OUTCOME_DAYS - 1) * MS_PER_DAY
        case DeadLetter(is_queued=is_queued, changed_ms=changed_ms):
            return is_queued or now_ms - changed_ms < (DEAD_LETTER_DAYS - 1) * MS_PER_DAY
        case _:
            table = TABLE_OF.get(type(record))
            expires_ms = table.expires_ms if table is not None else None
            return expires_ms is None or expires_ms(record) - now_ms > MS_PER_DAY


def record_bytes(record: Record) -> bytes:
    return encode([type(record).__name__, record])


class LogDigest:
    """A chat's log, position by position, in order and without a hole.

    `log_hash`: what a server says of it to its clients, see docs/proof.md.
    """

    def __init__(self, chat_id: str) -> None:
        self._digest = hashlib.sha256(chat_id.encode())
        self.log_hash = empty_log(chat_id)
        self.entries = 0
        self.voids = 0

    def add(self, position: StoredEntry) -> None:
        """`msgspec.DecodeError` if an entry cannot be read."""
        if position.wire is None:
            self.voids += 1
            self.log_hash = after_void(self.log_hash, position.sequence)
        else:
            self.entries += 1
            self.log_hash = after_entry(self.log_hash, decode_entry(position.wire))
        self._digest.update(f"\n{position.sequence} ".encode() + (position.wire or b"void"))

    def digest(self) -> bytes:
        return self._digest.digest()
