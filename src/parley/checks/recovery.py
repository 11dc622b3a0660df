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
from parley.store.rows import Repair, Traces
from parley.store.rules import STRAY_POSITIONS_MAX

log = structlog.get_logger("parley.store")


class ImplausibleNumber(StoreError):
    """A position so far beyond the log that it must be a mistake; nothing was written."""


class Recovery(Struct):
    """What was found, and what was or would be written. `is_lost`: the counter is missing, or fell back."""

    traces: Traces
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
        traces = self.traces
        trimmed = {"trimmed_through": traces.trimmed} if traces.trimmed else {}
        return {
            "sequence_counter": traces.counter,
            "entries": traces.entries,
            "voids": traces.voids,
            "open_allocations": traces.open_allocations,
            "idempotency_keys": traces.keys,
            "user_device_cursors": traces.device_cursors,
            "delivery_state": traces.delivery_state,
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
    traces = await repairs.traces(chat_id)
    counter, is_lost = decide_counter(traces, may_raise=repairs.may_raise)
    voids: list[tuple[int, int]] = []
    if is_lost or seal_holes:
        first = traces.trimmed + 1 if seal_holes else traces.log_end + 1
        voids = check_holes(await repairs.holes(chat_id, first, counter))
    recovery = Recovery(traces, is_lost, counter, voids)
    if apply:
        if is_lost or voids:
            recovery.counter = await repairs.write(Repair(chat_id, counter, is_lost, voids, traces))
        recovery.applied = True
        await _verify(engine, recovery)
    return recovery


def decide_counter(traces: Traces, *, may_raise: bool = False) -> tuple[int, bool]:
    """What the counter should be, and whether it has to be written.

    InconsistentCounterError when it is behind its log, unless it may be raised; ImplausibleNumber when a
    cursor cannot be right.
    """
    if traces.counter is not None and traces.counter >= traces.log_end:
        return traces.counter, False
    if traces.counter is not None and not may_raise:
        raise InconsistentCounterError(traces.counter, traces.log_end)
    if traces.maximum - traces.log_end > STRAY_POSITIONS_MAX:
        raise ImplausibleNumber(
            f"a cursor is at {traces.maximum}, but the log of {traces.chat_id} ends at {traces.log_end}: this"
            " must be a mistake. Correct the row in user_device_cursors or delivery_state, and run this again"
        )
    return traces.maximum, True


def check_holes(holes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The holes, unless they are so many that sealing them must be a mistake."""
    if sum(last - first + 1 for first, last in holes) > STRAY_POSITIONS_MAX:
        raise ImplausibleNumber(
            f"more than {STRAY_POSITIONS_MAX:,} numbers are missing: restore a backup instead"
        )
    return holes


async def _verify(store: Checked, recovery: Recovery) -> None:
    """Read back what was written, and check the chat's whole log."""
    chat_id, findings = recovery.traces.chat_id, Findings(not_shown=store.inspection.not_shown)
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
