"""Rule: a coroutine test runs, can fail, and cannot hang: the plugin of tests/conftest.py sees to it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.repository import ROOT
from tests.waiting import FACTOR_MAX, stretched

SAMPLE = """
import asyncio
import pytest
from hypothesis import given, strategies as st

@pytest.fixture
def seven():
    return 7

async def test_passes(seven):
    await asyncio.sleep(0)
    assert seven == 7

async def test_fails(seven):
    await asyncio.sleep(0)
    assert seven == 8

@pytest.mark.timeout(5)
async def test_hangs():
    async def wait_for_ever():
        await asyncio.Event().wait()
    await asyncio.gather(wait_for_ever())

@given(st.integers())
async def test_property_fails(number):
    await asyncio.sleep(0)
    assert number < 1000
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What pytest says about the sample, run beside a copy of the plugin."""
    folder: Path = tmp_path_factory.mktemp("sample")
    (folder / "conftest.py").write_text((ROOT / "tests/conftest.py").read_text("utf-8"), "utf-8")
    (folder / "test_sample.py").write_text(SAMPLE, "utf-8")
    (folder / "pytest.ini").write_text("[pytest]\ntimeout = 30\n", "utf-8")
    command = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", "-p", "no:xdist", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=stretched(50),
    ).stdout


def test_a_coroutine_test_runs_with_its_fixtures(report: str) -> None:
    """A coroutine test that holds is reported as passed."""
    assert "PASSED test_sample.py::test_passes" in report


def test_a_false_claim_in_a_coroutine_fails(report: str) -> None:
    """A coroutine test that does not hold is reported as failed."""
    assert "FAILED test_sample.py::test_fails - assert 7 == 8" in report


def test_a_hanging_coroutine_is_cancelled_with_its_stacks(report: str) -> None:
    """A coroutine test that never ends fails and shows where each task was waiting."""
    assert "FAILED test_sample.py::test_hangs" in report
    told = re.search(r"the test was still waiting after ([0-9.]+) s", report)
    assert told is not None
    assert 4.5 <= float(told[1]) <= 4.5 * FACTOR_MAX
    assert "in wait_for_ever" in report


def test_a_property_over_a_coroutine_is_searched(report: str) -> None:
    """Hypothesis runs a coroutine test and shrinks its counterexample."""
    assert "FAILED test_sample.py::test_property_fails" in report
    assert "number=1000" in report
