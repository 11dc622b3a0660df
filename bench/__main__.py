"""`make bench`: play the scenarios, print the table, write the JSON."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from pathlib import Path

import uvloop
from rich.console import Console

from bench import report
from bench.ceilings import measure_ceilings
from bench.processes import wait_until_quiet
from bench.rows import Row
from bench.scenarios import SCENARIOS
from bench.server import parley_beside_python
from bench.stage import RESULTS, Stage
from parley.telemetry import configure_logs

ENGINES = ("sqlite",)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description="Measure a server on this machine.")
    parser.add_argument("--engine", choices=ENGINES, default=ENGINES[0])
    parser.add_argument("--only", default="", help="comma-separated scenarios: " + ", ".join(SCENARIOS))
    parser.add_argument("--json", type=Path, help="also write the results here")
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes, less exact")
    parser.add_argument("--repeat", type=int, default=1, help="play each this often and show the median")
    parser.add_argument(
        "--patience", type=float, default=0, help="seconds to wait for quiet and to play disturbed runs again"
    )
    parser.add_argument("--both-cores", action="store_true", help="pin neither server nor generator")
    parser.add_argument("--parley", type=Path, default=parley_beside_python(), help="the command to measure")
    options = parser.parse_args()
    options.names = [name for name in options.only.split(",") if name] or list(SCENARIOS)
    unknown = [name for name in options.names if name not in SCENARIOS]
    if unknown:
        parser.error(f"there is no scenario {', '.join(unknown)}; there are {', '.join(SCENARIOS)}")
    return options


def pin_generator(both_cores: bool) -> set[int]:
    """Keep this process off the server's core; returns the server's."""
    cores = os.sched_getaffinity(0)
    if both_cores or len(cores) < 2:
        return cores
    first, *others = sorted(cores)
    os.sched_setaffinity(0, others[:1])
    return {first}


def play(name: str, stage: Stage, repeat: int, patience_seconds: float) -> list[Row]:
    """The median of several runs for every row of a scenario; disturbed ones are played again."""
    runs: list[list[Row]] = []
    deadline = time.perf_counter() + patience_seconds
    while len(runs) < repeat:
        wait_until_quiet(deadline - time.perf_counter())
        rows = uvloop.run(SCENARIOS[name](stage))
        gc.collect()
        if time.perf_counter() > deadline or not any(row.was_disturbed for row in rows):
            runs.append(rows)
    return [report.median_of(list(same)) for same in zip(*runs, strict=True)]


def main() -> int:
    options = parse()
    configure_logs("warning")
    # The collector would stop the generator at moments that have nothing to do with the server.
    gc.disable()
    server_cores = pin_generator(options.both_cores)
    stage = Stage(options.parley, server_cores, options.quick)
    said = Console(stderr=True)
    said.print("measuring the ceilings …")
    ceilings = uvloop.run(measure_ceilings(stage))
    rows: list[Row] = []
    for name in options.names:
        said.print(f"playing {name} …")
        rows += play(name, stage, options.repeat, options.patience)
    report.print_ceilings(ceilings)
    report.print_rows(rows, pinned=not options.both_cores)
    written = report.as_json(ceilings, rows, pinned=not options.both_cores)
    report.write_json(written, [RESULTS / "latest.json", *([options.json] if options.json else [])])
    return 0


if __name__ == "__main__":
    sys.exit(main())
