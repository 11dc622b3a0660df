"""What stands on a terminal while lines and the status under them change."""

import pytest

from parley.cli.screen import Screen, cut
from tests.unit.cli.terminal import Terminal


def screen(columns: int = 20, rows: int = 6) -> tuple[Screen, Terminal]:
    terminal = Terminal(columns, rows)
    return Screen(terminal.write, terminal.size), terminal


def test_lines_stand_above_the_status() -> None:
    """The status is at the bottom, wherever that is."""
    shown, terminal = screen()
    shown.add(1, "one")
    shown.show_status("ada is typing…")
    shown.add(2, "two")
    assert terminal.text == ["one", "two", "ada is typing…"]
    shown.show_status("")
    assert terminal.text == ["one", "two", ""]


def test_a_line_changes_where_it_stands() -> None:
    """What is under it stays as it is, also when it gets longer than a row."""
    shown, terminal = screen()
    for number, text in enumerate(["one", "two", "three"]):
        shown.add(number, text)
    shown.show_status("status")
    shown.change(1, "two ✓✓")
    assert terminal.text == ["one", "two ✓✓", "three", "status"]
    shown.change(1, "two ✓✓ read by 2 of 3, all but one")
    assert terminal.text == ["one", "two ✓✓ read by 2 of", "3, all but one", "three", "status"]
    shown.change(1, "two")
    assert terminal.text == ["one", "two", "three", "status"]


@pytest.mark.parametrize("text", ["x" * 20, "x" * 41, "日" * 15, "two\nlines", "\x1b[2mdim\x1b[0m" * 6])
def test_rows_are_counted_as_the_terminal_does(text: str) -> None:
    """Long, wide, several and coloured lines all take the rows that they take."""
    shown, terminal = screen(rows=12)
    shown.add(1, "first")
    shown.add(2, text)
    before = terminal.text[1:]
    shown.change(1, "changed")
    assert terminal.text == ["changed", *before]


def test_what_scrolled_away_stays() -> None:
    """Nothing is drawn over what a person cannot see."""
    shown, terminal = screen(rows=4)
    for number in range(10):
        shown.add(number, f"line {number}")
    shown.show_status("status")
    shown.change(5, "changed")
    shown.change(7, "seven")
    assert terminal.text == [*(f"line {n}" for n in range(7)), "seven", "line 8", "line 9", "status"]


def test_another_size_leaves_everything_where_it_is() -> None:
    """Nobody knows where lines stand then; new ones work as ever."""
    shown, terminal = screen()
    shown.add(1, "one")
    terminal.columns = 10
    shown.change(1, "changed")
    shown.add(2, "two")
    shown.change(2, "two ✓")
    assert terminal.text == ["one", "two ✓", ""]


def test_the_status_never_takes_a_second_row() -> None:
    """It is cut to what fits, and wide letters count twice."""
    shown, terminal = screen(columns=10)
    shown.show_status("a very long status")
    shown.add(1, "one")
    assert terminal.text == ["one", "a very lo"]
    assert cut("日本語です", 5) == "日本"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x" * 15, "x" * 15 + "  ✓✓"),
        ("x" * 17, "x" * 17 + "\n          ✓✓"),
        ("x" * 35, "x" * 35 + "  ✓✓"),
        ("x" * 19 + "\ny", "x" * 19 + "\ny  ✓✓"),
    ],
)
def test_ticks_are_not_broken(text: str, shown: str) -> None:
    """They stand behind a text, or under it."""
    assert screen()[0].beside(text, "✓✓") == shown


def test_remarks_and_the_end() -> None:
    """A remark is a line without anything that could steer the terminal; at the end the status is gone."""
    shown, terminal = screen(columns=40)
    shown.show_status("status")
    shown.remark("the connection broke\x1b[2J")
    shown.close()
    assert terminal.text == ["the connection broke\\x1b[2J", ""]
