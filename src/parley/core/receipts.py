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
    """Who has received or read a message, and since when at the latest."""

    user_id: str
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

    `simple` tells by the status alone whether anybody has received or read it; `full` says delivered or read
    once everybody has.
    """
    counted = [mark for mark in marks if mark.user_id != sender_id and mark.joined_sequence < sequence]
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
    if mode is ReadReceipts.NONE:
        read = []
    wanted = 1 if mode is ReadReceipts.SIMPLE else len(counted)
    status = status_of(len(delivered), len(read), wanted)
    if mode is ReadReceipts.SIMPLE:
        return MessageReceipts(len(counted), status, [], [])
    return MessageReceipts(len(counted), status, delivered, read)


def status_of(delivered: int, read: int, wanted: int) -> Status:
    """`wanted`: how many must have received or read it for that to be its status."""
    if wanted and read >= wanted:
        return Status.READ
    return Status.DELIVERED if wanted and delivered >= wanted else Status.SENT
