"""`parley recover`: restores a chat's lost counter. It reads, decides and, with `apply`, writes and verifies.

One table is not enough to restore a counter. Allocated numbers are in entries, voids, open allocations,
idempotency keys, and in the positions that devices and people have reported: the chat continues after the
highest of all. Numbers between the last entry and the highest become voids, so that no reader waits for an
entry that does not exist.
"""

from __future__ import annotations

import structlog
from msgspec import Struct

from parley.checks.check import Checked, check_log
from parley.errors import CounterMissingError, InconsistentCounterError, StoreError
from parley.store.invariants import Breach, Findings
from parley.store.ports import Engine
from parley.store.rows import Remains, Repair
from parley.store.rules import STRAY_POSITIONS_MAX

log = structlog.get_logger("parley.store")


class ImplausibleNumber(StoreError):
    """A position so far beyond the log that it must be a mistake; nothing was written."""


class Recovery(Struct):
    """What was found, and what was or would be written. `is_lost`: the counter is missing, or fell back."""

    remains: Remains
    is_lost: bool
    counter: int
    voids: list[tuple[int, int]]
    """First and last number of each range that becomes void."""
    applied: bool = False
    breaches: list[Breach] = []

    @property
    def status(self) -> str:
        """In a word."""
        if not self.is_lost and not self.voids:
            return "fine"
        return "recovered" if self.applied else "missing"

    @property
    def found(self) -> dict[str, int | None]:
        """The highest number of the chat in each table."""
        remains = self.remains
        trimmed = {"trimmed_through": remains.trimmed} if remains.trimmed else {}
        return {
            "sequence_counter": remains.counter,
            "entries": remains.entries,
            "voids": remains.voids,
            "open_allocations": remains.open_allocations,
            "idempotency_keys": remains.keys,
            "user_device_cursors": remains.device_cursors,
            "delivery_state": remains.delivery_state,
            **trimmed,
        }

    @property
    def void_count(self) -> int:
        return sum(last - first + 1 for first, last in self.voids)


async def recover(engine: Engine, chat_id: str, *, apply: bool, seal_holes: bool = False) -> Recovery:
    """InconsistentCounterError when the counter exists and is behind its log: the operator must decide.

    `seal_holes`: numbers whose entry is lost become voids, too.
    """
    repairs = engine.repairs
    remains = await repairs.remains(chat_id)
    counter, is_lost = decide_counter(remains, may_raise=repairs.may_raise)
    voids: list[tuple[int, int]] = []
    if is_lost or seal_holes:
        first = remains.trimmed + 1 if seal_holes else remains.log_end + 1
        voids = check_holes(await repairs.holes(chat_id, first, counter))
    recovery = Recovery(remains, is_lost, counter, voids)
    if apply:
        if is_lost or voids:
            recovery.counter = await repairs.write(Repair(chat_id, counter, is_lost, voids, remains))
        recovery.applied = True
        await _verify(engine, recovery)
    return recovery


def decide_counter(remains: Remains, *, may_raise: bool = False) -> tuple[int, bool]:
    """What the counter should be, and whether it has to be written.

    InconsistentCounterError when it is behind its log, unless it may be raised; ImplausibleNumber when a
    cursor cannot be right.
    """
    if remains.counter is not None and remains.counter >= remains.log_end:
        return remains.counter, False
    if remains.counter is not None and not may_raise:
        raise InconsistentCounterError(remains.counter, remains.log_end)
    if remains.maximum - remains.log_end > STRAY_POSITIONS_MAX:
        raise ImplausibleNumber(
            f"a cursor is at {remains.maximum}, but the log of {remains.chat_id} ends at {remains.log_end}:"
            " this must be a mistake. Correct the row in user_device_cursors or delivery_state,"
            " and run this again"
        )
    return remains.maximum, True


def check_holes(holes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The holes, unless they are so many that sealing them must be a mistake."""
    if sum(last - first + 1 for first, last in holes) > STRAY_POSITIONS_MAX:
        raise ImplausibleNumber(
            f"more than {STRAY_POSITIONS_MAX:,} numbers are missing: restore a backup instead"
        )
    return holes


async def _verify(store: Checked, recovery: Recovery) -> None:
    """Read back what was written, and check the chat's whole log."""
    chat_id, findings = recovery.remains.chat_id, Findings(not_shown=store.inspection.not_shown)
    counter: int | None = None
    async for page in store.inspection.chats([chat_id]):
        for chat in page:
            counter = (await check_log(store, chat, findings)).counter
    recovery.breaches = findings.breaches
    if counter is None or counter < recovery.counter:
        raise CounterMissingError("the counter disappeared after it was written; find out what deletes it")
    if recovery.is_lost:
        log.warning(
            "Counter recovered",
            chat_id=chat_id,
            recovered_sequence=recovery.counter,
            voids=recovery.void_count,
        )
    elif recovery.voids:
        log.warning("Holes sealed", chat_id=chat_id, voids=recovery.void_count)


def how_to_go_on(engine: Engine, chat_id: str) -> str:
    """For an operator whose counter exists and is behind its log."""
    return (
        "An existing counter is never overwritten. Find out what lowered it (a restored backup?), then:"
        f"\n{engine.repairs.how_to_delete_counter(chat_id)}"
    )
