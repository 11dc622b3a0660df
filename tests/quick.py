"""`make quick`: what a change touches, within 90 seconds.

It looks at what is not committed or not on `main`; with nothing of both, at the last commit. It runs

1. ruff on all, mypy on what changed, the checks of the clients if they changed, beside the tests;
2. the tests that changed, and those that catch faults planted in the files that changed;
3. the tests that import what changed: units first, then the rest, on the engine in memory and on SQLite.

When its time is up it starts no further test, and says how many it left out. It is no proof: `make test` is.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.mutants.faults import all_faults

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
SECONDS_MAX = 90
STATIC_SECONDS_MAX = 85
TEST_SECONDS_MAX = 70
"""No test starts later; one that has started may take its time."""
LAYERS = ("unit", "tidy", "contracts", "integration", "security")
"""Simulation and acceptance take longer than all of it may."""
EMBEDDED = ("memory-", "sqlite-")
ENGINES = (*EMBEDDED, "dynamodb-", "cassandra-")
IMPORTED = re.compile(r"^(?:from|import) ([\w.]+)(?: import (\([^)]*\)|.*))?", re.MULTILINE)
SHARED_STORES = ("dynamodb", "cassandra")


def main() -> int:
    started = time.monotonic()
    parser = argparse.ArgumentParser(prog="python -m tests.quick", description=__doc__)
    parser.add_argument("--base", default="", help="what to compare with, if not main")
    changed = changed_files(parser.parse_args().base)
    python = [name for name in changed if name.endswith(".py") and (ROOT / name).exists()]
    print(f"{len(changed)} files changed", *changed[:20], sep="\n  ", flush=True)
    static = [
        subprocess.Popen(command, cwd=ROOT)
        for command in (
            [str(BIN / "ruff"), "check", "--quiet", "."],
            [str(BIN / "ruff"), "format", "--check", "--quiet", "."],
            *([[str(BIN / "mypy"), *python]] if python else []),
            *([[sys.executable, "-m", "tests.node", "run", "check"]] if is_of_clients(changed) else []),
        )
    ]
    files = tests_for(changed)
    status = 0
    if files:
        chosen = Chosen(changed, started + TEST_SECONDS_MAX)
        status = int(pytest.main(["-q", "--short", "-p", "no:cacheprovider", *files], plugins=[chosen]))
        print(chosen.summary(), flush=True)
    sound = [is_done_well(one, started + STATIC_SECONDS_MAX) for one in static]
    print(f"{time.monotonic() - started:.0f} s")
    return 0 if all(sound) and status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) else 1


def changed_files(base: str) -> list[str]:
    """What differs from `base` in the work tree, new files included."""
    start = base or merge_base()
    names = {*git("diff", "--name-only", start), *git("ls-files", "--others", "--exclude-standard")}
    return sorted(names or git("diff", "--name-only", "HEAD~1"))


def merge_base() -> str:
    for branch in ("origin/main", "main"):
        if found := git("merge-base", "HEAD", branch):
            return found[0]
    return "HEAD"


def git(*words: str) -> list[str]:
    return subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()


def tests_for(changed: Collection[str]) -> list[str]:
    """The test files to collect: what changed first, then by layer."""
    importers = {module_of(name) for name in changed if name.endswith(".py")}
    found = dict.fromkeys(name for name in changed if is_test_file(name) and (ROOT / name).exists())
    found |= dict.fromkeys(path for path, _ in tests_of_faults(changed))
    found |= dict.fromkeys(path for path in files_with_tests() if importers & imported_by(path))
    if is_of_clients(changed):
        found |= dict.fromkeys(git("ls-files", "tests/clients/test_*.py"))
    return sorted(found, key=lambda path: (path not in changed, layer_of(path)))


def tests_of_faults(changed: Collection[str]) -> Iterator[tuple[str, str]]:
    """The file and the node id of each test that catches a fault in what changed."""
    for fault in all_faults():
        if fault.file in changed:
            yield fault.test.partition("::")[0], fault.test


def is_of_clients(changed: Collection[str]) -> bool:
    return any(name.startswith("clients/") for name in changed)


def is_test_file(name: str) -> bool:
    return name.startswith("tests/") and name.rpartition("/")[2].startswith("test_") and name.endswith(".py")


def files_with_tests() -> list[str]:
    names = git("ls-files", "tests")
    return [name for name in names if is_test_file(name) and layer_of(name) < len(LAYERS)]


def layer_of(path: str) -> int:
    layer = path.split("/")[1]
    return LAYERS.index(layer) if layer in LAYERS else len(LAYERS)


def module_of(name: str) -> str:
    """`src/parley/core/append.py` is `parley.core.append`."""
    return name.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@cache
def imported_by(path: str) -> frozenset[str]:
    """The modules that a file imports itself; a class that it imports counts as one, and is none."""
    text = (ROOT / path).read_text(encoding="utf-8")
    found = set[str]()
    for module, names in IMPORTED.findall(text):
        found |= {module, *(f"{module}.{name}" for name in re.findall(r"\w+", names))}
    return frozenset(found)


def is_done_well(process: subprocess.Popen[bytes], until: float) -> bool:
    try:
        return process.wait(max(0.1, until - time.monotonic())) == 0
    except subprocess.TimeoutExpired:
        process.kill()
        print(f"not finished in time: {process.args!r}", file=sys.stderr)
        return True


class Chosen:
    """Orders what was collected, leaves out engines that take long, and starts nothing when time is up."""

    def __init__(self, changed: Collection[str], until: float) -> None:
        self._until = until
        self._of_faults = {test for _, test in tests_of_faults(changed)}
        self._changed = frozenset(changed)
        self._has_shared_store = any(store in name for name in changed for store in SHARED_STORES)
        self._chosen = self._started = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        kept = [item for item in items if self._is_wanted(item)]
        kept.sort(key=self._place)
        self._chosen = len(kept)
        items[:] = kept

    def pytest_runtest_logstart(self) -> None:
        self._started += 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        self._session = session

    def pytest_runtest_logfinish(self) -> None:
        if time.monotonic() > self._until:
            self._session.shouldstop = "time is up"

    def summary(self) -> str:
        left = self._chosen - self._started
        return f"{self._started} tests ran" + (f"; for {left} there was no time" if left else "")

    def _is_wanted(self, item: pytest.Item) -> bool:
        if item.nodeid in self._of_faults:
            return True
        engine = next(
            (name for name in ENGINES if f"[{name}" in item.nodeid or f"-{name}" in item.nodeid), ""
        )
        return not engine or engine in EMBEDDED or self._has_shared_store

    def _place(self, item: pytest.Item) -> tuple[int, int]:
        path = item.nodeid.partition("::")[0]
        rank = 0 if path in self._changed else 1 if item.nodeid in self._of_faults else 2
        return rank, layer_of(path)


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
