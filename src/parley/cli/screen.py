"""The lower end of a terminal: lines that may still change, and a status line below them.

Only lines that are still on the screen are redrawn. After a change of the terminal's size the positions of
lines are unknown, and older lines stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct

from parley.cli.display import INDENT
from parley.cli.output import printable

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
CLEAR_BELOW = "\r\x1b[J"

Size = tuple[int, int]
"""Columns and rows."""


class Block(Struct):
    """Text that is drawn together, and how many rows it takes."""

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
        """Show a block below everything else."""
        self._check_size()
        self._blocks.append(Block(key, text, self._rows(text)))
        self._forget_scrolled()
        self._write(f"{CLEAR_BELOW}{text}\n{self._status_line()}")

    def change(self, key: int, text: str) -> None:
        """Replace a block, if it is still on the screen."""
        self._check_size()
        found = next((place for place, block in enumerate(self._blocks) if block.key == key), None)
        if found is None or self._blocks[found].text == text:
            return
        below = self._blocks[found:]
        up = sum(block.rows for block in below)
        below[0].text, below[0].rows = text, self._rows(text)
        drawn = "".join(f"{block.text}\n" for block in below)
        self._write(f"\r\x1b[{up}A{CLEAR_BELOW}{drawn}{self._status_line()}")
        self._forget_scrolled()

    def show_status(self, text: str) -> None:
        """Set the status line, which is always the last one."""
        if text != self._status:
            self._status = text
            self._write(f"{CLEAR_BELOW}{self._status_line()}")

    def beside(self, text: str, more: str) -> str:
        """Put `more` after a text, or below it if it does not fit into the row."""
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
        """One row at most: it is unknown where a second one would begin."""
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

    def _forget_scrolled(self) -> None:
        """Forget blocks that scrolled off the top: they cannot be redrawn."""
        room = self._drawn_at[1] - 1
        while self._blocks and sum(block.rows for block in self._blocks) > room:
            del self._blocks[0]


def cut(text: str, columns: int) -> str:
    """As much of it as fits."""
    while text and _cells(text) > columns:
        text = text[:-1]
    return text


def _cells(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)
