"""Processes that outlive the one that started them.

A process is known by its id and the moment it started: an id alone is given again to a stranger after
some time, and a stranger must never be signalled. Linux only: it reads /proc.
"""

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ops.local_services.faults import ServiceError

LOOK_SECONDS = 0.02
KILL_SECONDS_MAX = 10.0
STATE_FIELD, THREADS_FIELD, START_FIELD = 0, 17, 19
"""Where they stand in /proc/<pid>/stat, counted after the name of the program."""


@dataclass(frozen=True)
class Process:
    """One process of this boot of this machine."""

    pid: int
    started: str


def spawn(command: Sequence[str], log: Path) -> Process:
    """Start a program in a session of its own, with all that it says in a fresh log."""
    log_flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    try:
        pid = os.posix_spawn(
            command[0],
            list(command),
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(log), log_flags, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ],
        )
    except OSError as error:
        raise ServiceError(f"{command[0]} cannot be started: {error.strerror}.") from error
    return Process(pid, _look(pid).started)


def process_of(pid: int) -> Process | None:
    """The process that has this id now."""
    try:
        return Process(pid, _look(pid).started)
    except ProcessLookupError:
        return None


def is_running(process: Process) -> bool:
    """Whether any of it is alive; one that ended and only waits for its parent is not."""
    try:
        look = _look(process.pid)
    except ProcessLookupError:
        return False
    if look.started != process.started:
        return False
    if look.has_ended:
        _reap(process.pid)
        return False
    return True


def stop(process: Process, grace_seconds: float) -> None:
    """Ask it to end, and kill it if it has not ended in time. It is gone when this returns."""
    _signal(process, signal.SIGTERM)
    if not wait_for(lambda: not is_running(process), grace_seconds):
        kill(process)


def kill(process: Process) -> None:
    """kill -9. It is gone, and its ports are free, when this returns."""
    _signal(process, signal.SIGKILL)
    if not wait_for(lambda: not is_running(process), KILL_SECONDS_MAX):
        raise ServiceError(f"Process {process.pid} does not end, not even by kill -9.")


def memory_bytes(process: Process) -> int:
    """Its resident memory, 0 if it is gone."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    found = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(found[0].split()[1]) * 1024 if found else 0


def wait_for(holds: Callable[[], bool], seconds: float) -> bool:
    """Look again and again until it holds; False if it does not in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_SECONDS)
    return True


def _signal(process: Process, number: signal.Signals) -> None:
    if is_running(process):
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            return  # It ended between the look and the signal, which is what was wanted.


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return  # Another process started it, and that one's parent collects it.


class Look(NamedTuple):
    """What /proc says of a process."""

    started: str
    has_ended: bool


def _look(pid: int) -> Look:
    """Look at a process; ProcessLookupError if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError as error:
        raise ProcessLookupError(pid) from error
    fields = text.rpartition(")")[2].split()
    # After kill -9 the first thread may be a zombie already while others still hold the ports.
    has_ended = fields[STATE_FIELD] == "Z" and int(fields[THREADS_FIELD]) <= 1
    return Look(f"{_boot_id()}:{fields[START_FIELD]}", has_ended)


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
