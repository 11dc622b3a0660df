"""The token of an overview: what a device was told of each chat, packed.

Nothing orders the changes of all chats of a shared store. So the token itself says what was answered, the
oldest answer first: for each chat a tag made from its id, and a stamp that differs whenever something did.
Two chats of one person whose tags are the same (one person in 20 million with 5,000 chats) take turns in
being answered too often; none is ever missed.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b

from parley.errors import Refused
from parley.store.rules import NO_TOKEN
from parley.wire.limits import FRAME_BYTES_MAX, USER_CHATS_MAX

TAG_BYTES = 6
NUMBER_BYTES_MAX = 9
STAMP_NUMBERS = 3
VERSION = b"\x01"
LEFT_REMEMBERED_MAX = 250
"""Of so many chats that a person is no longer in, the token says that this was told."""

TOLD_BYTES_USUAL_MAX = TAG_BYTES + 1 + 4 + 3
"""An epoch below 2**7, a head below 2**28, a revision below 2**21."""
TOKEN_LETTERS_USUAL_MAX = (USER_CHATS_MAX + LEFT_REMEMBERED_MAX) * TOLD_BYTES_USUAL_MAX * 4 // 3 + 4
assert TOKEN_LETTERS_USUAL_MAX < FRAME_BYTES_MAX * 3 // 4, "a request with the longest token fits in a frame"

LETTERS = re.compile(rf"[A-Za-z0-9_-]{{2,{FRAME_BYTES_MAX}}}")

Stamp = tuple[int, int, int]
"""Epoch, head and revision of the person's row; epoch 0 for a chat that the person has left."""
Told = dict[bytes, Stamp]
"""By the tag of each chat, the oldest answer first."""


def tag_of(chat_id: str) -> bytes:
    return blake2b(chat_id.encode(), digest_size=TAG_BYTES).digest()


def pack(told: Told) -> str:
    """The token: letters that need no escaping anywhere."""
    packed = bytearray(VERSION)
    for tag, stamp in told.items():
        packed += tag
        for number in stamp:
            while number > 127:
                packed.append(number & 127 | 128)
                number >>= 7
            packed.append(number)
    return urlsafe_b64encode(packed).rstrip(b"=").decode("ascii")


def unpack(token: str) -> Told:
    """What a token says; Refused when no overview can have said it."""
    if not LETTERS.fullmatch(token) or len(token) % 4 == 1:
        raise Refused(NO_TOKEN)
    packed = urlsafe_b64decode(token + "=" * (-len(token) % 4))
    if packed[:1] != VERSION:
        raise Refused(NO_TOKEN)
    try:
        return _told(packed)
    except (IndexError, OverflowError) as error:
        raise Refused(NO_TOKEN) from error


def _told(packed: bytes) -> Told:
    """IndexError when it ends too early, OverflowError when a number does not end."""
    told, at = Told(), len(VERSION)
    while at < len(packed):
        tag, at = packed[at : at + TAG_BYTES], at + TAG_BYTES
        numbers = []
        for _ in range(STAMP_NUMBERS):
            number, at = _number(packed, at)
            numbers.append(number)
        told[tag] = (numbers[0], numbers[1], numbers[2])
    return told


def _number(packed: bytes, at: int) -> tuple[int, int]:
    """The number that starts here, 7 bits a byte, and where the next thing starts."""
    number = shift = 0
    while packed[at] > 127:
        number |= (packed[at] & 127) << shift
        shift += 7
        at += 1
        if shift >= 7 * NUMBER_BYTES_MAX:
            raise OverflowError
    return number | packed[at] << shift, at + 1
