"""The data folder of a server: its files, who may read them, and the lock that only one server can hold."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import IO

from parley.errors import ConfigError, StoreBusy

DATABASE_NAME = "parley.db"
LOCK_NAME = "serve.lock"
SEARCH_NAME = "search.db"
OWN_FILES = (f"{DATABASE_NAME}*", f"{SEARCH_NAME}*", "serve.*", "store.*")
"""What Parley writes into a data folder: the store with its logs, the search index, the lock and address,
`store.toml`."""

FOLDER_MODE = 0o700
FILE_MODE = 0o600
OTHERS = stat.S_IRWXG | stat.S_IRWXO
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def make_private(folder: Path) -> None:
    """Let no other user read or change the files of a data folder, whatever its mode was.

    The folder itself is closed too, unless it holds something else: then its mode is somebody's choice (it
    may be a home, or /tmp). ConfigError if a file cannot be closed, or others could replace it.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
    if _mode(folder) & OTHERS and not _mode(folder) & stat.S_ISVTX and not _has_more(folder):
        with contextlib.suppress(OSError):  # whether that leaves a danger is asked next
            folder.chmod(FOLDER_MODE)
    if _mode(folder) & OTHERS_WRITE:
        raise ConfigError(
            f"other users may write to {folder}, and so replace the store: use a folder of its own in it"
            f" (--data {folder / 'parley'}), or take their right away (chmod go-w {folder})"
        )
    for path in _own_files(folder):
        if _mode(path) & OTHERS:
            with contextlib.suppress(OSError):
                path.chmod(FILE_MODE)
        if _mode(path) & OTHERS:
            raise ConfigError(
                f"other users may read or write {path}, and that cannot be changed by user {os.geteuid()}:"
                f" run as its owner, or chmod 600 {path}"
            )


def open_to_others(folder: Path) -> list[Path]:
    """What others can read or change: files of the store, and the folder if others may write to it."""
    mode = _mode(folder)
    found = [folder] if mode & OTHERS_WRITE else []
    if mode & (stat.S_IXGRP | stat.S_IXOTH):
        found += [path for path in _own_files(folder) if _mode(path) & OTHERS]
    return found


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _own_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if _is_own(path.name) and path.is_file():
            yield path


def _has_more(folder: Path) -> bool:
    return not all(_is_own(path.name) for path in folder.iterdir())


def _is_own(name: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in OWN_FILES)


def create_private(path: Path) -> None:
    """Make an empty file that only this user may read, unless there is one. SQLite's logs get its mode."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, FILE_MODE))


def lock_folder(folder: Path) -> IO[str]:
    """Lock the folder for one server; StoreBusy if another has it. Closing the file unlocks it.

    From then on no other user reads its files: ConfigError if that cannot be.
    """
    make_private(folder)
    create_private(folder / LOCK_NAME)
    lock = open(folder / LOCK_NAME, "a+", encoding="ascii")  # noqa: SIM115 - held for the server's life
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        raise StoreBusy(
            f"another server (process {holder}) uses {folder}; stop it or choose another --data"
        ) from error
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock
