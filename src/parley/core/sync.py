"""Where a client's catch-up starts: after its own position, or from the beginning."""

from __future__ import annotations

from msgspec import Struct

from parley.model import Head


class Start(Struct, frozen=True):
    """Read from after this position. `reset`: the client's position does not belong to this log."""

    after: int
    reset: bool


def decide_start(last_acked: int, epoch: int | None, head: Head) -> Start:
    """A client cannot resume from a position of another epoch or beyond the head."""
    if epoch is not None and epoch != head.epoch:
        return Start(0, True)
    if last_acked > head.sequence:
        return Start(0, True)
    return Start(last_acked, False)


def is_same_message(claimed: str, stored: str | None) -> bool:
    """Whether the client's last message is the one that is stored at its position."""
    return stored is not None and claimed == stored
