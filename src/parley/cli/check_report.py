"""The report of `parley check`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from msgspec import Struct

from parley.checks import check as store_check
from parley.checks.check import ArchivedRows, Checked
from parley.cli.output import plural, print_json, print_table, printable
from parley.store.invariants import Breach, Findings, Progress, no_progress

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
    """How many breaches of each invariant were found."""
    breaches: list[Breach]
    breaches_not_listed: int


async def check(
    store: Checked,
    chat_ids: Sequence[str] | None,
    *,
    whole: bool,
    archived: ArchivedRows | None = None,
) -> tuple[Findings, float]:
    """The findings, and how many seconds it took."""
    started = time.monotonic()
    progress = ProgressLine() if sys.stderr.isatty() else no_progress
    findings = await store_check.check(store, chat_ids, progress, whole=whole, archived=archived)
    if isinstance(progress, ProgressLine):
        progress.clear()
    return findings, time.monotonic() - started


class ProgressLine:
    """A progress line on a terminal."""

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
        print_breach(breach)
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
        print(f"\nAll {len(findings.shown)} invariants hold.")


def print_breach(breach: Breach) -> None:
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
            invariants=findings.counted,
            breaches=findings.breaches,
            breaches_not_listed=findings.counts.total() - len(findings.breaches),
        )
    )
