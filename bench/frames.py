"""A client's WebSocket frames as bytes, prepared so that sending one is cheap.

Client frames must be masked. A mask key of zero is a valid one and leaves the payload as it is.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence

MASKED = 0x80
FINAL_TEXT = 0x81
FINAL_CLOSE = 0x88
NORMAL_CLOSE = 1000
ZERO_MASK = bytes(4)
LENGTH_7_BITS_MAX = 125
LENGTH_16_BITS_MAX = 0xFFFF

TIME_CHARS = 16
CONTENT_BYTES = 128
WORDS = b" a message has words which the search index must take apart and sort into its lists of places"
# Scatters consecutive numbers over 32 bits, so that ids are as spread as those that clients draw.
SCATTER = 0x9E3779B1
CLIENT_ID = b"%08x-0000-4000-8000-%012x"

_numbers = itertools.count(time.time_ns() // 1_000_000 << 4 & 0xFFFF_FFFF_FFFF)


def frame(payload: bytes) -> bytes:
    """One masked text frame."""
    size = len(payload)
    if size <= LENGTH_7_BITS_MAX:
        return bytes((FINAL_TEXT, MASKED | size)) + ZERO_MASK + payload
    assert size <= LENGTH_16_BITS_MAX, "a client sends no frame this large here"
    return bytes((FINAL_TEXT, MASKED | 126)) + size.to_bytes(2, "big") + ZERO_MASK + payload


def hello(token: str, device_id: str, live: bool) -> bytes:
    flag = b"true" if live else b"false"
    return frame(
        b'{"type":"hello","token":"%b","device_id":"%b","live":%b}'
        % (token.encode(), device_id.encode(), flag)
    )


def sync_request(chat_id: str, after: int, limit: int) -> bytes:
    return frame(
        b'{"type":"sync_request","chat_id":"%b","last_acked_sequence":%d,"limit":%d}'
        % (chat_id.encode(), after, limit)
    )


def heartbeat() -> bytes:
    return frame(b'{"type":"heartbeat"}')


def ack_position(chat_id: str, sequence: int) -> bytes:
    return frame(b'{"type":"ack","chat_id":"%b","last_acked_sequence":%d}' % (chat_id.encode(), sequence))


def read_receipt(chat_id: str, sequence: int) -> bytes:
    return frame(b'{"type":"read_receipt","chat_id":"%b","read_up_to":%d}' % (chat_id.encode(), sequence))


def presence_subscribe(user_ids: Sequence[str]) -> bytes:
    listed = ",".join(f'"{user_id}"' for user_id in user_ids)
    return frame(b'{"type":"presence_subscribe","user_ids":[%b]}' % listed.encode())


def close() -> bytes:
    """A close frame: the server releases the device's lease at once."""
    return bytes((FINAL_CLOSE, MASKED | 2)) + ZERO_MASK + NORMAL_CLOSE.to_bytes(2, "big")


def next_client_id() -> bytes:
    """A new UUIDv4, in no order."""
    number = next(_numbers)
    return CLIENT_ID % (number * SCATTER & 0xFFFF_FFFF, number & 0xFFFF_FFFF_FFFF)


class SendFrames:
    """The `send_message` frames of one connection to one chat; content starts with the time of sending."""

    def __init__(self, chat_id: str) -> None:
        start = b'{"type":"send_message","chat_id":"' + chat_id.encode() + b'","client_message_id":"\0'
        chained = start + b'","after_client_message_id":"\0'
        self._plain = _template(start)
        self._chained = _template(chained)

    def next(self, now_ns: int) -> bytes:
        return self._plain % (next_client_id(), now_ns)

    def after(self, client_id: bytes, predecessor: bytes, now_ns: int) -> bytes:
        """A message that must be stored after its predecessor; an empty predecessor means none."""
        if not predecessor:
            return self._plain % (client_id, now_ns)
        return self._chained % (client_id, predecessor, now_ns)


def _template(start: bytes) -> bytes:
    """A whole frame with placeholders for its ids and its time of sending, all of fixed length."""
    padding = (WORDS * CONTENT_BYTES)[: CONTENT_BYTES - TIME_CHARS]
    payload = start + b'","content":"\1' + padding + b'"}'
    sized = payload.replace(b"\0", b"0" * 36).replace(b"\1", b"0" * TIME_CHARS)
    header = frame(sized)[: -len(sized)]
    return header.replace(b"%", b"%%") + payload.replace(b"\0", b"%b").replace(b"\1", b"%016x")
