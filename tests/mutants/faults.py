"""The list of faults, and what must be true of each before anything is run.

`faults.jsonl` holds one fault a line: `old` stands exactly once in `file` and is replaced by `new`; then
`test` must fail, because `promise`, a row of docs/promises.md, no longer holds. `says` tells the fault in
words. `raises` names the error that the test ends with, where that is neither an assertion nor one of
Parley's own. A fault of the SDK in TypeScript is caught by a test of Vitest: its file, and its title.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("faults.jsonl")
ROW = re.compile(r"^\| (?!promise \|)(?P<promise>[^|]+?) \| .*\|$")
PROMISES = ROOT / "docs" / "promises.md"
FAULTS_MIN = 80


class Fault(Struct, forbid_unknown_fields=True):
    """`promise`: the beginning of a row's first cell; `test`: a node id of pytest, or `file::title`."""

    id: str
    promise: str
    says: str
    file: str
    old: str
    new: str
    test: str
    raises: str = ""

    @property
    def is_in_typescript(self) -> bool:
        """Whether Vitest runs its test."""
        return self.test.partition("::")[0].endswith((".test.ts", ".test.tsx"))

    def planted_in(self, source: str) -> str:
        """The file's text with the fault in it."""
        return source.replace(self.old, self.new, 1)


def read_faults(text: str) -> list[Fault]:
    lines = [line for line in text.splitlines() if line.strip()]
    return [msgspec.json.decode(line, type=Fault) for line in lines]


def all_faults() -> list[Fault]:
    return read_faults(LIST.read_text(encoding="utf-8"))


def faults_of_pytest() -> list[Fault]:
    return [fault for fault in all_faults() if not fault.is_in_typescript]


def promises_in(page: str) -> list[str]:
    """The first cells of the table of promises."""
    return [found["promise"] for line in page.splitlines() if (found := ROW.match(line))]


def promise_of(fault: Fault, promises: list[str]) -> str | None:
    """The row that a fault breaches; None when its words begin no row, or several."""
    rows = [promise for promise in promises if promise.startswith(fault.promise)]
    return rows[0] if len(rows) == 1 else None


def problems_of(fault: Fault, promises: list[str], root: Path = ROOT) -> Iterator[str]:
    """Why a fault cannot be planted any more, in words that say what to do."""
    if promise_of(fault, promises) is None:
        yield f"no promise (or more than one) begins with {fault.promise!r}"
    yield from _problems_of_text(fault, root)
    path, _, name = fault.test.partition("::")
    if not (root / path).is_file():
        yield f"its test is in {path}, which does not exist"
    elif fault.is_in_typescript:
        if (root / path).read_text(encoding="utf-8").count(f'test("{name}"') != 1:
            yield f"its test is {name!r}, which is not in {path}, or twice"
    elif re.sub(r"\[.*", "", name.rpartition("::")[2]) not in _functions(root / path):
        yield f"its test is {name}, which is not in {path}"


def _problems_of_text(fault: Fault, root: Path) -> Iterator[str]:
    path = root / fault.file
    if not path.is_file():
        yield f"{fault.file} does not exist"
        return
    source = path.read_text(encoding="utf-8")
    count = source.count(fault.old)
    if count != 1:
        found = "is not there any more" if not count else f"is there {count} times"
        yield f"its `old` text {found} in {fault.file}; adapt it to the code of today: {fault.old!r}"
        return
    if path.suffix != ".py":
        return
    try:
        compile(fault.planted_in(source), fault.file, "exec")
    except SyntaxError as error:
        yield f"{fault.file} does not compile with it: {error}"


@cache
def _functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
