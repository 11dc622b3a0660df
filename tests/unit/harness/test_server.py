"""The harness around a server process, tried on a stand-in that behaves or misbehaves on purpose."""

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.harness import server as harness
from tests.harness.server import ServerFailed, ServerProcess

STAND_IN = """
import json, os, signal, sys
arguments = sys.argv[1:]
assert arguments[0] == "serve"
port = arguments[arguments.index("--port") + 1]
print(json.dumps({"event": "starting", "mood": os.environ.get("MOOD", "")}), file=sys.stderr, flush=True)
print("no JSON", file=sys.stderr, flush=True)
if os.environ.get("MOOD") == "broken":
    sys.exit(3)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print(f"parley ready on http://127.0.0.1:{port}", flush=True)
signal.pause()
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServerProcess:
    monkeypatch.setattr(harness, "parley_command", lambda: [sys.executable, "-c", STAND_IN])
    return ServerProcess(tmp_path / "data")


def test_it_is_ready_when_it_says_so(stand_in: ServerProcess) -> None:
    """Starting waits for the ready line and takes the address from it."""
    with stand_in as server:
        assert (server.url, server.is_running) == (f"http://127.0.0.1:{server.port}", True)
        assert server.port >= harness.PORT_MIN
    assert not server.is_running


def test_a_restart_keeps_the_port(stand_in: ServerProcess) -> None:
    """The second run is told the port of the first and is another process."""
    with stand_in as server:
        port, pid = server.port, server.pid
        server.restart()
        assert (server.port, server.pid == pid) == (port, False)


def test_terminate_tells_the_exit_status(stand_in: ServerProcess) -> None:
    """A server that drains ends with 0, one that is killed with the signal."""
    stand_in.start()
    assert stand_in.terminate() == 0
    stand_in.start()
    stand_in.kill()
    assert stand_in.wait() == -signal.SIGKILL


def test_a_paused_server_stands_still_until_it_is_resumed(stand_in: ServerProcess) -> None:
    """It ends by SIGTERM only after it was resumed, and by kill even while it is paused."""
    with stand_in as server:
        server.pause()
        os.kill(server.pid, signal.SIGTERM)
        with pytest.raises(ServerFailed, match="did not end"):
            server.wait(timeout_seconds=0.3)
    with stand_in as server:
        server.pause()
        server.resume()
        assert server.terminate() == 0


def test_the_environment_of_one_run_is_for_that_run(stand_in: ServerProcess) -> None:
    """What is set for one start is gone at the next, and the logs are those of the current run."""
    with stand_in as server:
        server.restart({"MOOD": "good"})
        assert server.wait_for_log("start")["mood"] == "good"
        server.restart()
        assert server.wait_for_log("start")["mood"] == ""
        assert len(server.log_lines()) == 1


def test_a_server_that_fails_to_start_is_told_with_its_log(stand_in: ServerProcess) -> None:
    """A start that comes to nothing raises at once and shows what the process said."""
    with pytest.raises(ServerFailed, match="no JSON"):
        stand_in.start({"MOOD": "broken"})


def test_a_line_that_never_comes_is_an_error(stand_in: ServerProcess) -> None:
    """Waiting for a log line ends at its deadline."""
    with stand_in as server, pytest.raises(ServerFailed, match="did not log"):
        server.wait_for_log("never", timeout_seconds=0.05)
