"""The lower end of a terminal: lines that may still change, and a status line under them.

Only what is still on the screen is ever drawn again; after a change of the terminal's size, where lines stand
is not known any more, and what was there stays as it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct

from parley.cli.output import printable
from parley.cli.showing import INDENT

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
CLEAR_BELOW = "\r\x1b[J"

Size = tuple[int, int]
"""Columns and rows."""


class Block(Struct):
    """What stands on the screen together, and how many rows it takes."""

    key: int
    text: str
    rows: int


class Screen:
    def __init__(self, write: Callable[[str], object], size: Callable[[], Size]) -> None:
        self._write = write
        self._size = size
        self._drawn_at = size()
        self._blocks: list[Block] = []
        self._status = ""

    def add(self, key: int, text: str) -> None:
        """Show something under everything else."""
        self._check_size()
        self._blocks.append(Block(key, text, self._rows(text)))
        self._forget_what_left()
        self._write(f"{CLEAR_BELOW}{text}\n{self._status_line()}")

    def change(self, key: int, text: str) -> None:
        """Show something else in its place, if it is still on the screen."""
        self._check_size()
        found = next((place for place, block in enumerate(self._blocks) if block.key == key), None)
        if found is None or self._blocks[found].text == text:
            return
        below = self._blocks[found:]
        up = sum(block.rows for block in below)
        below[0].text, below[0].rows = text, self._rows(text)
        drawn = "".join(f"{block.text}\n" for block in below)
        self._write(f"\r\x1b[{up}A{CLEAR_BELOW}{drawn}{self._status_line()}")
        self._forget_what_left()

    def show_status(self, text: str) -> None:
        """The line under everything: it is never part of what scrolls away."""
        if text != self._status:
            self._status = text
            self._write(f"{CLEAR_BELOW}{self._status_line()}")

    def beside(self, text: str, more: str) -> str:
        """More behind a text; under it, where the end of the row would break it."""
        self._check_size()
        last = _cells(ESCAPES.sub("", text.rpartition("\n")[2])) % max(1, self._drawn_at[0])
        fits = last + 2 + _cells(ESCAPES.sub("", more)) <= self._drawn_at[0]
        return f"{text}  {more}" if fits else f"{text}\n{INDENT}{more}"

    def remark(self, text: str) -> None:
        """A line that never changes."""
        self.add(-1, printable(text))

    def close(self) -> None:
        self._write(CLEAR_BELOW)

    def _status_line(self) -> str:
        """One row at most: where a second one would begin cannot be told."""
        return f"\x1b[2m{cut(self._status, self._drawn_at[0] - 1)}\x1b[0m" if self._status else ""

    def _rows(self, text: str) -> int:
        columns = max(1, self._drawn_at[0])
        widths = (_cells(ESCAPES.sub("", line)) for line in text.split("\n"))
        return sum(max(1, -(-width // columns)) for width in widths)

    def _check_size(self) -> None:
        size = self._size()
        if size != self._drawn_at:
            self._drawn_at = size
            self._blocks.clear()

    def _forget_what_left(self) -> None:
        """What scrolled off the top cannot be reached."""
        room = self._drawn_at[1] - 1
        while self._blocks and sum(block.rows for block in self._blocks) > room:
            del self._blocks[0]


def cut(text: str, columns: int) -> str:
    """So much of it as fits."""
    while text and _cells(text) > columns:
        text = text[:-1]
    return text


def _cells(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)
