"""A server under measurement: started, pinned, measured and killed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from bench import processes
from bench.connection import Address

HOST = "127.0.0.1"
READY = b"parley ready on "
START_SECONDS_MAX = 30
STOP_SECONDS_MAX = 15
REST_SECONDS = 1.0
REST_CORES_MAX = 0.1
"""A server that used less for that long has nothing left to do."""
REST_SECONDS_MAX = 120


class ServerFailed(Exception):
    """The server did not start or did not stop; the message ends with its last log lines."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def parley_beside_python() -> Path:
    """The command that `make setup` installs in the virtual environment."""
    return Path(sys.executable).parent / "parley"


def serve_command(parley: Path, data: Path, module: str | None = None) -> list[str]:
    command = [str(parley)] if module is None else [str(parley.parent / "python"), "-m", module]
    return [*command, "serve", "--data", str(data)]


class Server:
    """A command that serves on a port and prints when it is ready. It reuses its port after a restart."""

    def __init__(
        self, command: list[str], log: Path, cores: set[int], environment: Mapping[str, str] | None = None
    ) -> None:
        self.address = Address(HOST, free_port())
        self._command = [*command, "--port", str(self.address.port)]
        self._cores = cores
        self._log = log
        self._environment = None if environment is None else {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server runs"
        return self._process.pid

    def launch(self) -> None:
        """Start the process without waiting until it is ready."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment,
                preexec_fn=lambda: os.sched_setaffinity(0, self._cores),
            )

    async def ready(self) -> None:
        """Wait for its ready line."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = await asyncio.wait_for(asyncio.to_thread(self._process.stdout.readline), START_SECONDS_MAX)
        if not line.startswith(READY):
            self.kill()
            raise ServerFailed(f"the server did not become ready: {line!r}\n{self.last_words()}")

    async def rested(self) -> None:
        """Wait until its jobs have caught up with a store that was filled before it started."""
        deadline = time.perf_counter() + REST_SECONDS_MAX
        while time.perf_counter() < deadline:
            before = self.cpu_seconds()
            await asyncio.sleep(REST_SECONDS)
            if self.cpu_seconds() - before < REST_SECONDS * REST_CORES_MAX:
                return
        raise ServerFailed(f"the server was still busy after {REST_SECONDS_MAX} s\n{self.last_words()}")

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """SIGSTOP, and SIGCONT at the end."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    async def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            await asyncio.to_thread(self._process.wait, STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise ServerFailed(
                f"the server did not stop within {STOP_SECONDS_MAX} s\n{self.last_words()}"
            ) from error

    def last_words(self) -> str:
        return self._log.read_text(errors="replace")[-2_000:]

    def cpu_seconds(self) -> float:
        return processes.cpu_seconds(self.pid)

    def rss_bytes(self) -> int:
        return processes.rss_bytes(self.pid)

    def helpers_cpu_seconds(self) -> float:
        """This server uses no other processes."""
        return 0.0

    async def batches(self) -> tuple[float, float]:
        """How many messages were made durable so far, and in how many batches."""
        metrics = await self.metrics()
        return metrics.get("parley_batch_messages_sum", 0), metrics.get("parley_batch_messages_count", 0)

    async def metrics(self) -> dict[str, float]:
        """The server's metrics: see `samples_in`."""
        url = f"http://{self.address.host}:{self.address.port}/metrics"
        return samples_in(await asyncio.to_thread(_fetch, url))


def samples_in(text: str) -> dict[str, float]:
    """The samples of a page of metrics: each with its labels, and under its bare name the sum over them."""
    sums: dict[str, float] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            labelled, value = line.rsplit(" ", 1)
            for name in {labelled, labelled.partition("{")[0]}:
                sums[name] = sums.get(name, 0.0) + float(value)
    return sums


def _fetch(url: str) -> str:
    with urlopen(url, timeout=10) as answer:
        body: bytes = answer.read()
    return body.decode()
