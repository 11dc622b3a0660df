"""What became of a message, derived from how far each member is. Nothing is stored per message."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum

from msgspec import Struct

from parley.model import Mark, ReadReceipts


class Status(StrEnum):
    SENT = "sent"
    DELIVERED = "delivered"
    READ = "read"


class Seen(Struct, frozen=True):
    """Somebody has received or read a message, at this time at the latest; without a name in `simple`."""

    user_id: str | None
    at: str


class MessageReceipts(Struct, frozen=True):
    """`member_count`: those who count, without the sender and whoever joined after the message."""

    member_count: int
    status: Status
    delivered: list[Seen]
    read: list[Seen]


Sees = Callable[[Mark], bool]


def receipts_of(
    sequence: int,
    sender_id: str,
    marks: Iterable[Mark],
    mode: ReadReceipts,
    may_see: Sees,
    may_see_reads: Sees,
) -> MessageReceipts:
    """The receipts of the message at `sequence`, as far as somebody may see them.

    It is delivered, or read, once everybody who counts has received or read it; in `simple` one reader is
    enough, and who that is stays open.
    """
    counted = [mark for mark in marks if counts(mark, sequence, sender_id)]
    delivered = [
        Seen(mark.user_id, mark.delivered_at or "")
        for mark in counted
        if mark.delivered_up_to >= sequence and may_see(mark)
    ]
    read = [
        Seen(mark.user_id, mark.read_at or "")
        for mark in counted
        if mark.read_up_to >= sequence and may_see(mark) and may_see_reads(mark)
    ]
    return MessageReceipts(
        len(counted), status_of(len(delivered), len(read), len(counted), mode), delivered, shown(read, mode)
    )


def counts(mark: Mark, sequence: int, sender_id: str) -> bool:
    """Whether this member was meant by the message at `sequence`."""
    return mark.user_id != sender_id and mark.joined_sequence < sequence


def shown(read: list[Seen], mode: ReadReceipts) -> list[Seen]:
    """Of those who have read, what a chat in this mode tells."""
    match mode:
        case ReadReceipts.FULL:
            return read
        case ReadReceipts.SIMPLE:
            return [Seen(None, min(seen.at for seen in read))] if read else []
        case ReadReceipts.NONE:
            return []


def status_of(delivered: int, read: int, members: int, mode: ReadReceipts) -> Status:
    """The status of a message that so many have received and read, of so many who count."""
    wanted = {ReadReceipts.FULL: members, ReadReceipts.SIMPLE: 1, ReadReceipts.NONE: members + 1}[mode]
    if members and read >= wanted:
        return Status.READ
    return Status.DELIVERED if members and delivered >= members else Status.SENT
