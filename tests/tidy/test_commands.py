"""Rule: a command that a page shows is one that `parley` or the Makefile has, with its options."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import typer.main

from parley.cli.commands import app
from tests.tidy.prose import SPAN
from tests.tidy.repository import ROOT, Breach, Source, assert_none, texts
from tests.tidy.test_verbs import verbs_of

CONSOLE = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"(?:^|[\s;&|(])(?:\S*/)?(parley|make) +([a-z][^#;&|)\n]*)")
ANY = ("--help", "-h")
GOES_ON = "bench"
"""What stands behind it goes to another program."""


def wrong_commands(page: Source) -> Iterator[Breach]:
    """Commands of a page, between backticks or at a prompt, that do not exist."""
    for start, text in _shown(page.text):
        for found in COMMAND.finditer(text):
            wrong = wrong_verb(found[2]) if found[1] == "make" else wrong_word(found[2])
            if wrong:
                line = page.text.count("\n", 0, start + found.start(1)) + 1
                yield page.breach(line, f"{found[1]} has no {wrong}")


def _shown(text: str) -> Iterator[tuple[int, str]]:
    """What stands between backticks and starts with a command, and what is typed at a prompt."""
    for block in CONSOLE.finditer(text):
        for typed in re.finditer(r"^\$ (.*)$", block[1], re.MULTILINE):
            yield block.start(1) + typed.start(1), typed[1].partition(" #")[0]
    for span in SPAN.finditer(text):
        if re.match(r"(\S*/)?(parley|make) ", span[1]):
            yield span.start(1), span[1].replace("\n", " ")


def wrong_verb(words: str) -> str | None:
    verb = words.split()[0]
    return None if verb in make_verbs() else verb


@cache
def make_verbs() -> set[str]:
    return verbs_of((ROOT / "Makefile").read_text("utf-8"))


@cache
def parley() -> Any:
    return typer.main.get_command(app)


def wrong_word(words: str) -> str | None:
    """The first word that is no command, or no option of the command."""
    command = parley()
    for word in words.split():
        if hasattr(command, "commands"):
            if word in ("…", *ANY):
                return None
            if word in command.commands:
                command = command.commands[word]
                continue
            if not hasattr(command, "default_command"):
                return word
            command = command.commands[command.default_command]
        if command.name == GOES_ON:
            return None
        if command.name == GOES_ON:
            return None
        if word.startswith("-") and word != "-" and not _takes(command, word):
            return word
    return None


def _takes(command: Any, word: str) -> bool:
    options = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
    return word.partition("=")[0] in {*options, *ANY}


def test_commands_of_pages_exist() -> None:
    """Every command and option that a page shows can be typed."""
    breaches = [breach for page in texts(".md") for breach in wrong_commands(page)]
    assert_none(breaches, "show what there is")


@pytest.mark.parametrize(
    "text",
    [
        "`parley sing`",
        "`parley user sing`",
        "`parley tail Tea --sing`",
        "`parley token ann --sing`",
        "`parley user invite list --sing`",
        "`make sing`",
        "```console\n$ .venv/bin/parley serve --sing\n```",
        "```console\n$ sleep 1; parley sing\n```",
        "```console\n$ parley check && make sing\n```",
    ],
)
def test_a_command_that_is_none_is_caught(text: str) -> None:
    """A verb or an option that nothing has is a breach."""
    assert list(wrong_commands(Source("page.md", text)))


@pytest.mark.parametrize(
    "text",
    [
        "`parley tail Tea --as ada`",
        "`parley user …`",
        "`parley token ann --api`",
        "`parley user invite --uses 3`",
        "`parley bench --only hops`",
        "`make bench ENGINE=dynamodb`",
        "we make do, and parley well",
        "```console\n$ parley serve --data X   # then parley sings\nparley ready\n```",
    ],
)
def test_a_command_that_is_one_passes(text: str) -> None:
    """Commands with their arguments, comments, and what a program prints are no breach."""
    assert not list(wrong_commands(Source("page.md", text)))
