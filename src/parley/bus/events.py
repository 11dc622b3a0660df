"""The topic `messages.persisted` and its records: one per position, with the chat as key. Pure.

`MessagePersisted` is the event of the source documents. Its payload is the entry as clients get it, so that a
reader passes on the same bytes. A void is `PositionVoided`. The id of an event is made from its position, so
that an event which is published twice has the same id twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
from msgspec import Raw, Struct

from parley import ids
from parley.bus.topics import Topic
from parley.clock import iso
from parley.core.changes import change_in
from parley.core.cluster_keys import KeyRing
from parley.model import Persisted, StoredEntry
from parley.wire.codec import decode_entry
from parley.wire.limits import PAGE_BYTES_MAX

PERSISTED = Topic("messages.persisted", key="chat_id", holds="the event of one position of a log")
MESSAGE_PERSISTED = "MessagePersisted"
POSITION_VOIDED = "PositionVoided"

NODE = "node"
"""Header: the node that published the record. It has notified its own listeners already."""
CHANGE = "change"
"""Header: the entry changes the members. For programs that read the topic and look at few entries."""

REQUEST = "request_id"
"""Header: the id of the client's request, if the publisher knows it."""
REQUEST_ID_BYTES_MAX = 128

PROOF = "proof"
"""Header: a tag of the value, by a node of this cluster. The other headers are not signed: they only say who
should read the record, and what a line of the log shows."""

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
    """The fields of an entry that its event repeats. The others are not decoded."""

    message_id: str
    created_at: str


class PositionEvent(NamedTuple):
    """One position, as a record holds it."""

    chat_id: str
    epoch: int
    stored: StoredEntry
    told_by: str = ""


_encode = msgspec.json.Encoder().encode
_decode_stamp = msgspec.json.Decoder(Stamp).decode
_decode_event = msgspec.json.Decoder(Event).decode
_decode_void = msgspec.json.Decoder(Void).decode


def encode(chat_id: str, epoch: int, stored: StoredEntry, node: str | None, now_ms: int) -> Record:
    """The record of one position. `node`: the node that has notified its own listeners, if one has."""
    headers: Headers = [] if node is None else [(NODE, node.encode())]
    if stored.change is not None:
        headers.append((CHANGE, b"1"))
    if stored.request_id:
        headers.append((REQUEST, stored.request_id.encode()))
    if stored.wire is None:
        event = _voided(chat_id, epoch, stored.sequence, now_ms)
    else:
        stamp = _decode_stamp(stored.wire)
        event_id = ids.EVENT + stamp.message_id.removeprefix(ids.MESSAGE)
        event = Event(MESSAGE_PERSISTED, event_id, stamp.created_at, chat_id, Raw(stored.wire))
    return Record(chat_id.encode(), _encode(event), headers)


def _voided(chat_id: str, epoch: int, sequence: int, now_ms: int) -> Event:
    """A void has no id of its own: the event's is a hash of its position."""
    position = f"{chat_id}/{epoch}/{sequence}".encode()
    number = int.from_bytes(hashlib.sha256(position).digest()[:16], "big")
    event_id = ids.EVENT + ids.ulid(number >> ids.RANDOM_BITS, number)
    payload = Raw(_encode(Void(chat_id, sequence, epoch)))
    return Event(POSITION_VOIDED, event_id, iso(now_ms), chat_id, payload)


def request_id_in(headers: Iterable[tuple[str, bytes]]) -> str:
    """Empty for an older version's record, and for an entry that was read from the log."""
    for name, value in headers:
        if name == REQUEST:
            return value[:REQUEST_ID_BYTES_MAX].decode("ascii", "replace")
    return ""


def is_proven(ring: KeyRing, value: bytes | None, headers: Iterable[tuple[str, bytes]]) -> bool:
    """Whether a node of this cluster has published this value."""
    for name, tag in headers:
        if name == PROOF and value is not None:
            return ring.accepts(value, tag)
    return False


def decode(value: bytes, headers: Iterable[tuple[str, bytes]] = ()) -> PositionEvent | None:
    """The position in a record; None for a kind of event that this version does not know."""
    event = _decode_event(value)
    if event.event_type == MESSAGE_PERSISTED:
        entry = decode_entry(event.payload)
        request_id = request_id_in(headers)
        stored = StoredEntry(entry.sequence, bytes(event.payload), change_in(entry), request_id)
        return PositionEvent(entry.chat_id, entry.epoch, stored, _node_in(headers))
    if event.event_type == POSITION_VOIDED:
        void = _decode_void(event.payload)
        return PositionEvent(void.chat_id, void.epoch, StoredEntry(void.sequence, None), _node_in(headers))
    return None


def _node_in(headers: Iterable[tuple[str, bytes]]) -> str:
    for name, value in headers:
        if name == NODE:
            return value.decode(errors="replace")
    return ""


def gather(told: Iterable[PositionEvent]) -> list[Persisted]:
    """Group positions by chat, and by who told them, in their order; a group is no larger than a page."""
    gathered: list[Persisted] = []
    last: dict[tuple[str, int], tuple[Persisted, int]] = {}
    for chat_id, epoch, stored, told_by in told:
        news, size = last.get((chat_id, epoch), (None, 0))
        if news is None or size > PAGE_BYTES_MAX or news.told_by != told_by:
            news, size = Persisted(chat_id, epoch, [], told_by=told_by), 0
            gathered.append(news)
        news.positions.append(stored)
        last[chat_id, epoch] = news, size + len(stored.wire or b"")
    return gathered
