"""The report: a table for people and JSON for programs."""

from __future__ import annotations

import datetime as dt
import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from bench.rows import Row
from bench.targets import NO_TARGET, PEERS_SOURCE, TARGETS, verdicts

TABLE_CHARS = 150
HEADINGS = (
    "what",
    "measured",
    "CPU µs",
    "p50 / p99 ms",
    "batch",
    "generator",
    "target",
    "best peer",
    "verdict",
)


def print_ceilings(rows: Iterable[Row]) -> None:
    table = Table(title="ceilings of this machine, in this run", title_justify="left")
    for heading in ("what", "measured", "CPU µs", "p50 / p99 ms", "batch", "generator"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for row in rows:
        table.add_row(*_figures(row))
    _console().print(table)


def print_rows(rows: Iterable[Row], pinned: bool) -> None:
    where = "server on one core, generator on the other" if pinned else "both on all cores"
    table = Table(title=f"Parley, {where}", title_justify="left", show_lines=True)
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading in ("what", "best peer") else "right")
    rows = list(rows)
    for row in rows:
        target = TARGETS.get(row.name, NO_TARGET)
        goals = "\n".join(map(str, target.goals))
        table.add_row(*_figures(row), goals, target.best_peer, _verdict(row))
    console = _console()
    console.print(table)
    if any(TARGETS.get(row.name, NO_TARGET).best_peer for row in rows):
        console.print(f"Peers: {PEERS_SOURCE}.", highlight=False)
    for row in rows:
        for note in row.notes:
            console.print(f"{row.label}: {note}", highlight=False)


def _console() -> Console:
    """As wide as the table needs, unless a terminal has another width."""
    console = Console()
    return console if console.is_terminal else Console(width=TABLE_CHARS)


def _figures(row: Row) -> list[str]:
    return [
        row.label,
        f"{shown(row.value)} {row.unit}",
        "" if row.cpu_us is None else f"{row.cpu_us:.3g}",
        "" if row.p50_ms is None or row.p99_ms is None else f"{row.p50_ms:.3g} / {row.p99_ms:.3g}",
        "" if row.batch is None else f"{row.batch:.0f}",
        "" if row.generator_share is None else f"{row.generator_share:.0%}",
    ]


def shown(value: float) -> str:
    """A figure of a table."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _verdict(row: Row) -> str:
    words = [
        f"[green]met ×{one.ratio:.2f}[/]" if one.met else f"[red]missed ×{one.ratio:.2f}[/]"
        for one in verdicts(row)
    ]
    return "\n".join(words)


def median_of(runs: list[Row]) -> Row:
    """The median run, with the figures of the others."""
    middle = sorted(runs, key=lambda row: row.value)[(len(runs) - 1) // 2]
    return msgspec.structs.replace(middle, runs=[row.value for row in runs])


def as_json(engine: str, ceilings: list[Row], rows: list[Row], pinned: bool) -> bytes:
    report: dict[str, Any] = {
        "measured_at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "system": platform.platform(),
            "load_average": os.getloadavg(),
        },
        "engine": engine,
        "pinned": pinned,
        "ceilings": ceilings,
        "rows": [{**msgspec.structs.asdict(row), "verdicts": verdicts(row)} for row in rows],
    }
    return msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n"


def write_json(report: bytes, paths: Iterable[Path]) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(report)
