"""The list of faults, for people: FAULTS.md."""

from pathlib import Path

from tests.mutants.faults import PROMISES, Fault, promise_of, promises_in

PAGE = Path(__file__).with_name("FAULTS.md")
INTRODUCTION = """\
# Faults that are planted

`make mutants` breaks the code on purpose, one fault at a time, in a copy of the tree, and runs the test that
must notice: every fault below is caught. Each is tied to one of the
[promises](../../docs/promises.md). The list is
[data](faults.jsonl), one line a fault; a fault that no longer fits the code fails
`make test`. `.venv/bin/python -m tests.mutants --only hub` tries some of them, `--list` shows them all, and
`make docs` renews this page.
"""
HEADER = "| fault | what is wrong then | caught by |\n|---|---|---|\n"


def render(faults: list[Fault]) -> str:
    """The page: per promise its faults, and what catches each."""
    parts = [INTRODUCTION]
    promises = promises_in(PROMISES.read_text(encoding="utf-8"))
    for promise in promises:
        rows = [_row(one) for one in faults if promise_of(one, promises) == promise]
        if rows:
            parts.append(f"## {promise}\n\n{HEADER}{''.join(rows)}")
    return "\n".join(parts)


def _row(fault: Fault) -> str:
    path, _, name = fault.test.partition("::")
    name = name.replace("|", "\\|")
    link = path.removeprefix("tests/") if path.startswith("tests/") else f"../{path}"
    return f"| `{fault.id}` | {fault.says} | [`{name}`](../{link}) |\n"
