"""CPU and memory of a process and its descendants, read from /proc."""

from __future__ import annotations

import os
import time
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

QUIET_CORES_MAX = 0.15
QUIET_LOOK_SECONDS = 0.5

# Positions in the first line of /proc/stat, counted after its name.
IDLE, IOWAIT, STEAL = 3, 4, 7
# Positions in /proc/PID/stat, counted after the command's closing parenthesis.
UTIME, CSTIME, RSS = 11, 14, 21


def family(pid: int) -> list[int]:
    """A process and its living descendants."""
    pids = [pid]
    for parent in pids:
        for listing in Path(f"/proc/{parent}/task").glob("*/children"):
            pids.extend(map(int, listing.read_text().split()))
    return pids


def cpu_seconds(pid: int) -> float:
    """User and system time that a process and its descendants, living or reaped, have used."""
    return sum(sum(map(int, _stat(member)[UTIME : CSTIME + 1])) for member in family(pid)) / TICKS_PER_SECOND


def rss_bytes(pid: int) -> int:
    """Resident memory of a process and its living descendants."""
    return sum(int(_stat(member)[RSS]) for member in family(pid)) * PAGE_BYTES


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def pin(pid: int, cores: set[int]) -> None:
    """Keep every thread of a process on these cores; threads and children that follow inherit it."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)


def machine_busy_seconds() -> float:
    """Busy time of all cores, including the time of other guests of the same host."""
    fields = list(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]))
    busy = sum(fields[: STEAL + 1]) - fields[IDLE] - fields[IOWAIT]
    return busy / TICKS_PER_SECOND


def wait_until_quiet(seconds_max: float) -> bool:
    """Wait until the machine is idle. Returns whether it was in time; at once if the time is 0."""
    deadline = time.perf_counter() + seconds_max
    while time.perf_counter() < deadline:
        busy, start = machine_busy_seconds(), time.perf_counter()
        time.sleep(QUIET_LOOK_SECONDS)
        if machine_busy_seconds() - busy < QUIET_CORES_MAX * (time.perf_counter() - start):
            return True
    return False
