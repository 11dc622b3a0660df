"""How `check` and `recover` tell what they found."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from parley.cli.opening import quiet_logs
from parley.cli.output import note, plural, print_json, print_table, printable
from parley.cli.problems import complain, explain
from parley.clock import wall_clock
from parley.errors import InconsistentCounterError, StoreError
from parley.store.checks import INVARIANTS, Breach, Findings, Progress, silently
from parley.store.sqlite import repair
from parley.store.sqlite.check import check_folder
from parley.store.sqlite.repair import Recovery

PROGRESS_SECONDS = 0.1


class Report(Struct):
    """What `check --json` prints."""

    ok: bool
    chats: int
    entries: int
    voids: int
    open_allocations: int
    seconds: float
    invariants: dict[str, int]
    """How often each was found broken."""
    breaches: list[Breach]
    breaches_not_listed: int


def check(folder: Path, chat_ids: Sequence[str] | None, *, whole_file: bool) -> tuple[Findings, float]:
    started = time.monotonic()
    tell = ProgressLine() if sys.stderr.isatty() else silently
    findings = check_folder(folder, chat_ids, tell, whole_file=whole_file)
    if isinstance(tell, ProgressLine):
        tell.clear()
    return findings, time.monotonic() - started


class ProgressLine:
    """One line on a terminal that is rewritten now and then."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + PROGRESS_SECONDS
            share = 100 * progress.chats // max(progress.chats_total, 1)
            text = f"checking: {progress.chats:,} of {plural(progress.chats_total, 'chat')} ({share}%)"
            print(f"\r\x1b[K{text}, {progress.entries:,} entries", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def report(findings: Findings, seconds: float, as_json: bool) -> None:
    if as_json:
        _report_json(findings, seconds)
        return
    for breach in findings.breaches:
        _tell_breach(breach)
    if not findings.is_clean:
        rest = findings.counts.total() - len(findings.breaches)
        if rest:
            print(f"… and {rest:,} more\n")
        print_table(["BROKEN", "TIMES"], findings.counts.most_common())
        print()
    headings = ["CHATS", "ENTRIES", "VOIDS", "OPEN", "SECONDS"]
    numbers = (findings.chats, findings.entries, findings.voids, findings.open_allocations)
    print_table(headings, [(*(f"{number:,}" for number in numbers), f"{seconds:.2f}")])
    if findings.is_clean:
        print(f"\nAll {len(INVARIANTS)} invariants hold.")


def _tell_breach(breach: Breach) -> None:
    where = f"  {breach.chat_id}" if breach.chat_id else ""
    at = f" #{breach.sequence}" if breach.sequence is not None else ""
    print(f"✗ {breach.invariant}{where}{at}")
    print(f"  {printable(breach.says)}")
    print(f"  → {breach.remedy}\n")


def _report_json(findings: Findings, seconds: float) -> None:
    print_json(
        Report(
            ok=findings.is_clean,
            chats=findings.chats,
            entries=findings.entries,
            voids=findings.voids,
            open_allocations=findings.open_allocations,
            seconds=round(seconds, 3),
            invariants={name: findings.counts[name] for name in INVARIANTS},
            breaches=findings.breaches,
            breaches_not_listed=findings.counts.total() - len(findings.breaches),
        )
    )


# Recovery


class Outcome(Struct, omit_defaults=True):
    """What `recover --json` prints of each chat."""

    chat_id: str
    status: str
    applied: bool
    found: dict[str, int | None] | None = None
    sequence_counter: int | None = None
    voids: list[tuple[int, int]] = []
    breaches: list[Breach] = []
    error: str | None = None


def recover(
    folder: Path, chat_ids: Sequence[str] | None, *, apply: bool, seal_holes: bool, as_json: bool
) -> bool:
    """Look at each chat and repair it if asked to; whether all are, or would be, well."""
    quiet_logs()
    chosen = repair.chats_without_counter(folder) if chat_ids is None else list(chat_ids)
    if not chosen and not as_json:
        print("Every chat has its counter.")
    outcomes = [_recover_one(folder, chat_id, apply, seal_holes, as_json) for chat_id in chosen]
    if as_json:
        print_json({"chats": outcomes})
    return all(outcome.error is None and not outcome.breaches for outcome in outcomes)


def _recover_one(folder: Path, chat_id: str, apply: bool, seal_holes: bool, as_json: bool) -> Outcome:
    try:
        recovery = repair.recover(folder, chat_id, wall_clock, apply=apply, seal_holes=seal_holes)
    except StoreError as error:
        if not as_json:
            complain(f"{chat_id}: {explain(error)}{_next_step(error, folder, chat_id)}")
        return Outcome(
            chat_id,
            "inconsistent" if isinstance(error, InconsistentCounterError) else "failed",
            applied=False,
            error=str(error),
        )
    if not as_json:
        _tell_recovery(recovery, apply, seal_holes)
    return _outcome(recovery)


def _outcome(recovery: Recovery) -> Outcome:
    found = recovery.found
    status = (
        "fine"
        if not recovery.is_missing and not recovery.voids
        else "recovered"
        if recovery.applied
        else "missing"
    )
    return Outcome(
        found.chat_id,
        status,
        applied=recovery.applied,
        found=_sources(recovery),
        sequence_counter=recovery.counter,
        voids=recovery.voids,
        breaches=recovery.breaches,
    )


def _sources(recovery: Recovery) -> dict[str, int | None]:
    found = recovery.found
    return {
        "sequence_counter": found.counter,
        "entries": found.entries,
        "voids": found.voids,
        "open_allocations": found.open_allocations,
        "idempotency_keys": found.keys,
        "user_device_cursors": found.device_cursors,
        "delivery_state": found.delivery_state,
    }


def _next_step(error: StoreError, folder: Path, chat_id: str) -> str:
    if not isinstance(error, InconsistentCounterError):
        return ""
    return (
        "\nA counter that is there is never overwritten. Find out who lowered it (a restored backup?), then:"
        f"\nsqlite3 {folder}/parley.db \"DELETE FROM chat_counters WHERE chat_id = '{chat_id}'\""
        f"\nparley recover {chat_id} --data {folder} --apply"
    )


def _tell_recovery(recovery: Recovery, apply: bool, seal_holes: bool) -> None:
    found = recovery.found
    print(found.chat_id)
    rows = [
        (name, "missing" if value is None else value or "-") for name, value in _sources(recovery).items()
    ]
    print_table(["HIGHEST NUMBER IN", ""], rows)
    print()
    done = "written" if recovery.applied else "would write"
    if recovery.is_missing:
        print(f"{done}: sequence_counter = {recovery.counter}; the next message gets {recovery.counter + 1}")
    for first, last in recovery.voids:
        numbers = f"{first}" if first == last else f"{first} to {last}"
        print(f"{done}: void {numbers}")
    if not recovery.is_missing and not recovery.voids:
        print(
            "The counter is there and not behind its log: nothing to do." if not seal_holes else "No holes."
        )
        _point_at_cursors(recovery)
    elif not apply:
        note("Nothing was changed. To write this, add --apply.")
    for breach in recovery.breaches:
        print()
        _tell_breach(breach)


def _point_at_cursors(recovery: Recovery) -> None:
    if recovery.found.maximum > recovery.counter:
        note("Some cursors are beyond it, though: parley check says which.")
