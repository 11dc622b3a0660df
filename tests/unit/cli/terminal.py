"""A small terminal: enough of one to see what a person would see."""

import re

from rich.cells import cell_len

TOKEN = re.compile(r"\x1b\[([0-9;]*)([A-Za-z])|([\s\S])")


class Terminal:
    """Letters go to the cursor; a full row wraps when the next letter comes; the bottom scrolls."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns = columns
        self.rows = rows
        self._lines: list[list[str]] = [[]]
        self._row = 0
        self._column = 0

    def size(self) -> tuple[int, int]:
        return self.columns, self.rows

    def write(self, text: str) -> None:
        for match in TOKEN.finditer(text):
            number, command, letter = match.groups()
            if letter is not None:
                self._put(letter)
            elif command == "A":
                self._row = max(self._top, self._row - int(number))
            elif command == "J":
                del self._lines[self._row + 1 :]
                del self._lines[self._row][self._column :]
            else:
                assert command == "m", f"the terminal does not know {match.group()!r}"

    @property
    def text(self) -> list[str]:
        """Everything that was ever shown and is still there, also what scrolled away."""
        return ["".join(line).rstrip() for line in self._lines]

    @property
    def _top(self) -> int:
        """The first row on the screen: no cursor gets above it."""
        return max(0, len(self._lines) - self.rows)

    def _put(self, letter: str) -> None:
        if letter == "\r":
            self._column = 0
        elif letter == "\n":
            self._next_row()
        else:
            width = cell_len(letter)
            if self._column + width > self.columns:
                self._next_row()
            self._lines[self._row][self._column : self._column + width] = [letter, *([""] * (width - 1))]
            self._column += width

    def _next_row(self) -> None:
        self._row += 1
        self._column = 0
        if self._row == len(self._lines):
            self._lines.append([])
