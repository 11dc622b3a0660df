"""`make bench`: runs the scenarios, prints the table, writes the JSON."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

import uvloop
from rich.console import Console

from bench import ceilings, report, scenarios
from bench.dynamodb import ceilings as shared_ceilings
from bench.dynamodb import scenarios as shared_scenarios
from bench.dynamodb.stage import SharedStage, open_services
from bench.processes import wait_until_quiet
from bench.rows import Row
from bench.server import parley_beside_python
from bench.stage import RESULTS, Stage
from ops.local_services import ServiceError
from parley.telemetry import configure_logs

ENGINES: dict[str, Mapping[str, object]] = {
    "sqlite": scenarios.SCENARIOS,
    "dynamodb": shared_scenarios.SCENARIOS,
}

S = TypeVar("S")
Play = Callable[[S], Coroutine[Any, Any, list[Row]]]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description="Measure a server on this machine.")
    parser.add_argument("--engine", choices=ENGINES, default="sqlite")
    names = "; ".join(f"{engine}: {', '.join(played)}" for engine, played in ENGINES.items())
    parser.add_argument("--only", default="", help=f"comma-separated scenarios. {names}")
    parser.add_argument("--json", type=Path, help="also write the results here")
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes, less exact")
    parser.add_argument("--repeat", type=int, default=1, help="play each this often and show the median")
    parser.add_argument(
        "--patience", type=float, default=0, help="seconds to wait for quiet and to play disturbed runs again"
    )
    parser.add_argument("--both-cores", action="store_true", help="pin neither server nor generator")
    parser.add_argument("--parley", type=Path, default=parley_beside_python(), help="the command to measure")
    options = parser.parse_args()
    played = ENGINES[options.engine]
    options.names = [name for name in options.only.split(",") if name] or list(played)
    unknown = [name for name in options.names if name not in played]
    if unknown:
        parser.error(f"there is no scenario {', '.join(unknown)}; there are {', '.join(played)}")
    return options


def pin_generator(both_cores: bool) -> set[int]:
    """Keep this process off the server's core. Returns the server's cores."""
    cores = os.sched_getaffinity(0)
    if both_cores or len(cores) < 2:
        return cores
    first, *others = sorted(cores)
    os.sched_setaffinity(0, others[:1])
    return {first}


def play(scenario: Play[S], stage: S, repeat: int, patience_seconds: float) -> list[Row]:
    """The median of several runs for every row of a scenario; disturbed runs are repeated."""
    runs: list[list[Row]] = []
    deadline = time.perf_counter() + patience_seconds
    while len(runs) < repeat:
        wait_until_quiet(deadline - time.perf_counter())
        rows = uvloop.run(scenario(stage))
        gc.collect()
        if time.perf_counter() > deadline or not any(row.was_disturbed for row in rows):
            runs.append(rows)
    return [report.median_of(list(same)) for same in zip(*runs, strict=True)]


def play_all(
    options: argparse.Namespace, said: Console, stage: S, ceiling: Play[S], played: Mapping[str, Play[S]]
) -> tuple[list[Row], list[Row]]:
    """The ceilings, and the rows of the chosen scenarios."""
    said.print("measuring the ceilings …")
    limits = uvloop.run(ceiling(stage))
    rows: list[Row] = []
    for name in options.names:
        said.print(f"playing {name} …")
        rows += play(played[name], stage, options.repeat, options.patience)
    return limits, rows


def play_engine(options: argparse.Namespace, said: Console) -> tuple[list[Row], list[Row]]:
    if options.engine == "sqlite":
        stage = Stage(options.parley, pin_generator(options.both_cores), options.quick)
        return play_all(options, said, stage, ceilings.measure_ceilings, scenarios.SCENARIOS)
    with open_services(options.parley, said.print) as (services, folder):
        cores = pin_generator(options.both_cores)
        shared = SharedStage(options.parley, cores, options.quick, services, folder)
        return play_all(options, said, shared, shared_ceilings.measure_ceilings, shared_scenarios.SCENARIOS)


def main() -> int:
    options = parse()
    configure_logs("warning")
    # Garbage collection would pause the generator at arbitrary moments.
    gc.disable()
    said = Console(stderr=True)
    pinned = not options.both_cores
    try:
        limits, rows = play_engine(options, said)
    except ServiceError as error:
        said.print(str(error))
        return 1
    report.print_ceilings(limits)
    report.print_rows(rows, pinned)
    written = report.as_json(options.engine, limits, rows, pinned)
    latest = RESULTS / ("latest.json" if options.engine == "sqlite" else f"latest-{options.engine}.json")
    report.write_json(written, [latest, *([options.json] if options.json else [])])
    return 0


if __name__ == "__main__":
    sys.exit(main())
