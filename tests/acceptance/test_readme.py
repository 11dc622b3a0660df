"""The README's program, run as it stands there."""

import re
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from tests.harness.server import ServerProcess, parley_command, run_parley
from tests.tidy.repository import ROOT
from tests.waiting import stretched

PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
KILL_AT = "number 60 "


def program(url: str) -> str:
    """The one Python block of the README, for this server and without its pauses."""
    (block,) = PYTHON_BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert "http://127.0.0.1:8080" in block
    return str(block).replace("http://127.0.0.1:8080", url).replace("sleep(0.05)", "sleep(0)")


def prepare(server: ServerProcess) -> None:
    """The tour's people and chat, by the tour's commands."""
    for name in ("ada", "bob"):
        command = [*parley_command(), "user", "add", name, "--password-stdin", "--data", str(server.data)]
        subprocess.run(
            command, input="tea\n", text=True, check=True, capture_output=True, timeout=stretched(30)
        )
    made = run_parley("chat", "create", "bob", "--as", "ada", "--title", "Tea", "--data", str(server.data))
    assert made.returncode == 0, made.stderr


def read_until(stream: IO[str], beginning: str) -> None:
    for line in stream:
        if line.startswith(beginning):
            return
    raise AssertionError(f"it never said {beginning!r}")


@pytest.mark.parametrize("mode", ["atomic"])
def test_the_program_of_the_readme_survives_a_kill(own_server: ServerProcess, tmp_path: Path) -> None:
    """Two hundred numbers are there once and in order although the server is killed under the program."""
    prepare(own_server)
    (tmp_path / "count.py").write_text(program(own_server.url), encoding="utf-8")
    command = [sys.executable, "count.py"]
    with subprocess.Popen(
        command, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as counting:
        assert counting.stdout is not None
        read_until(counting.stdout, KILL_AT)
        own_server.restart()
        said = counting.stdout.read()
    assert said.endswith("every number once, in order: True\n"), said[-2000:]


@pytest.mark.parametrize("mode", ["atomic"])
def test_the_store_of_the_tour_is_sound(own_server: ServerProcess) -> None:
    """`parley check` beside the running server finds that every invariant holds."""
    prepare(own_server)
    sent = run_parley("send", "Tea", "hello, bob", "--as", "ada", "--data", str(own_server.data))
    checked = run_parley("check", "--data", str(own_server.data))
    assert sent.stdout.startswith("#1 "), sent.stderr
    assert checked.returncode == 0, checked.stdout
