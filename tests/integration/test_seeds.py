"""How a whole run of tests has its chance from one number, and how a failure is repeated."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.seeds import ROUNDS_VARIABLE, SEED_VARIABLE
from tests.tidy.repository import ROOT
from tests.waiting import stretched

DRAWN = """
import pytest
from random import Random
from hypothesis import Phase, given, settings, strategies as st

@settings(phases=[Phase.generate])
@given(st.integers(0, 2**64))
def test_by_hypothesis(number):
    assert number < 1000, f"drawn {number}"

@pytest.mark.randomised
def test_by_a_seed(seed):
    raise AssertionError(f"drawn {Random(seed).getrandbits(64)}")

def test_without_chance():
    raise AssertionError("drawn never")
"""
VARIED = {SEED_VARIABLE: "7", ROUNDS_VARIABLE: "30"}
SECONDS_MAX = 50
ANSI = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite of its own that fails at whatever it draws."""
    folder = tmp_path_factory.mktemp("suite")
    (folder / "conftest.py").write_text('pytest_plugins = ["tests.seeds"]\n', encoding="utf-8")
    (folder / "test_drawn.py").write_text(DRAWN, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def said(folder: Path) -> str:
    """What a run of two rounds says."""
    return run(folder, **VARIED)


def run(folder: Path, *arguments: str, **variables: str) -> str:
    """What such a run says."""
    without = {SEED_VARIABLE, ROUNDS_VARIABLE, "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"}
    environment = {name: value for name, value in os.environ.items() if name not in without}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "--rootdir",
            str(folder),
            "-p",
            "no:xdist",
            "-m",
            "randomised",
            *arguments,
        ],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
        timeout=stretched(SECONDS_MAX),
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return ANSI.sub("", done.stdout)


def drawn(said: str) -> list[str]:
    return re.findall(r"^E +AssertionError: drawn (\w+)$", said, re.MULTILINE)


def test_a_failure_is_repeated_by_the_command_it_names(folder: Path, said: str) -> None:
    """Every round of a varied run draws something else, and the command it prints draws the same again."""
    commands = [shlex.split(line) for line in re.findall(r"^repeat it: (.*)$", said, re.MULTILINE)]
    assert len(set(drawn(said))) == len(commands) == 4
    variables, nodeids = {command[:2] for command in map(tuple, commands)}, [it[-1] for it in commands]
    assert variables == {tuple(f"{name}={value}" for name, value in VARIED.items())}
    assert drawn(run(folder, *nodeids, **VARIED)) == drawn(said)


def test_another_seed_draws_something_else(folder: Path, said: str) -> None:
    """No test of two runs with different seeds draws the same."""
    other = drawn(run(folder, **{**VARIED, SEED_VARIABLE: "8"}))
    assert len(other) == 4
    assert not set(other) & set(drawn(said))


def test_without_a_seed_every_run_draws_the_same(folder: Path) -> None:
    """What runs with every change fails for a change, not by chance."""
    one, other = (drawn(run(folder)) for _ in "12")
    assert one == other
    assert len(set(one)) == 2


def test_the_seeds_that_were_tried_are_counted(said: str) -> None:
    """The end of a varied run says how many cases its randomised tests tried."""
    (count,) = re.findall(r"^ +(\d+) +[\d.]+ s +test_drawn.py$", said, re.MULTILINE)
    assert int(count) > len(drawn(said))
