"""Running `ops/services`, and speaking to a Redis without a client."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, NamedTuple

from ops.local_services.cli import main
from tests.tidy.repository import ROOT
from tests.waiting import stretched

SCRIPT_SECONDS_MAX = 50.0
ANSWER_SECONDS_MAX = 5.0


class Run(NamedTuple):
    """How a verb ended."""

    status: int
    stdout: str
    stderr: str


class Script:
    """The script on one data folder: within this process, because Python starts slowly."""

    def __init__(self, data: Path) -> None:
        self.data = data

    def run(self, verb: str, *arguments: str) -> Run:
        """Run a verb to its end."""
        stdout, stderr = io.StringIO(), io.StringIO()
        with redirect_stdout(stdout), redirect_stderr(stderr):
            status = main([verb, *arguments, "--data", str(self.data)])
        return Run(status, stdout.getvalue(), stderr.getvalue())

    def succeed(self, verb: str, *arguments: str) -> str:
        """Run a verb that must work; what it says to programs."""
        run = self.run(verb, *arguments)
        assert run.status == 0, run.stderr
        return run.stdout

    def refusal(self, verb: str, *arguments: str) -> str:
        """Run a verb that must fail; what it says to people, without what it said on the way."""
        run = self.run(verb, *arguments)
        assert run.status == 1, run.stdout
        return run.stderr.splitlines()[-1]

    def redis(self) -> dict[str, Any]:
        """What `status` says of Redis."""
        (found,) = json.loads(self.succeed("status", "redis", "--json"))
        assert isinstance(found, dict)
        return found

    def environment(self) -> dict[str, str]:
        """What stands in the environment file."""
        lines = (self.data / "services.env").read_text(encoding="utf-8").splitlines()
        return dict(line.split("=", 1) for line in lines)

    def set_process(self, service: str, pid: int, started: str | None = None) -> None:
        """Let the state file name another process than the one that was started."""
        path = self.data / "services.json"
        state = json.loads(path.read_text(encoding="utf-8"))
        process = state["services"][service]["process"]
        process["pid"] = pid
        process["started"] = started or process["started"]
        path.write_text(json.dumps(state), encoding="utf-8")


class ScriptProcess(Script):
    """The script as a person starts it, in an environment of its own."""

    def __init__(self, data: Path, environment: Mapping[str, str] | None = None) -> None:
        super().__init__(data)
        self._environment = {**os.environ, **(environment or {})}

    def started(self, verb: str, *arguments: str) -> "subprocess.Popen[str]":
        """Start a verb."""
        return subprocess.Popen(
            [sys.executable, str(ROOT / "ops/services"), verb, *arguments, "--data", str(self.data)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment,
        )

    def run(self, verb: str, *arguments: str) -> Run:
        process = self.started(verb, *arguments)
        stdout, stderr = process.communicate(timeout=stretched(SCRIPT_SECONDS_MAX))
        return Run(process.returncode, stdout, stderr)


@contextmanager
def script_on(data: Path) -> Iterator[Script]:
    """The script; whatever it still runs at the end is killed."""
    script = Script(data)
    try:
        yield script
    finally:
        pid = script.redis()["pid"]
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def ask(address: str, command: str) -> str:
    """One command to a Redis, and its answer."""
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), ANSWER_SECONDS_MAX) as connection:
        connection.sendall(f"{command}\r\n".encode())
        return connection.recv(1024).decode().strip()


def listens(address: str) -> bool:
    """Whether somebody takes connections there."""
    try:
        return ask(address, "PING") == "+PONG"
    except ConnectionError:
        return False
