"""Plant every fault, one at a time, and see it caught."""

import argparse
import os
import queue
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from ops import node_builds
from tests.mutants.copies import Copy
from tests.mutants.faults import FAULTS_MIN, PROMISES, Fault, all_faults, problems_of, promises_in
from tests.mutants.running import RUN_SECONDS_MAX, Verdict, run_tests, shared_for_all, try_fault
from tests.mutants.vitest import run_vitest

AT_ONCE = min(2, os.cpu_count() or 1)
OUTPUT_LINES = 60
NICENESS = 10
"""Whoever works on this machine meanwhile comes first."""


def main() -> int:
    options = arguments()
    faults = chosen(all_faults(), options.only)
    if (reason := node_builds.why_not()) and any(fault.is_in_typescript for fault in faults):
        print(f"*** {reason}: no fault is planted in TypeScript. ***", file=sys.stderr)
        faults = [fault for fault in faults if not fault.is_in_typescript]
    if options.list:
        for fault in faults:
            print(f"{fault.id:<44} {fault.test}")
        return 0
    if misfits := unplantable(faults):
        print(*misfits, sep="\n", file=sys.stderr)
        print(f"\n{len(misfits)} problems in tests/mutants/faults.jsonl; nothing was run.", file=sys.stderr)
        return 2
    os.nice(NICENESS)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="parley-mutants-") as folder, shared_for_all():
        copies: queue.Queue[Copy] = queue.Queue()
        for number in range(AT_ONCE):
            copies.put(Copy(Path(folder) / f"tree{number}"))
        if not all_pass(copies, faults):
            return 3
        verdicts = try_all(copies, faults)
    return conclude(faults, verdicts, time.monotonic() - started)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument(
        "--only", action="append", default=[], metavar="WORD", help="faults with this in the id"
    )
    parser.add_argument("--list", action="store_true", help="show the faults and run nothing")
    return parser.parse_args()


def chosen(faults: list[Fault], words: list[str]) -> list[Fault]:
    found = [fault for fault in faults if not words or any(word in fault.id for word in words)]
    if not found or (not words and len(found) < FAULTS_MIN):
        sys.exit(f"{len(found)} faults are too few")
    return found


def unplantable(faults: list[Fault]) -> list[str]:
    promises = promises_in(PROMISES.read_text(encoding="utf-8"))
    return [f"{fault.id}: {problem}" for fault in faults for problem in problems_of(fault, promises)]


def all_pass(copies: "queue.Queue[Copy]", faults: list[Fault]) -> bool:
    """Every named test exists and passes without a fault: else its failure would show nothing."""
    titles = sorted({fault.test for fault in faults if fault.is_in_typescript})
    tests = sorted({fault.test for fault in faults if not fault.is_in_typescript})
    if titles and not titles_pass(copies, titles):
        return False
    shares = [share for start in range(AT_ONCE) if (share := tests[start::AT_ONCE])]
    print(f"{len(tests)} tests without a fault …", flush=True)

    def run(share: list[str]) -> str:
        copy = copies.get()
        try:
            status, output, phases = run_tests(copy, share)
            failed = sorted({one.test for one in phases if one.outcome == "failed"})
            if status and failed:  # a busy machine may have been too slow for one of them: once more, alone
                status, output, _ = run_tests(copy, failed)
        finally:
            copies.put(copy)
        return output if status else ""

    with ThreadPoolExecutor(AT_ONCE) as pool:
        failures = [output for output in pool.map(run, shares) if output]
    for output in failures:
        print("\n".join(output.splitlines()[-OUTPUT_LINES:]), file=sys.stderr)
    if failures:
        print(
            "\nA named test fails without a fault, or does not exist. No fault was planted.", file=sys.stderr
        )
    return not failures


def titles_pass(copies: "queue.Queue[Copy]", titles: list[str]) -> bool:
    """Each of these tests of Vitest exists and passes."""
    print(f"{len(titles)} tests in TypeScript without a fault …", flush=True)
    node_builds.install(node_builds.SDK)
    copy = copies.get()
    try:
        _, output, phases = run_vitest(copy, titles, RUN_SECONDS_MAX)
    finally:
        copies.put(copy)
    passed = [one.test for one in phases if one.outcome == "passed"]
    if missing := sorted(set(titles) - set(passed)):
        print(output, *missing, "\nThese do not pass, or do not exist.", sep="\n", file=sys.stderr)
    return not missing


def try_all(copies: "queue.Queue[Copy]", faults: list[Fault]) -> list[Verdict]:
    def run(fault: Fault) -> Verdict:
        copy = copies.get()
        try:
            return try_fault(copy, fault)
        finally:
            copies.put(copy)

    verdicts: list[Verdict] = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for done in as_completed([pool.submit(run, fault) for fault in faults]):
            verdict = done.result()
            verdicts.append(verdict)
            told = verdict.trouble or "caught"
            print(
                f"{len(verdicts):>3}/{len(faults)} {verdict.seconds:6.1f} s  {verdict.fault.id}: {told}",
                flush=True,
            )
            if verdict.trouble:
                print("\n".join(verdict.output.splitlines()[-OUTPUT_LINES:]), file=sys.stderr, flush=True)
    return verdicts


def conclude(faults: list[Fault], verdicts: list[Verdict], seconds: float) -> int:
    """The table, and loudly what was not caught."""
    by_id = {verdict.fault.id: verdict for verdict in verdicts}
    print(f"\n{'fault':<44} {'seconds':>7}  caught by")
    for fault in faults:
        verdict = by_id[fault.id]
        caught_by = f"NOT CAUGHT: {verdict.trouble}" if verdict.trouble else fault.test
        print(f"{fault.id:<44} {verdict.seconds:7.1f}  {caught_by}\n{'':<53} {fault.promise}")
    caught = [verdict for verdict in verdicts if not verdict.trouble]
    print(f"\n{len(caught)} of {len(faults)} faults caught in {seconds / 60:.0f} minutes.")
    return 0 if len(caught) == len(faults) else 1


if __name__ == "__main__":
    sys.exit(main())
