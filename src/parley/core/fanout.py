"""How the notifications of a chat's messages are fanned out, by its size or by an operator's choice.

The sender's ack waits for none of it. See docs/push.md.
"""

from __future__ import annotations

from msgspec import Struct

from parley.model import Fanout, MemberSettings, Notify

WRITE_BELOW_MEMBERS = 100
READ_ABOVE_MEMBERS = 1_000
assert WRITE_BELOW_MEMBERS <= READ_ABOVE_MEMBERS


class FanoutSizes(Struct, frozen=True):
    """Chats with fewer members than the one are `write`, with more than the other `read`."""

    write_below: int = WRITE_BELOW_MEMBERS
    read_above: int = READ_ABOVE_MEMBERS


def strategy_of(member_count: int, chosen: Fanout | None, sizes: FanoutSizes) -> Fanout:
    """The strategy of a chat: the one that an operator chose, or the one of its size."""
    if chosen is not None:
        return chosen
    if member_count < sizes.write_below:
        return Fanout.WRITE
    return Fanout.READ if member_count > sizes.read_above else Fanout.HYBRID


def may_notify(settings: MemberSettings, *, is_mentioned: bool, is_muted: bool) -> bool:
    """Whether a member of a `hybrid` chat needs a queue: those who want no notification cost nothing."""
    if is_muted or settings.notify is Notify.NONE:
        return False
    return is_mentioned or settings.notify is Notify.ALL
