"""The receipts of a message, derived from how far each member is. Nothing is stored per message."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from parley.model import DeliveryStatus, MemberCursor, ReadReceipts, SeenBy


class MessageReceipts(Struct, frozen=True):
    """`member_count`: the people it was for, so the members without its sender, without those who joined
    after the message, and without bots."""

    member_count: int
    status: DeliveryStatus
    delivered: list[SeenBy]
    read: list[SeenBy]


Sees = Callable[[MemberCursor], bool]


def receipts_of(
    sequence: int,
    sender_id: str,
    marks: Iterable[MemberCursor],
    mode: ReadReceipts,
    may_see: Sees,
    may_see_reads: Sees,
) -> MessageReceipts:
    """The receipts of the message at `sequence`, as far as the viewer may see them.

    The message is delivered, or read, once every counted member has received or read it. In `simple` one
    reader is enough, and is not named.
    """
    counted = [mark for mark in marks if counts(mark, sequence, sender_id)]
    delivered = [
        SeenBy(mark.user_id, mark.delivered_at or "")
        for mark in counted
        if mark.delivered_up_to >= sequence and may_see(mark)
    ]
    read = [
        SeenBy(mark.user_id, mark.read_at or "")
        for mark in counted
        if mark.read_up_to >= sequence and may_see(mark) and may_see_reads(mark)
    ]
    return MessageReceipts(
        len(counted), status_of(len(delivered), len(read), len(counted), mode), delivered, shown(read, mode)
    )


def counts(mark: MemberCursor, sequence: int, sender_id: str) -> bool:
    """Whether this member is a recipient of the message at `sequence`."""
    return mark.user_id != sender_id and mark.joined_sequence < sequence


def shown(read: list[SeenBy], mode: ReadReceipts) -> list[SeenBy]:
    """What a chat in this mode shows of its readers."""
    match mode:
        case ReadReceipts.FULL:
            return read
        case ReadReceipts.SIMPLE:
            return [SeenBy(None, min(seen.at for seen in read))] if read else []
        case ReadReceipts.NONE:
            return []


def status_of(delivered: int, read: int, members: int, mode: ReadReceipts) -> DeliveryStatus:
    """The status of a message, from the numbers of members who received it, who read it, and of all."""
    wanted = {ReadReceipts.FULL: members, ReadReceipts.SIMPLE: 1, ReadReceipts.NONE: members + 1}[mode]
    if members and read >= wanted:
        return DeliveryStatus.READ
    return DeliveryStatus.DELIVERED if members and delivered >= members else DeliveryStatus.SENT
