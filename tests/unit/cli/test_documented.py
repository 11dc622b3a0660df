"""The commands that README and the pages for operators show are ones that `parley` takes."""

import re
import shlex
from collections.abc import Iterator

import pytest
import typer.main

from parley.cli.commands import app
from tests.tidy.repository import ROOT

CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^(?:runuser -u parley -- )?(?:\S*/)?parley (.*)$")
SHELL_OF_A_NODE = [
    'export PATH="$PWD/.venv/bin:$PATH"',
    "set -a; . data/services/services.env; PARLEY_STORE_ENGINE=dynamodb; set +a",
]


def lines_of(block: str) -> list[str]:
    """What somebody types, without prompts and remarks."""
    typed = [line[2:] for line in block.splitlines() if line.startswith(("$ ", "# "))]
    return [re.sub(r"\s{2,}#.*$", "", line) for line in typed]


def shown(page: str) -> Iterator[str]:
    for block in CONSOLE.findall((ROOT / page).read_text(encoding="utf-8")):
        for line in lines_of(block):
            found = COMMAND.search(line.split(" && ")[-1])
            if found is not None:
                yield found[1].strip()


PAGES = ("README.md", *(f"docs/{page}.md" for page in ("install", "expose", "OPERATING", "runbooks")))


@pytest.mark.parametrize("command", [command for page in PAGES for command in shown(page)])
def test_a_command_of_the_docs_is_understood(command: str) -> None:
    """Every word of it is a command, an argument or an option that exists."""
    words = shlex.split(command, comments=True)
    found = typer.main.get_command(app)
    while hasattr(found, "commands"):
        default = getattr(found, "default_command", None)
        is_named = words[0] in found.commands or default is None
        found = found.commands[words.pop(0) if is_named else default]
    found.make_context(command, words)


def test_every_terminal_of_many_machines_is_complete() -> None:
    """Each one that runs `parley` first says where it is and where the services are."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.split("## On many machines")[1].split("\n## ")[0]
    terminals = [lines_of(block) for block in CONSOLE.findall(section)]
    assert len(terminals) == 4
    for typed in terminals:
        before = typed[: next(at for at, line in enumerate(typed) if line.startswith("parley "))]
        assert [line for line in before if not line.startswith("make ")] == SHELL_OF_A_NODE


def test_people_of_both_nodes_talk() -> None:
    """A message is sent to one node while somebody follows the chat at another."""
    commands = [command for command in shown("README.md") if "--url" in command]
    ports = {command.split()[0]: re.findall(r":(\d+)", command)[0] for command in reversed(commands)}
    assert (ports["send"], ports["tail"]) == ("8081", "8082")
