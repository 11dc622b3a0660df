"""The output of commands: data to stdout, as text or JSON; remarks to stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

ZERO_WIDTH_JOINER = "\u200d"
"""Not printable by itself, and part of many emoji."""


def printable(text: str, *, keep_lines: bool = False) -> str:
    """Other people's text, safe for a terminal: control characters become escapes."""
    return "".join(
        char
        if char.isprintable() or char == ZERO_WIDTH_JOINER or (keep_lines and char == "\n")
        else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def print_json(value: Any) -> None:
    """One JSON value: on one line for programs, indented for a person."""
    data = msgspec.json.encode(value)
    if sys.stdout.isatty():
        data = msgspec.json.format(data, indent=2)
    print(data.decode())


def print_json_line(value: Any) -> None:
    """One JSON value of a stream, flushed at once."""
    print(msgspec.json.encode(value).decode(), flush=True)


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns under headings; never cut, whatever the width."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    for row in rows:
        table.add_row(*(Text("" if cell is None else printable(str(cell))) for cell in row))
    console = Console(highlight=False)
    console.width = max(console.width, console.measure(table, options=_unbounded(console)).maximum)
    console.print(table, crop=False, soft_wrap=True)


def _unbounded(console: Any) -> Any:
    return console.options.update(width=10_000, max_width=10_000)


def note(text: str) -> None:
    """A remark for the user."""
    print(text, file=sys.stderr)


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
