"""A forked process is a process like any other: what it says, how it ends, and what it inherits."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests import forking
from tests.forking import ForkedProcess
from tests.harness.server import parley_command
from tests.waiting import stretched

PIPES: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
SECONDS_MAX = 40.0
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems start every process as usual")


def started(*arguments: str, **environment: str) -> ForkedProcess:
    made = forking.launch([*parley_command(), *arguments], env={**os.environ, **environment}, **PIPES)
    assert isinstance(made, ForkedProcess)
    return made


def test_it_says_and_ends_as_a_fresh_one() -> None:
    """Streams and status of a command that works and of one that is asked wrongly are the usual ones."""
    for arguments, status in ((["--version"], 0), (["no-such-command"], 2)):
        command = [*parley_command(), *arguments]
        usual = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=stretched(SECONDS_MAX)
        )
        forked = started(*arguments)
        said = forked.communicate("", stretched(SECONDS_MAX))
        assert (said, forked.wait()) == ((usual.stdout, usual.stderr), usual.returncode) == (said, status)


def test_it_has_its_own_environment(tmp_path: Path) -> None:
    """What one process was given is neither the next one's nor the nursery's."""
    for name in ("one", "two"):
        forked = started("check", PARLEY_DATA=str(tmp_path / name))
        said = "".join(forked.communicate("", stretched(SECONDS_MAX)))
        assert forked.wait() != 0, "there is no store"
        assert [there for there in ("one", "two") if str(tmp_path / there) in said] == [name]


def test_it_can_be_killed(tmp_path: Path) -> None:
    """SIGKILL ends it at once, the status says so, and a second one harms nobody."""
    forked = started("serve", "--port", "0", "--data", str(tmp_path))
    assert forked.stdout is not None
    assert forked.stdout.readline().startswith("parley ready on")
    with pytest.raises(subprocess.TimeoutExpired):
        forked.wait(0.01)
    os.kill(forked.pid, 0)
    forked.kill()
    assert forked.wait(SECONDS_MAX) == -signal.SIGKILL
    forked.kill()
    forked.communicate()


def test_it_can_be_killed_while_it_is_waited_for(tmp_path: Path) -> None:
    """A thread that waits for its end keeps nobody from ending it."""
    forked = started("serve", "--port", "0", "--data", str(tmp_path))
    with ThreadPoolExecutor() as threads:
        ends = [threads.submit(forked.wait, SECONDS_MAX) for _ in range(2)]
        threads.submit(forked.kill).result(SECONDS_MAX)
        assert [end.result(SECONDS_MAX) for end in ends] == [-signal.SIGKILL] * 2
    forked.communicate()


def test_another_program_or_environment_starts_as_usual() -> None:
    """What is no command of Parley, or what an import may depend on, is not forked."""
    other = forking.launch([sys.executable, "-c", ""], **PIPES)
    odd = forking.launch(
        [*parley_command(), "--version"], env={**os.environ, "COLUMNS": "40"}, text=True, **PIPES
    )
    for made in (other, odd):
        made.communicate(timeout=stretched(SECONDS_MAX))
        assert (isinstance(made, subprocess.Popen), made.wait()) == (True, 0)
