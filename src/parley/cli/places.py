"""Where a command works: which data folder, which server."""

from __future__ import annotations

import contextlib
import fcntl
from pathlib import Path

from msgspec import Struct

from parley import config
from parley.config import Config
from parley.errors import ParleyError
from parley.store.sqlite.database import FILE_NAME, LOCK_NAME

URL_NAME = "serve.url"
"""A running server writes its address here, so that commands on the same folder find it."""

EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


class CommandFailed(ParleyError):
    """A command cannot do what it was asked; the message is for a person and says what to do next."""


class Place(Struct):
    """A data folder and the settings that go with it."""

    settings: Config
    folder: Path
    unknown_variables: list[str]

    @property
    def is_shared(self) -> bool:
        """Whether the store is one that the configuration names, and not in the folder."""
        return self.settings.store.engine != "sqlite"

    @property
    def has_store(self) -> bool:
        return (self.folder / FILE_NAME).is_file()

    def require_store(self) -> Path:
        """The folder; CommandFailed when there is no store in it."""
        if not self.has_store:
            raise CommandFailed(
                f"there is no store in {self.folder}\n"
                f"start a server there (parley serve --data {self.folder}),"
                " or name the folder of yours with --data or PARLEY_DATA"
            )
        return self.folder

    def server_process(self) -> str | None:
        """The process that serves this folder now, "unknown" if it did not say; None when there is none."""
        with contextlib.suppress(FileNotFoundError), open(self.folder / LOCK_NAME, encoding="ascii") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return lock.read().strip() or "unknown"
        return None

    def server_url(self) -> str:
        """Where the server of this folder listens: by its own word while it runs, else as configured."""
        if self.server_process() is not None:
            with contextlib.suppress(OSError):
                said = (self.folder / URL_NAME).read_text(encoding="utf-8").strip()
                if said:
                    return said
        return url_for(self.settings.server.host, self.settings.server.port)


def find_place(data: Path | None, file: Path | None) -> Place:
    """What --data and --config name, each with its variable; ./data and the defaults otherwise."""
    settings, unknown = config.load(file)
    folder = data if data is not None else Path(settings.server.data)
    settings.server.data = str(folder)
    return Place(settings, folder, unknown)


def url_for(host: str, port: int) -> str:
    """The address under which this machine reaches a server that listens there."""
    reachable = EVERYWHERE.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{reachable}:{port}"
