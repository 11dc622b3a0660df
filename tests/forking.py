"""Processes that start in a few milliseconds: forked off one that has imported everything already.

A test starts hundreds of servers and commands, and most of what a start costs is imports. Per process of the
run there is one nursery: a fresh interpreter that imports what a server may need, opens nothing, and forks
when it is told to. What comes out is a process like any other: with its own id, environment, streams and exit
status, to be killed or stopped. When it ends by itself it does not free its memory piece by piece: that would
take longer than most commands.

What starts from the shell, on a terminal, or in an environment that an import may depend on, starts as usual.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any, cast

import argon2

import parley
from parley.accounts import accounts
from tests.harness import server
from tests.harness.server import Process, parley_command

ROOT = Path(__file__).resolve().parents[1]
REQUEST_BYTES_MAX = 128 * 1024
CHEAP_HASHER = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
"""Passwords cost next to nothing where their hash is not what is tested."""
STREAMS = ("stdin", "stdout", "stderr")
HARMLESS = ("PARLEY_", "AWS_", "HOME", "XDG_", "PYTEST_", "COV")
"""Variables that are read when a command runs, never by an import."""
PROGRAM = f"""
import sys
from tests.forking import ending, nurse
nurse(int(sys.argv[1]))
with ending():
    {parley_command()[-1]}
"""
NOT_PRELOADED = ("tests.harness.", "parley.__main__")


def launch(command: Sequence[str], **options: Any) -> Process:
    """Called like `subprocess.Popen` by `tests.harness.server`."""
    usual = parley_command()
    environment = options.get("env") or dict(os.environ)
    if list(command[: len(usual)]) != usual or not _is_harmless(environment):
        return cast(Process, subprocess.Popen(command, **options))
    return ForkedProcess(nursery(), list(command[len(usual) :]), environment, options)


def _is_harmless(environment: Mapping[str, str]) -> bool:
    differing = {name for name, _ in set(environment.items()) ^ set(os.environ.items())}
    return all(name.startswith(HARMLESS) for name in differing)


class ForkedProcess:
    """A child of the nursery, with the face of `subprocess.Popen`."""

    def __init__(
        self, nursery: Nursery, arguments: list[str], environment: Mapping[str, str], options: dict[str, Any]
    ) -> None:
        self._status: int | None = None
        self._reading = threading.Lock()
        self.stdin: IO[str] | None = None
        self.stdout: IO[str] | None = None
        self.stderr: IO[str] | None = None
        theirs: list[int] = []
        for name in STREAMS:
            if options[name] == subprocess.DEVNULL:
                theirs.append(os.open(os.devnull, os.O_RDWR))
                continue
            assert options[name] == subprocess.PIPE
            reading, writing = os.pipe()
            mode = "w" if name == "stdin" else "r"
            theirs.append(reading if mode == "w" else writing)
            ours = writing if mode == "w" else reading
            stream = open(ours, mode, encoding="utf-8", errors="replace")  # noqa: SIM115 - it outlives this call
            setattr(self, name, stream)
        self._ended, ended = os.pipe()
        try:
            self.pid, self._pidfd = nursery.fork(arguments, environment, [*theirs, ended])
        finally:
            for descriptor in (*theirs, ended):
                os.close(descriptor)
        weakref.finalize(self, os.close, self._ended)
        weakref.finalize(self, os.close, self._pidfd)

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Several threads may wait at once, and another may kill it meanwhile."""
        if self._status is not None:
            return self._status
        with selectors.DefaultSelector() as selector:
            selector.register(self._ended, selectors.EVENT_READ)
            if not selector.select(timeout):
                raise subprocess.TimeoutExpired(["parley"], timeout or 0)
        with self._reading:  # whoever comes second finds the status, though it hears of the end as well
            if self._status is None:
                self._status = os.waitstatus_to_exitcode(int(os.read(self._ended, 16)))
            return self._status

    def send_signal(self, sig: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, input: str | None = None, timeout: float | None = None) -> tuple[str, str]:  # noqa: A002
        """Write, read everything, and wait for the end."""
        assert self.stdout is not None
        assert self.stderr is not None
        said = ["", ""]

        def read(number: int, stream: IO[str]) -> None:
            said[number] = stream.read()

        readers = [threading.Thread(target=read, args=each) for each in enumerate((self.stdout, self.stderr))]
        for reader in readers:
            reader.start()
        if self.stdin is not None and not self.stdin.closed:
            try:
                self.stdin.write(input or "")
                self.stdin.close()
            except BrokenPipeError:
                pass  # it has ended without reading
        self.wait(timeout)
        for reader in readers:
            reader.join()
        self.stdout.close()
        self.stderr.close()
        return said[0], said[1]


class Nursery:
    """The process that forks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        )
        theirs.close()

    def fork(
        self, arguments: list[str], environment: Mapping[str, str], descriptors: list[int]
    ) -> tuple[int, int]:
        """A new process with these streams: its id and a descriptor of it. The last one hears its end."""
        request = json.dumps([arguments, dict(environment), os.getcwd()]).encode()
        assert len(request) < REQUEST_BYTES_MAX
        with self._lock:
            socket.send_fds(self._line, [request], descriptors)
            answer, (pidfd,), _, _ = socket.recv_fds(self._line, 16, 1)
        return int(answer), pidfd

    def close(self) -> None:
        self._line.close()
        self._process.wait()


@cache
def nursery() -> Nursery:
    """That of this process."""
    made = Nursery()
    atexit.register(made.close)
    return made


def nurse(line: int) -> None:
    """The life of a nursery; returns in each child, ready to be a command, and never in the nursery."""
    for module in pkgutil.walk_packages(parley.__path__, "parley."):
        if not module.name.startswith(NOT_PRELOADED):
            importlib.import_module(module.name)
    accounts.HASHER = CHEAP_HASHER
    warm_up()
    gc.collect()
    gc.freeze()  # else each child looks through all of this, and copies it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    family = Family(socket.socket(fileno=line))
    while (request := family.next_request()) is not None:
        if family.fork(*request):
            return
    os._exit(0)


def warm_up() -> None:
    """What the first command imports while it reads its arguments."""
    from parley.cli.commands import app

    with contextlib.suppress(SystemExit):
        app(["user", "list", "--help"], prog_name="parley")


@contextlib.contextmanager
def ending() -> Iterator[None]:
    """Around a command that ends by itself: what it registered for its end is done, and nothing after it."""
    status: int | None = 0

    def leave() -> None:
        if status is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    atexit.register(leave)
    try:
        yield
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else None
        raise
    except BaseException:
        status = None
        raise


class Family:
    """The nursery's own view: who asked, and which children live."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._selector = selectors.DefaultSelector()
        self._selector.register(line, selectors.EVENT_READ)

    def next_request(self) -> tuple[bytes, list[int]] | None:
        """Bury who has died meanwhile; None when nobody is left who could ask."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._line:
                    request, descriptors, _, _ = socket.recv_fds(self._line, REQUEST_BYTES_MAX, 4)
                    return (request, descriptors) if request else None
                pid, ended = key.data
                self._selector.unregister(key.fileobj)
                os.close(cast(int, key.fileobj))
                _, status = os.waitpid(pid, 0)
                os.write(ended, str(status).encode())
                os.close(ended)

    def fork(self, request: bytes, descriptors: list[int]) -> bool:
        """True in the child."""
        *streams, ended = descriptors
        pid = os.fork()
        if pid == 0:
            self._become(request, streams, ended)
            return True
        for descriptor in streams:
            os.close(descriptor)
        pidfd = os.pidfd_open(pid)
        self._selector.register(pidfd, selectors.EVENT_READ, (pid, ended))
        socket.send_fds(self._line, [str(pid).encode()], [pidfd])
        return False

    def _become(self, request: bytes, streams: list[int], ended: int) -> None:
        """Nothing of the family is left open: the end of its line tells the nursery to go."""
        for key in list(self._selector.get_map().values()):
            if key.fileobj is not self._line:
                os.close(cast(int, key.fileobj))
                os.close(key.data[1])
        self._selector.close()
        self._line.close()
        os.close(ended)
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
            os.close(descriptor)
        arguments, environment, folder = json.loads(request)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        sys.argv = ["-c", *arguments]
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure() -> None:
    """Where it can, a test's server and commands start this way."""
    if sys.platform == "linux" and os.environ.get("PARLEY_TEST_FORKS", "1") != "0":
        server.launch = launch
