"""Where tests keep their data: in memory, if there is enough. Half of the time they waited for a disk.

What is promised of a disk is tested with faults that are injected: nothing depends on a real one. What
tests that failed have left is kept, and the end of the run says where.
"""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
FREE_BYTES_MIN = 8 * 1024**3
"""The largest files of tests, several times over."""
PREFIX = "parley-tests-"

_own: list[Path] = []
"""The folder that this process has made, if it has."""


def has_room(folder: Path) -> bool:
    return folder.is_dir() and os.access(folder, os.W_OK) and shutil.disk_usage(folder).free >= FREE_BYTES_MIN


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    is_worker = hasattr(config, "workerinput")  # it has its folder inside that of the run
    if config.option.basetemp is None and not is_worker and has_room(MEMORY):
        _own.append(Path(tempfile.mkdtemp(prefix=PREFIX, dir=MEMORY)))
        config.option.basetemp = str(_own[-1])


def pytest_sessionfinish(session: pytest.Session) -> None:
    for folder in _own:
        if session.testsfailed:
            print(f"\nwhat the tests that failed have left is in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
