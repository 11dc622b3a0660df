"""The events of a history: what clients and the store observed.

Client ids match in any letter case, as on the wire. A `reader` names one stream of positions: a live
connection, or one that requests pages; two streams of the same device are two readers.
"""

from __future__ import annotations

from msgspec import Struct


class HistoryEvent(Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """One event in one chat."""

    chat_id: str


class Sent(HistoryEvent, frozen=True, kw_only=True, tag=True, gc=False):
    """A device sent a message, for the first time or again.

    A device that pipelines names the predecessor of each message, so their order is promised.
    """

    sender_id: str
    device_id: str
    client_message_id: str
    content: str


class Acknowledged(HistoryEvent, frozen=True, kw_only=True, tag=True, gc=False):
    """A sender got the ack of its message."""

    sender_id: str
    client_message_id: str
    message_id: str
    sequence: int
    epoch: int = 1
    deduplicated: bool = False


class SendRejected(HistoryEvent, frozen=True, kw_only=True, tag=True, gc=False):
    """A sender got a refusal; unless `temporary`, this message must not be stored."""

    sender_id: str
    client_message_id: str
    code: str
    temporary: bool


class Resumed(HistoryEvent, frozen=True, kw_only=True, tag=True, gc=False):
    """A reader continues after this position."""

    reader: str
    after: int
    epoch: int = 1


class Requested(HistoryEvent, frozen=True, kw_only=True, tag=True, gc=False):
    """A reader requests a page after a position; everything acknowledged before must be in the log."""

    reader: str
    after: int
    epoch: int = 1


class EntrySeen(HistoryEvent, frozen=True, kw_only=True, tag=True, gc=False):
    """A reader got an entry."""

    reader: str
    sequence: int
    message_id: str
    client_message_id: str | None
    content: str
    epoch: int = 1


class VoidSeen(HistoryEvent, frozen=True, kw_only=True, tag=True, gc=False):
    """A reader got a void."""

    reader: str
    sequence: int
    epoch: int = 1


class Paged(HistoryEvent, frozen=True, kw_only=True, tag=True, gc=False):
    """A page ended, after its entries and voids: it claims to hold everything up to `to_sequence`."""

    reader: str
    to_sequence: int
    head: int
    epoch: int = 1


class CursorMoved(HistoryEvent, frozen=True, kw_only=True, tag=True, gc=False):
    """A reader acknowledged everything up to here."""

    reader: str
    sequence: int
    epoch: int = 1


class Stored(HistoryEvent, frozen=True, kw_only=True, tag=True, gc=False):
    """An entry that the store holds at the end."""

    sequence: int
    message_id: str
    sender_id: str
    client_message_id: str | None
    content: str
    epoch: int = 1


class StoredVoid(HistoryEvent, frozen=True, kw_only=True, tag=True, gc=False):
    """A void that the store holds at the end."""

    sequence: int
    epoch: int = 1


class StoreRead(HistoryEvent, frozen=True, kw_only=True, tag=True, gc=False):
    """The whole log of a chat was read at the end: `Stored` and `StoredVoid` list everything in it."""

    head: int


AnyEvent = (
    Sent
    | Acknowledged
    | SendRejected
    | Resumed
    | Requested
    | EntrySeen
    | VoidSeen
    | Paged
    | CursorMoved
    | Stored
    | StoredVoid
    | StoreRead
)
