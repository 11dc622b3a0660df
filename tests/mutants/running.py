"""One test in one copy of the tree, with a fault or without, and what came of it."""

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.mutants.child import run_pytest
from tests.mutants.copies import Copy, module_of
from tests.mutants.faults import Fault
from tests.mutants.phases import Phase
from tests.mutants.reporting import CANNOT_IMPORT, MODULE_VARIABLE, REPORT_VARIABLE
from tests.mutants.vitest import UNREADABLE, run_vitest
from tests.services import FOLDER_VARIABLE, OWNER_VARIABLE, shared_services

RUN_SECONDS_MAX = 400
CAUGHT_BY = ("builtins.AssertionError", "builtins.Failed", "builtins.TimeoutError", "parley.")
"""A claim that does not hold, a deadline that passed, or an error that Parley itself raises."""
NO_CATCH = ("vitest.TypeError", "vitest.ReferenceError", "vitest.SyntaxError", "vitest.unknown")
"""In TypeScript all other errors are claims, deadlines in virtual time, or the SDK's own."""
OPTIONS = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "tests.mutants.reporting")


class Verdict(NamedTuple):
    """`trouble` says why a fault does not count as caught; empty when it was."""

    fault: Fault
    trouble: str
    seconds: float
    output: str = ""


@contextmanager
def shared_for_all() -> Iterator[None]:
    """Services start with the first test that needs one, and serve all runs after it."""
    with tempfile.TemporaryDirectory(prefix="parley-mutants-services-") as folder:
        os.environ[FOLDER_VARIABLE] = str(Path(folder) / "services")
        os.environ[OWNER_VARIABLE] = str(os.getpid())
        try:
            yield
        finally:
            shared_services().destroy()


def run_tests(
    copy: Copy, tests: Sequence[str], module: str = "", *options: str
) -> tuple[int, str, list[Phase]]:
    """Pytest's exit status and words, and what was written down of each test."""
    report = copy.folder.with_suffix(".report")
    report.unlink(missing_ok=True)
    environment = {
        **os.environ,
        MODULE_VARIABLE: module,
        REPORT_VARIABLE: str(report),
        "PYTHONPATH": os.pathsep.join([str(copy.folder / "src"), str(copy.folder)]),
        "PARLEY_SIMULATE_ROUNDS": os.environ.get("PARLEY_SIMULATE_ROUNDS", "30"),
        "CI": "true",  # a test that is skipped shows nothing
    }
    output = copy.folder.with_suffix(".output")
    seconds_max = RUN_SECONDS_MAX * max(1, len(tests))
    status = run_pytest(copy.folder, [*OPTIONS, *options, *tests], environment, output, seconds_max)
    lines = report.read_text(encoding="utf-8").splitlines() if report.exists() else []
    return status, output.read_text(errors="replace"), [Phase(**json.loads(line)) for line in lines]


def try_fault(copy: Copy, fault: Fault) -> Verdict:
    """Whether its test fails with it, for the right reason, and how long that took."""
    with copy.planted(fault):
        try:
            if fault.is_in_typescript:
                status, output, phases = run_vitest(copy, [fault.test], RUN_SECONDS_MAX)
            else:
                status, output, phases = run_tests(copy, [fault.test], module_of(fault), "-x")
        except TimeoutError:
            return Verdict(fault, f"its test did not end in {RUN_SECONDS_MAX} s", RUN_SECONDS_MAX)
    return Verdict(fault, trouble_with(fault, status, phases), sum(one.seconds for one in phases), output)


def trouble_with(fault: Fault, status: int, phases: list[Phase]) -> str:
    """Why a run does not show that the fault is caught; empty when it does."""
    if status in (CANNOT_IMPORT, UNREADABLE):
        return "the module cannot be imported with it: that is no fault, it is a typing error"
    failed = [one for one in phases if one.outcome == "failed"]
    if not failed:
        return "SURVIVED" if status == 0 and phases else f"its test did not run (pytest says {status})"
    if not any(one.phase == "call" for one in failed):
        return "its test failed before it began, so it shows nothing"
    names = [name for one in failed if one.phase == "call" for name in one.errors]
    if any(name.startswith((*CAUGHT_BY, "vitest.")) and name not in NO_CATCH for name in names):
        return ""
    if fault.raises and any(name.rpartition(".")[2] == fault.raises for name in names):
        return ""
    return f"its test failed by {names[0] if names else 'nothing'}; if that is right, name it in `raises`"
