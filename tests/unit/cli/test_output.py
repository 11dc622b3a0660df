"""What commands print."""

import pytest

from parley.cli.output import plural, print_json, print_table, printable
from parley.cli.problems import explain
from parley.errors import NOT_FOUND, Refused, StoreBusy


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, größer, 茶, 🍵", "plain, größer, 茶, 🍵"),
        ("family 👩‍👧", "family 👩‍👧"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("bell\a and tab\t", "bell\\x07 and tab\\t"),
        ("\u202eright to left", "\\u202eright to left"),
        ("\x9b31m", "\\x9b31m"),
    ],
)
def test_nothing_steers_the_terminal(text: str, shown: str) -> None:
    """Letters of every script pass; what controls a terminal or turns text around is spelled out."""
    assert printable(text) == shown


def test_lines_are_kept_when_asked() -> None:
    """A message may have lines, a table's cell may not."""
    assert printable("a\nb", keep_lines=True) == "a\nb"
    assert printable("a\nb") == "a\\nb"


def test_a_table_is_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    """Cells are whole however narrow the terminal, and markup in them is text."""
    print_table(["ID", "TITLE"], [("x" * 300, "[red]tea[/red]"), (None, 7)])
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[1] == "x" * 300 + "  [red]tea[/red]"
    assert lines[2].split() == ["7"]


def test_json_is_one_line_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal a value is one line."""
    print_json({"a": [1, 2]})
    assert capsys.readouterr().out == '{"a":[1,2]}\n'


def test_numbers_agree_with_their_noun() -> None:
    """One chat, two chats."""
    assert [plural(count, "chat") for count in (0, 1, 1200)] == ["0 chats", "1 chat", "1,200 chats"]


@pytest.mark.parametrize(
    ("problem", "says"),
    [
        (Refused(NOT_FOUND), "there is nothing here, or it is not yours to see (not_found)"),
        (OSError(5, "Input/output error", "/data"), "/data cannot be used: Input/output error"),
        (StoreBusy("another program holds the lock"), "another program holds the lock"),
        (KeyError(), "KeyError"),
        ("just words", "just words"),
    ],
)
def test_a_problem_is_told_in_words(problem: BaseException | str, says: str) -> None:
    """Refusals, system errors and our own errors all become a sentence."""
    assert explain(problem) == says
