"""Identifiers: ULIDs with a prefix that says what they name. Time and randomness are arguments."""

from __future__ import annotations

from binascii import unhexlify
from collections.abc import Callable

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
TIME_BITS = 48
RANDOM_BITS = 80
ULID_LENGTH = 26

ATTACHMENT = "att_"
AUDIT = "aud_"
CHAT = "chat_"
DEAD_LETTER = "dlq_"
EVENT = "evt_"
JOB = "job_"
LINK = "lnk_"
MESSAGE = "msg_"
NODE = "node_"
REPORT = "rep_"
SESSION = "ses_"
TOKEN = "tok_"
USER = "user_"
WEBHOOK = "wh_"

_PAIRS = [a + b for a in ALPHABET for b in ALPHABET]
_VALUES = {char: value for value, char in enumerate(ALPHABET)}


def ulid(now_ms: int, chance: int) -> str:
    """The 26 characters for a time in milliseconds and 80 random bits."""
    number = (now_ms & (1 << TIME_BITS) - 1) << RANDOM_BITS | chance & (1 << RANDOM_BITS) - 1
    return "".join(_PAIRS[number >> shift & 1023] for shift in range(120, -1, -10))


def ulid_to_bytes(text: str) -> bytes:
    """The 16 bytes of a ULID; ValueError if the text is not one."""
    if len(text) != ULID_LENGTH:
        raise ValueError("a ULID has 26 characters")
    number = 0
    for char in text:
        value = _VALUES.get(char)
        if value is None:
            raise ValueError(f"{char!r} is no character of a ULID")
        number = number << 5 | value
    return number.to_bytes(17, "big")[-16:]


def message_key(message_id: str) -> bytes | None:
    """The key of a message id in a store; None if it cannot be an id of this server."""
    return _key(MESSAGE, message_id)


def attachment_key(attachment_id: str) -> bytes | None:
    """The number in an attachment's id; None if it cannot be an id of this server."""
    return _key(ATTACHMENT, attachment_id)


def _key(prefix: str, text: str) -> bytes | None:
    if not text.startswith(prefix):
        return None
    try:
        return ulid_to_bytes(text[len(prefix) :])
    except ValueError:
        return None


def client_key(client_message_id: str) -> bytes | None:
    """The 16 bytes of a client's UUIDv4, in any letter case; None if it is not one."""
    text = client_message_id
    if len(text) != 36 or text[8:24:5] != "----":
        return None
    try:
        key = unhexlify(text.replace("-", ""))
    except ValueError:
        return None
    return key if len(key) == 16 and key[6] >> 4 == 4 and key[8] >> 6 == 2 else None


class Ids:
    """Generates ids. The ids of one instance ascend, even when the clock stops or goes back."""

    __slots__ = ("_last", "_random_bits")

    def __init__(self, random_bits: Callable[[int], int]) -> None:
        self._random_bits = random_bits
        self._last = 0

    def next(self, prefix: str, now_ms: int) -> str:
        return texts(prefix, self.reserve(now_ms, 1), 1)[0]

    def reserve(self, now_ms: int, count: int) -> int:
        """The first of `count` successive 128-bit numbers: a random one, then its successors."""
        first = max(now_ms << RANDOM_BITS | self._random_bits(RANDOM_BITS), self._last + 1)
        self._last = first + count - 1
        return first


def texts(prefix: str, first: int, count: int) -> list[str]:
    """The ids of `count` successive numbers. They nearly always differ in only four characters."""
    low = first & (1 << 20) - 1
    if low + count > 1 << 20:
        return [prefix + ulid(number >> RANDOM_BITS, number) for number in range(first, first + count)]
    stem = prefix + ulid(first >> RANDOM_BITS, first)[:22]
    return [stem + _PAIRS[n >> 10] + _PAIRS[n & 1023] for n in range(low, low + count)]
