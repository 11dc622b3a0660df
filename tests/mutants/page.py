"""The table of a run, for people: printed at its end, and kept in FAULTS.md."""

import re
from pathlib import Path

from tests.mutants.faults import PROMISES, Fault, promise_of, promises_in

PAGE = Path(__file__).with_name("FAULTS.md")
INTRODUCTION = """\
# Faults that are planted

`make mutants` breaks the code on purpose, one fault at a time, in a copy of the tree, and runs the test that
must notice: every fault below is caught. Each is tied to one of the
[promises](../../docs/promises.md). The list is
[data](faults.jsonl), one line a fault; a fault that no longer fits the code fails
`make test`. `.venv/bin/python -m tests.mutants --only hub` tries some of them, `--list` shows them all and
`--write` renews this page. The seconds are those of the test alone, until it failed, on two busy cores.
"""
HEADER = "| fault | what is wrong then | caught by | seconds |\n|---|---|---|---|\n"
LINE = re.compile(r"^\| `(?P<id>[^`]+)` \|.*\| (?P<seconds>[\d.]+) \|$", re.MULTILINE)


def render(faults: list[Fault], seconds: dict[str, float]) -> str:
    """The page: per promise its faults, and what catches each how fast."""
    parts = [INTRODUCTION]
    promises = promises_in(PROMISES.read_text(encoding="utf-8"))
    for promise in promises:
        rows = [_row(one, seconds[one.id]) for one in faults if promise_of(one, promises) == promise]
        if rows:
            parts.append(f"## {promise}\n\n{HEADER}{''.join(rows)}")
    return "\n".join(parts)


def _row(fault: Fault, seconds: float) -> str:
    path, _, name = fault.test.partition("::")
    name = name.replace("|", "\\|")
    return f"| `{fault.id}` | {fault.says} | [`{name}`](../{path.removeprefix('tests/')}) | {seconds:.1f} |\n"


def seconds_on(page: str) -> dict[str, float]:
    """What a page says of each fault that it lists."""
    return {found["id"]: float(found["seconds"]) for found in LINE.finditer(page)}
