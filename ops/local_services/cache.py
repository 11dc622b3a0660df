"""Downloaded programs: one folder for all checkouts of this user, safe for concurrent downloads."""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ops.local_services.faults import ServiceError

VARIABLE = "PARLEY_SERVICES_CACHE"
FREE_BYTES_MIN = 300 * 1000 * 1000


def cache_folder() -> Path:
    """The folder of downloaded programs."""
    if given := os.environ.get(VARIABLE):
        return Path(given).resolve()
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches).resolve() / "parley" / "services"


def cached(name: str) -> Path | None:
    """A complete folder of this name, if there is one."""
    folder = cache_folder() / name
    return folder if folder.is_dir() else None


def fetched(name: str, fetch: Callable[[Path], None], say: Callable[[str], None]) -> Path:
    """The folder of this name; `fetch` fills it if it does not exist. An existing folder is complete."""
    if found := cached(name):
        return found
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    check_space(folder, FREE_BYTES_MIN)
    with locked(folder / "fetch.lock", lambda: say("waiting for another fetch into the same cache")):
        if found := cached(name):
            return found
        for left in folder.glob("*.part"):
            shutil.rmtree(left, ignore_errors=True)
        part = folder / f"{name}.{os.getpid()}.part"
        part.mkdir()
        fetch(part)
        return part.rename(folder / name)


def check_space(folder: Path, bytes_min: int) -> None:
    """Fail early with a clear message instead of later with a half-written file."""
    free = shutil.disk_usage(folder).free
    if free < bytes_min:
        has, needs = free // 1_000_000, bytes_min // 1_000_000
        raise ServiceError(f"The disk of {folder} has {has} MB free, but {needs} MB are needed.")


@contextmanager
def locked(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold a lock between processes; the system releases it when its holder dies."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
