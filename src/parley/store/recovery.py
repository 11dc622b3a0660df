"""The recovery of a lost counter, after the sources' procedure: what is looked for and what is decided.

A missing counter is never guessed from one table alone. What was ever given out shows in entries, voids,
open allocations, idempotency keys, and in the positions that devices and people have reported: the highest
of all is where the chat goes on. Numbers between the last entry and that become voids, so that no reader
waits for what nobody has.
"""

from __future__ import annotations

from msgspec import Struct

from parley.errors import InconsistentCounterError, StoreError
from parley.store.checks import Breach
from parley.store.rules import STRAY_POSITIONS_MAX


class NoSuchChat(StoreError):
    """There is no chat of this id."""


class Unbelievable(StoreError):
    """A position so far beyond the log that it must be a mistake; nothing was written."""


class Found(Struct, kw_only=True):
    """The highest number that each of a chat's tables knows of; 0 where there is none.

    `voids` counts only those that lie beyond the last entry: the others say nothing more.
    """

    chat_id: str
    counter: int | None
    entries: int
    voids: int = 0
    open_allocations: int = 0
    keys: int = 0
    trimmed: int = 0
    device_cursors: int = 0
    delivery_state: int = 0

    @property
    def log_end(self) -> int:
        """The highest number that the log itself knows of."""
        return max(self.entries, self.voids, self.open_allocations, self.keys, self.trimmed)

    @property
    def maximum(self) -> int:
        """The highest number that anything knows of: where the chat goes on."""
        return max(self.log_end, self.device_cursors, self.delivery_state)


class Recovery(Struct):
    """What was found and what was, or would be, written. `is_lost`: the counter is gone, or fell back."""

    found: Found
    is_lost: bool
    counter: int
    voids: list[tuple[int, int]]
    """First and last number of each stretch that becomes void."""
    applied: bool
    breaches: list[Breach] = []

    @property
    def void_count(self) -> int:
        return sum(last - first + 1 for first, last in self.voids)


def decide_counter(found: Found, *, may_raise: bool = False) -> tuple[int, bool]:
    """What the counter should be, and whether it has to be written.

    InconsistentCounterError when it is behind its log, unless it may be raised; Unbelievable when a cursor
    cannot be right.
    """
    if found.counter is not None and found.counter >= found.log_end:
        return found.counter, False
    if found.counter is not None and not may_raise:
        raise InconsistentCounterError(found.counter, found.log_end)
    if found.maximum - found.log_end > STRAY_POSITIONS_MAX:
        raise Unbelievable(
            f"a cursor says {found.maximum}, but the log of {found.chat_id} ends at {found.log_end}: too far"
            " to be true. Look at user_device_cursors and delivery_state, correct the row, and run this again"
        )
    return found.maximum, True


def check_holes(holes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The holes, if they are so few that giving them up can be meant."""
    if sum(last - first + 1 for first, last in holes) > STRAY_POSITIONS_MAX:
        raise Unbelievable(f"more than {STRAY_POSITIONS_MAX:,} numbers are missing: restore a backup instead")
    return holes
