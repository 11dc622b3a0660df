"""What stands in the records of `messages.persisted`, one per position, keyed by its chat. Pure.

`MessagePersisted` is the event of the source documents; its payload is the entry as it travels, so that
whoever reads it can pass on the very bytes. A void is `PositionVoided`. An event's id follows from what it
tells of: published again, it has the same one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
from msgspec import Raw, Struct

from parley import ids
from parley.clock import iso
from parley.core.changes import change_in
from parley.model import Persisted, Stored
from parley.wire.frames import Entry
from parley.wire.limits import PAGE_BYTES_MAX

MESSAGE_PERSISTED = "MessagePersisted"
POSITION_VOIDED = "PositionVoided"

NODE = "node"
"""Header: the node that has published the record and told its own listeners already."""
CHANGE = "change"
"""Header: the entry changes who hears the chat, so that even those who do not must look at it."""

REQUEST = "request_id"
"""Header: the request that the message came with, where its publisher knew that."""
REQUEST_ID_BYTES_MAX = 128

Headers = list[tuple[str, bytes]]


class Record(NamedTuple):
    """One record, as it is given to a broker."""

    key: bytes
    value: bytes
    headers: Headers


class Event(Struct):
    """The envelope; `payload` stays as it is."""

    event_type: str
    event_id: str
    event_time: str
    partition_key: str
    payload: Raw


class Void(Struct):
    chat_id: str
    sequence: int
    epoch: int


class Stamp(Struct):
    """What the envelope repeats of an entry; the rest of it is passed over unread."""

    message_id: str
    created_at: str


class Told(NamedTuple):
    """One position as a record tells of it."""

    chat_id: str
    epoch: int
    stored: Stored


_encode = msgspec.json.Encoder().encode
_decode_stamp = msgspec.json.Decoder(Stamp).decode
_decode_event = msgspec.json.Decoder(Event).decode
_decode_entry = msgspec.json.Decoder(Entry).decode
_decode_void = msgspec.json.Decoder(Void).decode


def encode(chat_id: str, epoch: int, stored: Stored, node: str | None, now_ms: int) -> Record:
    """The record of one position. `node`: who has told its own listeners; None if nobody has."""
    headers: Headers = [] if node is None else [(NODE, node.encode())]
    if stored.change is not None:
        headers.append((CHANGE, b"1"))
    if stored.request_id:
        headers.append((REQUEST, stored.request_id.encode()))
    wire = stored.wire
    event = _voided(chat_id, epoch, stored.sequence, now_ms) if wire is None else _persisted(chat_id, wire)
    return Record(chat_id.encode(), _encode(event), headers)


def _persisted(chat_id: str, wire: bytes) -> Event:
    stamp = _decode_stamp(wire)
    event_id = ids.EVENT + stamp.message_id.removeprefix(ids.MESSAGE)
    return Event(MESSAGE_PERSISTED, event_id, stamp.created_at, chat_id, Raw(wire))


def _voided(chat_id: str, epoch: int, sequence: int, now_ms: int) -> Event:
    """A void has no id of its own: the event's is a hash of its position."""
    position = f"{chat_id}/{epoch}/{sequence}".encode()
    number = int.from_bytes(hashlib.sha256(position).digest()[:16], "big")
    event_id = ids.EVENT + ids.ulid(number >> ids.RANDOM_BITS, number)
    payload = Raw(_encode(Void(chat_id, sequence, epoch)))
    return Event(POSITION_VOIDED, event_id, iso(now_ms), chat_id, payload)


def request_id_in(headers: Iterable[tuple[str, bytes]]) -> str:
    """Empty for a record of a version that did not tell, or that was read from the log."""
    for name, value in headers:
        if name == REQUEST:
            return value[:REQUEST_ID_BYTES_MAX].decode("ascii", "replace")
    return ""


def decode(value: bytes, headers: Iterable[tuple[str, bytes]] = ()) -> Told | None:
    """What a record tells of; None for an event of a kind that this version does not know."""
    event = _decode_event(value)
    if event.event_type == MESSAGE_PERSISTED:
        entry = _decode_entry(event.payload)
        request_id = request_id_in(headers)
        stored = Stored(entry.sequence, bytes(event.payload), change_in(entry), request_id)
        return Told(entry.chat_id, entry.epoch, stored)
    if event.event_type == POSITION_VOIDED:
        void = _decode_void(event.payload)
        return Told(void.chat_id, void.epoch, Stored(void.sequence, None))
    return None


def gather(told: Iterable[Told]) -> list[Persisted]:
    """Positions of one chat that come together, together, in their order; no more than fits into a page."""
    gathered: list[Persisted] = []
    last: dict[tuple[str, int], tuple[Persisted, int]] = {}
    for chat_id, epoch, stored in told:
        news, size = last.get((chat_id, epoch), (None, 0))
        if news is None or size > PAGE_BYTES_MAX:
            news, size = Persisted(chat_id, epoch, []), 0
            gathered.append(news)
        news.positions.append(stored)
        last[chat_id, epoch] = news, size + len(stored.wire or b"")
    return gathered
