"""`python -m bench.against TREE`: the same scenarios in this tree and in another one, in turns.

One run tells little: the machine's speed changes from minute to minute. Here each turn plays both trees, in
changing order, each with its own `bench`, and what is compared are the ratios within a turn.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from bench.report import TABLE_CHARS, shown

HERE = Path(__file__).resolve().parent.parent


class Figures(Struct):
    """A row of a run, as `--json` writes it."""

    name: str
    unit: str
    value: float
    cpu_us: float | None = None


class Run(Struct):
    rows: list[Figures]


Turn = tuple[Mapping[str, Figures], Mapping[str, Figures]]
"""The rows of the other tree and of this one, by name."""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.against", description="Compare two trees, in turns.")
    parser.add_argument("tree", type=Path, help="another checkout, in which `make setup` was run")
    parser.add_argument("--only", default="", help="comma-separated scenarios; both trees must have them")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--full", action="store_true", help="full runs instead of quick ones")
    return parser.parse_args()


def play(tree: Path, only: str, is_full: bool) -> dict[str, Figures]:
    """One run of a tree's own bench."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "run.json"
        command = [str(tree / ".venv/bin/python"), "-m", "bench", "--json", str(written)]
        command += [] if is_full else ["--quick"]
        command += ["--only", only] if only else []
        subprocess.run(command, cwd=tree, check=True, capture_output=True)
        return {row.name: row for row in msgspec.json.decode(written.read_bytes(), type=Run).rows}


def ratios(turns: list[Turn], name: str, figure: str) -> list[float]:
    """This tree's figure against the other's, for each turn that has both."""
    pairs = [(getattr(other[name], figure), getattr(here[name], figure)) for other, here in turns]
    return [mine / theirs for theirs, mine in pairs if mine and theirs]


def spread(found: list[float]) -> str:
    """The median, and the quartiles around it."""
    if len(found) < 2:
        return f"{found[0]:.3f}" if found else ""
    low, middle, high = statistics.quantiles(found, n=4)
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def table_of(turns: list[Turn]) -> Table:
    table = Table("row", "unit", "before", "now", "now / before", "CPU now / before")
    for name in (
        name for name in turns[0][0] if all(name in other and name in here for other, here in turns)
    ):
        medians = [statistics.median(run[name].value for run in runs) for runs in zip(*turns, strict=True)]
        figures = spread(ratios(turns, name, "value")), spread(ratios(turns, name, "cpu_us"))
        table.add_row(name, turns[0][1][name].unit, *map(shown, medians), *figures)
    return table


def main() -> int:
    options = parse()
    said = Console(stderr=True)
    turns: list[Turn] = []
    for number in range(options.turns):
        trees = (options.tree.resolve(), HERE)
        runs = {}
        for tree in trees if number % 2 else trees[::-1]:
            said.print(f"turn {number + 1} of {options.turns}: {tree} …")
            runs[tree] = play(tree, options.only, options.full)
        turns.append((runs[trees[0]], runs[trees[1]]))
        Console(width=TABLE_CHARS).print(table_of(turns))  # after each: a long comparison may be cut off
    return 0


if __name__ == "__main__":
    sys.exit(main())
