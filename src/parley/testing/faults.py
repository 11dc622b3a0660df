"""Injected faults, for tests: crashes and pauses at labelled points, and a disk that fails.

Off by default. The environment turns them on:

    PARLEY_TEST_CRASH=label[:n[:FILE]]
                                    the process kills itself when it reaches the label for the n-th time,
                                    counted only while FILE exists, if one is given
    PARLEY_TEST_PAUSE=label:FILE    the first task at the label waits while FILE exists
    PARLEY_TEST_DISK=FILE           the store's writes fail as FILE says: `full`, `sync` or `io`;
                                    no file, or an empty one, means a healthy disk
    PARLEY_TEST_BATCH_MAX=n         no transaction of a shared store takes more than n messages

Labels: before_write, after_write_before_commit, after_commit_before_ack, mid_fanout, after_allocate,
before_index and after_index of the search index, those of the archiver and of erasures
(`parley.archive.steps`), of
amendments (`parley.core.message_actions`) and of files (`parley.files.steps`).
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import apsw

from parley.archive.steps import ARCHIVE_LABELS, ERASURE_LABELS
from parley.core.message_actions import ACTION_LABELS
from parley.files.steps import FILE_LABELS
from parley.search.indexer import INDEX_LABELS

CRASH = "PARLEY_TEST_CRASH"
PAUSE = "PARLEY_TEST_PAUSE"
DISK = "PARLEY_TEST_DISK"
BATCH_MAX = "PARLEY_TEST_BATCH_MAX"
LABELS = (
    "before_write",
    "after_write_before_commit",
    "after_commit_before_ack",
    "mid_fanout",
    "after_allocate",
    *INDEX_LABELS,
    *ARCHIVE_LABELS,
    *ERASURE_LABELS,
    *ACTION_LABELS,
    *FILE_LABELS,
)
PAUSE_POLL_SECONDS = 0.005
VFS_NAME = "parley-faults"


def fault_point_from(environment: Mapping[str, str]) -> Callable[[str], None]:
    """A function for labelled points. It does nothing unless the environment asks for a crash there."""
    label, _, rest = environment.get(CRASH, "").partition(":")
    if not label:
        return lambda _: None
    count, _, file = rest.partition(":")
    return Crash(label, int(count or 1), Path(file) if file else None)


class Crash:
    """Kills its own process with SIGKILL: nothing is flushed, no connection is closed."""

    def __init__(self, label: str, count: int, armed_by: Path | None = None) -> None:
        if label not in LABELS:
            raise ValueError(f"{CRASH}: {label!r} is not one of {', '.join(LABELS)}")
        self._label = label
        self._left = count
        self._armed_by = armed_by

    def __call__(self, label: str) -> None:
        if label == self._label and (self._armed_by is None or self._armed_by.exists()):
            self._left -= 1
            if self._left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)


def fault_point_in_store(environment: Mapping[str, str]) -> Callable[[str], Awaitable[None] | None]:
    """As `fault_point_from`. It also pauses: the first task at the label waits while a file exists."""
    crash = fault_point_from(environment)
    label, _, file = environment.get(PAUSE, "").partition(":")
    if not label:
        return crash
    pause = Pause(label, Path(file))

    def fault_point(label: str) -> Awaitable[None] | None:
        crash(label)
        return pause(label)

    return fault_point


class Pause:
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
        self._file.with_suffix(".paused").touch()
        while self._file.exists():  # noqa: ASYNC110 - another process removes it
            await asyncio.sleep(PAUSE_POLL_SECONDS)


def batch_max_from(environment: Mapping[str, str], usual: int) -> int:
    """How many drafts one transaction may hold: `usual`, unless the environment asks for fewer."""
    return min(usual, max(1, int(environment.get(BATCH_MAX, usual))))


def vfs_from(environment: Mapping[str, str]) -> str | None:
    """The name of a VFS whose disk a test can make fail; None for the real one."""
    file = environment.get(DISK)
    if not file:
        return None
    global _vfs
    _vfs = FaultyVfs(Path(file))
    return VFS_NAME


_vfs: FaultyVfs | None = None


class FaultyVfs(apsw.VFS):
    """The default VFS with files that check a switch before they write or sync."""

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
