"""Processes that outlive the one that started them.

A process is identified by its id and its start time: the system reuses ids, and another program must never be
signalled. Linux only: it reads /proc.
"""

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ops.local_services.faults import ServiceError

POLL_SECONDS = 0.02
KILL_SECONDS_MAX = 10.0
STATE_FIELD, THREADS_FIELD, START_FIELD = 0, 17, 19
"""Their indexes in /proc/<pid>/stat, counted after the name of the program."""


@dataclass(frozen=True)
class Process:
    """One process of this boot of this machine."""

    pid: int
    started: str


def spawn(command: Sequence[str], log: Path) -> Process:
    """Start a program in a session of its own, with its output in a new log."""
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
    return Process(pid, _read_state(pid).started)


def process_of(pid: int) -> Process | None:
    """The process that has this id now."""
    try:
        return Process(pid, _read_state(pid).started)
    except ProcessLookupError:
        return None


def is_running(process: Process) -> bool:
    """Whether any thread of it is alive; a zombie is not."""
    try:
        look = _read_state(process.pid)
    except ProcessLookupError:
        return False
    if look.started != process.started:
        return False
    if look.has_ended:
        _reap(process.pid)
        return False
    return True


def stop(process: Process, grace_seconds: float) -> None:
    """Terminate it, and kill it if it has not ended in time. It has ended when this returns."""
    _signal(process, signal.SIGTERM)
    if not wait_for(lambda: not is_running(process), grace_seconds):
        kill(process)


def kill(process: Process) -> None:
    """kill -9. It has ended, and its ports are free, when this returns."""
    _signal(process, signal.SIGKILL)
    if not wait_for(lambda: not is_running(process), KILL_SECONDS_MAX):
        raise ServiceError(f"Process {process.pid} does not end, not even by kill -9.")


def pause(process: Process) -> None:
    """It stands still, with its connections open, until it is resumed or killed."""
    _signal(process, signal.SIGSTOP)


def resume(process: Process) -> None:
    """It goes on where it stood."""
    _signal(process, signal.SIGCONT)


def memory_bytes(process: Process) -> int:
    """Its resident memory, 0 if it has ended."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    found = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(found[0].split()[1]) * 1024 if found else 0


def wait_for(holds: Callable[[], bool], seconds: float) -> bool:
    """Poll until the condition holds; False if it does not in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _signal(process: Process, number: signal.Signals) -> None:
    if is_running(process):
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            return  # It ended before the signal.


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return  # Another process is its parent and reaps it.


class ProcessState(NamedTuple):
    """The state of a process from /proc."""

    started: str
    has_ended: bool


def _read_state(pid: int) -> ProcessState:
    """Read the state of a process; ProcessLookupError if it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError as error:
        raise ProcessLookupError(pid) from error
    fields = text.rpartition(")")[2].split()
    # After kill -9 the first thread may already be a zombie while others still hold the ports.
    has_ended = fields[STATE_FIELD] == "Z" and int(fields[THREADS_FIELD]) <= 1
    return ProcessState(f"{_boot_id()}:{fields[START_FIELD]}", has_ended)


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
