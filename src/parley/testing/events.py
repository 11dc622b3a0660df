"""What happened, as clients and the store told it: the events of a history.

Client ids match in any letter case, as on the wire. A `reader` names one stream of positions: a live
connection, or one that asks for pages; two streams of the same device are two readers.
"""

from __future__ import annotations

from msgspec import Struct


class Event(Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """One thing that happened in one chat."""

    chat_id: str


class Sent(Event, frozen=True, kw_only=True, tag=True, gc=False):
    """A device handed over a message, for the first time or again.

    A device that pipelines names the predecessor of each message, so the order of these is a promise.
    """

    sender_id: str
    device_id: str
    client_message_id: str
    content: str


class Acknowledged(Event, frozen=True, kw_only=True, tag=True, gc=False):
    """A sender was told where its message is."""

    sender_id: str
    client_message_id: str
    message_id: str
    sequence: int
    epoch: int = 1
    deduplicated: bool = False


class Refused(Event, frozen=True, kw_only=True, tag=True, gc=False):
    """A sender was told no; unless `temporary`, nothing of this message may be stored."""

    sender_id: str
    client_message_id: str
    code: str
    temporary: bool


class Resumed(Event, frozen=True, kw_only=True, tag=True, gc=False):
    """A reader goes on after a position that it needs no more."""

    reader: str
    after: int
    epoch: int = 1


class Asked(Event, frozen=True, kw_only=True, tag=True, gc=False):
    """A reader asks for a page after a position; whatever was acknowledged before must be in the log."""

    reader: str
    after: int
    epoch: int = 1


class Seen(Event, frozen=True, kw_only=True, tag=True, gc=False):
    """A reader was given an entry."""

    reader: str
    sequence: int
    message_id: str
    client_message_id: str | None
    content: str
    epoch: int = 1


class VoidSeen(Event, frozen=True, kw_only=True, tag=True, gc=False):
    """A reader was told that nothing is, and nothing will be, at a position."""

    reader: str
    sequence: int
    epoch: int = 1


class Paged(Event, frozen=True, kw_only=True, tag=True, gc=False):
    """A page ended, after its entries and voids: it claims to hold everything up to `to_sequence`."""

    reader: str
    to_sequence: int
    head: int
    epoch: int = 1


class CursorMoved(Event, frozen=True, kw_only=True, tag=True, gc=False):
    """A reader said that it needs nothing up to here any more."""

    reader: str
    sequence: int
    epoch: int = 1


class Stored(Event, frozen=True, kw_only=True, tag=True, gc=False):
    """An entry that the store holds at the end."""

    sequence: int
    message_id: str
    sender_id: str
    client_message_id: str | None
    content: str
    epoch: int = 1


class StoredVoid(Event, frozen=True, kw_only=True, tag=True, gc=False):
    """A void that the store holds at the end."""

    sequence: int
    epoch: int = 1


class StoreRead(Event, frozen=True, kw_only=True, tag=True, gc=False):
    """The whole log of a chat was read at the end: `Stored` and `StoredVoid` say all that is in it."""

    head: int


AnyEvent = (
    Sent
    | Acknowledged
    | Refused
    | Resumed
    | Asked
    | Seen
    | VoidSeen
    | Paged
    | CursorMoved
    | Stored
    | StoredVoid
    | StoreRead
)
