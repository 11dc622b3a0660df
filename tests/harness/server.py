"""A real server in its own process, to be killed, stopped and restarted on the same data.

    with ServerProcess(tmp_path / "data", {"PARLEY_STORE_SEQUENCING": "two_phase"}) as server:
        ...talk to server.url...
        server.kill()
        server.start()

Methods block until they are done, or raise at a deadline. A coroutine calls them with `asyncio.to_thread`.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol

import msgspec

from ops.local_services.ports import is_free
from tests.waiting import stretched

READY = re.compile(r"^parley ready on ((https?)://\S+:(\d+))\s*$")
READY_SECONDS_MAX = 20.0
STOP_SECONDS_MAX = 15.0
LINES_KEPT_MAX = 20_000
HOST = "127.0.0.1"
PORT_MIN, PORTS_PER_RANGE, PORT_RANGES = 10_000, 2_000, 5
"""Below the source ports of Linux, and below those of `ops/services`."""
FILE_NAME = "parley.db"


class ServerFailed(Exception):
    """The process did not react in time; the message ends with its last log lines."""


class Process(Protocol):
    """The part of `subprocess.Popen` that is used, with text streams."""

    stdout: IO[str] | None
    stderr: IO[str] | None

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: int) -> None: ...

    def kill(self) -> None: ...

    def communicate(self, input: str | None = None, timeout: float | None = None) -> tuple[str, str]: ...  # noqa: A002 - as there


launch: Callable[..., Process] = subprocess.Popen
"""Starts a process, called like `subprocess.Popen`. Tests replace it where they start very many processes."""


class Lines:
    """The lines of one output stream of a process. A test can wait for one."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._lines: deque[str] = deque(maxlen=LINES_KEPT_MAX)
        self._news = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in self._stream:
            with self._news:
                self._lines.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()
        self._stream.close()

    def all(self) -> list[str]:
        with self._news:
            return list(self._lines)

    def wait_for(self, fits: Callable[[str], bool], timeout_seconds: float) -> str | None:
        """The first line that fits, past or in time; None if there is none."""
        with self._news:
            self._news.wait_for(
                lambda: self._ended or any(map(fits, self._lines)), stretched(timeout_seconds)
            )
            return next(filter(fits, self._lines), None)

    def join(self) -> None:
        """Wait until everything was read: the process has closed the stream."""
        self._thread.join()


def _ports_of_this_process() -> Iterator[int]:
    """Each process of pytest has its own, so no two of them take one at the same time."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = PORT_MIN + worker % PORT_RANGES * PORTS_PER_RANGE
    begin = random.randrange(PORTS_PER_RANGE)
    return (first + (begin + number) % PORTS_PER_RANGE for number in itertools.count())


_ports = _ports_of_this_process()


def unused_port() -> int:
    """For a server that comes back to it. While it is down, no connection gets this port as its own."""
    return next(port for port in _ports if is_free(port))


class ServerProcess:
    """`parley serve` on one data folder, with one port for all starts."""

    def __init__(
        self,
        data: Path,
        environment: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        self.data = data
        self.environment = dict(environment or {})
        self.arguments = list(arguments)
        self.scheme, self.port = "http", unused_port()
        self._process: Process | None = None
        self._stdout: Lines | None = None
        self._stderr: Lines | None = None

    @property
    def url(self) -> str:
        return f"{self.scheme}://{HOST}:{self.port}"

    @property
    def sqlite_path(self) -> Path:
        return self.data / FILE_NAME

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, environment: Mapping[str, str] | None = None) -> None:
        """Start and wait until it is ready; `environment` is for this run only, on top of its own."""
        self.spawn(environment)
        self.await_ready()

    def await_ready(self) -> None:
        """Wait until the process that was spawned is ready."""
        assert self._stdout is not None
        line = self._stdout.wait_for(lambda said: READY.match(said) is not None, READY_SECONDS_MAX)
        found = READY.match(line) if line is not None else None
        if found is None:
            self.kill()
            raise self._failed("did not become ready")
        self.scheme, self.port = found[2], int(found[3])

    def spawn(self, environment: Mapping[str, str] | None = None) -> None:
        """Start it and do not wait until it is ready."""
        assert not self.is_running, "it is already running"
        serve = ["serve", "--data", str(self.data), "--host", HOST, "--port", str(self.port)]
        self._process = launch(
            [*parley_command(), *serve, *self.arguments],
            env={**os.environ, **self.environment, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._stdout, self._stderr = Lines(self._process.stdout), Lines(self._process.stderr)

    def kill(self) -> None:
        """SIGKILL, and wait until it has ended. Does nothing if it has ended before."""
        if self._process is not None:
            self._process.kill()
            self.wait()

    def pause(self) -> None:
        """SIGSTOP: it stops running, and its connections stay open."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT: it continues as if no time had passed."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def terminate(self) -> int:
        """SIGTERM, and wait. Returns the exit status."""
        self._signal(signal.SIGTERM)
        return self.wait()

    def wait(self, timeout_seconds: float = STOP_SECONDS_MAX) -> int:
        """Wait until it ends by itself. Returns the exit status, negative for a signal."""
        assert self._process is not None
        assert self._stdout is not None
        assert self._stderr is not None
        try:
            status = self._process.wait(stretched(timeout_seconds))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise self._failed(f"did not end within {timeout_seconds:g} s") from None
        self._stdout.join()
        self._stderr.join()
        return status

    def restart(self, environment: Mapping[str, str] | None = None) -> None:
        """Kill it and start it on the same data and port."""
        self.kill()
        self.start(environment)

    def stdout_lines(self) -> list[str]:
        return self._stdout.all() if self._stdout is not None else []

    def stderr_lines(self) -> list[str]:
        return self._stderr.all() if self._stderr is not None else []

    def log_lines(self) -> list[dict[str, Any]]:
        """The log lines of the current run that are JSON objects."""
        parsed = map(_parsed, self.stderr_lines())
        return [line for line in parsed if line is not None]

    def wait_for_log(self, event: str, timeout_seconds: float = READY_SECONDS_MAX) -> dict[str, Any]:
        """The first log line of the current run whose `event` begins with this text."""
        assert self._stderr is not None

        def fits(said: str) -> bool:
            line = _parsed(said)
            return line is not None and str(line.get("event", "")).startswith(event)

        found = self._stderr.wait_for(fits, timeout_seconds)
        if found is None:
            raise self._failed(f"did not log {event!r}")
        line = _parsed(found)
        assert line is not None
        return line

    def _failed(self, says: str) -> ServerFailed:
        last = "\n".join(self.stderr_lines()[-20:])
        return ServerFailed(f"the server {says}\n{last}")

    def __enter__(self) -> ServerProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def parley_command() -> list[str]:
    """The command that runs `parley` with this interpreter."""
    return [sys.executable, "-c", "import sys; from parley.cli import main; sys.exit(main())"]


def run_parley(
    *arguments: str, timeout_seconds: float = 30.0, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; `environment` is added to this process's own."""
    return run_command(
        [*parley_command(), *arguments],
        environment={**os.environ, **(environment or {})},
        timeout_seconds=timeout_seconds,
    )


def run_command(
    command: Sequence[str], *, environment: Mapping[str, str], timeout_seconds: float, given: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with `given` as its stdin."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = launch(command, env=environment, text=True, encoding="utf-8", errors="replace", **pipes)
    try:
        stdout, stderr = process.communicate(given, stretched(timeout_seconds))
    except BaseException:
        process.kill()
        process.communicate()
        raise
    return subprocess.CompletedProcess(list(command), process.wait(), stdout, stderr)


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return None
    return value if isinstance(value, dict) else None
