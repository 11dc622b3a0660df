"""What became of a message and who is there, in few letters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from parley.client.opened import Member
from parley.clock import from_iso
from parley.core.receipts import MessageReceipts, Status

TICKS = {Status.SENT: "✓", Status.DELIVERED: "✓✓", Status.READ: "✓✓"}
TYPISTS_NAMED_MAX = 3


def ticks(receipts: MessageReceipts) -> tuple[str, str]:
    """The ticks of a message and their style; while only some have read it also how many."""
    if receipts.status is Status.READ:
        return "read", TICKS[Status.READ]
    read = f" read by {len(receipts.read)} of {receipts.member_count}" if receipts.read else ""
    return "dim", f"{TICKS[receipts.status]}{read}"


def typing(names: Sequence[str]) -> str:
    """Who types, as a sentence; nothing if nobody does."""
    if not names:
        return ""
    if len(names) > TYPISTS_NAMED_MAX:
        return "several people are typing…"
    *others, last = names
    return f"{', '.join(others)} and {last} are typing…" if others else f"{last} is typing…"


def presence(member: Member, name: str) -> str:
    """Whether somebody is there, or when they last were."""
    if member.status == "online":
        return f"{name} is online"
    if member.last_seen is None:
        return f"{name} is offline"
    try:
        moment = datetime.fromtimestamp(from_iso(member.last_seen) / 1000).astimezone()
    except ValueError:
        return f"{name}, last seen: unavailable"
    return f"{name}, last seen: {moment:%d %B, %H:%M}"
