"""Faults on purpose, for tests: crashes and holds at labelled points, and a disk that fails.

Off unless the environment says otherwise:

    PARLEY_TEST_CRASH=label[:n[:FILE]]
                                    the process kills itself the n-th time it reaches the label,
                                    counted while FILE exists, if one is named
    PARLEY_TEST_HOLD=label:FILE     whoever reaches the label waits while FILE exists
    PARLEY_TEST_DISK=FILE           the store's writes fail as FILE says: `full`, `sync` or `io`;
                                    no file, or an empty one, means a healthy disk
    PARLEY_TEST_BATCH_MAX=n         no transaction of a shared store takes more than n messages

Labels: before_write, after_write_before_commit, after_commit_before_ack, mid_fanout, after_allocate.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import apsw

CRASH = "PARLEY_TEST_CRASH"
HOLD = "PARLEY_TEST_HOLD"
DISK = "PARLEY_TEST_DISK"
BATCH_MAX = "PARLEY_TEST_BATCH_MAX"
LABELS = (
    "before_write",
    "after_write_before_commit",
    "after_commit_before_ack",
    "mid_fanout",
    "after_allocate",
)
HOLD_LOOK_SECONDS = 0.005
VFS_NAME = "parley-faults"


def reach_from(environment: Mapping[str, str]) -> Callable[[str], None]:
    """What happens at a labelled point: nothing, unless this process was told to die there."""
    label, _, rest = environment.get(CRASH, "").partition(":")
    if not label:
        return lambda _: None
    count, _, file = rest.partition(":")
    return Crash(label, int(count or 1), Path(file) if file else None)


class Crash:
    """kill -9 of the own process: nothing is flushed, nobody is told."""

    def __init__(self, label: str, count: int, armed_by: Path | None = None) -> None:
        if label not in LABELS:
            raise ValueError(f"{CRASH}: {label!r} is none of {', '.join(LABELS)}")
        self._label = label
        self._left = count
        self._armed_by = armed_by

    def __call__(self, label: str) -> None:
        if label == self._label and (self._armed_by is None or self._armed_by.exists()):
            self._left -= 1
            if self._left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)


def hold_from(environment: Mapping[str, str]) -> Callable[[str], Awaitable[None] | None]:
    """Who waits at a labelled point: only the first to reach it, while a file exists."""
    label, _, file = environment.get(HOLD, "").partition(":")
    if not label:
        return lambda _: None
    return Hold(label, Path(file))


class Hold:
    def __init__(self, label: str, file: Path) -> None:
        self._label = label
        self._file = file
        self._used = False

    def __call__(self, label: str) -> Awaitable[None] | None:
        if label != self._label or self._used or not self._file.exists():
            return None
        self._used = True
        return self._wait()

    async def _wait(self) -> None:
        self._file.with_suffix(".held").touch()
        while self._file.exists():  # noqa: ASYNC110 - another process removes it
            await asyncio.sleep(HOLD_LOOK_SECONDS)


def batch_max_from(environment: Mapping[str, str], usual: int) -> int:
    """How many drafts one transaction may take: as many as usual, unless fewer are to be compared with it."""
    return min(usual, max(1, int(environment.get(BATCH_MAX, usual))))


def vfs_from(environment: Mapping[str, str]) -> str | None:
    """The name of a VFS whose disk can be made to fail; None for the real one."""
    file = environment.get(DISK)
    if not file:
        return None
    global _vfs
    _vfs = FaultyVfs(Path(file))
    return VFS_NAME


_vfs: FaultyVfs | None = None


class FaultyVfs(apsw.VFS):
    """The default VFS with files that consult a switch before they write or sync."""

    def __init__(self, switch: Path) -> None:
        self.switch = switch
        super().__init__(VFS_NAME, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return FaultyFile(name, flags, self.switch)


class FaultyFile(apsw.VFSFile):
    def __init__(self, name: str | apsw.URIFilename | None, flags: list[int], switch: Path) -> None:
        self._switch = switch
        super().__init__("", name, flags)

    def _fault(self) -> str:
        try:
            return self._switch.read_text().strip()
        except OSError:
            return ""

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        fault = self._fault()
        if fault == "full":
            raise apsw.FullError("the disk is full (injected)")
        if fault == "io":
            raise apsw.IOError("write failed (injected)")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        if self._fault() in ("sync", "io"):
            raise apsw.IOError("fsync failed (injected)")
        super().xSync(flags)
