"""Where a command works: which data folder, which server."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from parley import config
from parley.cli import memory
from parley.cli.output import note
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
    def may_be_looked_at(self) -> bool:
        """Whether this user may see what is in the folder, if there is one."""
        try:
            return not self.folder.is_dir() or os.access(self.folder, os.R_OK | os.X_OK)
        except PermissionError:
            return False

    @property
    def has_store(self) -> bool:
        return (self.folder / FILE_NAME).is_file()

    def require_store(self) -> Path:
        """The folder; CommandFailed when there is no store in it, PermissionError when it is not ours."""
        if not self.has_store:
            where = f"--data {self.folder}"
            raise CommandFailed(
                f"there is no store in {self.folder}: start a server there (parley serve {where}),"
                f" make an empty one (parley store init {where}),"
                " or name the folder of yours with --data or PARLEY_DATA"
            )
        file = self.folder / FILE_NAME
        if not os.access(file, os.R_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file))
        return self.folder

    def server_process(self) -> str | None:
        """The process that serves this folder now, "unknown" if it did not say; None when there is none."""
        with (
            contextlib.suppress(FileNotFoundError, NotADirectoryError),
            open(self.folder / LOCK_NAME, encoding="ascii") as lock,
        ):
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return lock.read().strip() or "unknown"
        return None

    def server_url(self) -> str:
        """Where the server of this folder listens, or listened before it crashed; else as configured."""
        with contextlib.suppress(OSError):
            said = (self.folder / URL_NAME).read_text(encoding="utf-8").strip()
            if said:
                return said
        return url_for(self.settings.server.host, self.settings.server.port)

    def how_to_serve(self) -> str:
        """What a person types to have the server of this folder back, at its last address."""
        port = urlsplit(self.server_url()).port
        again = "" if port == self.settings.server.port else f" --port {port}"
        return f"parley serve --data {self.folder}{again}"


def find_place(data: Path | None, file: Path | None, *, tells: bool = True) -> Place:
    """Where a command works: what --data and --config name, each with its variable, else ./data.

    The store is the folder's, unless the configuration says otherwise: CommandFailed if it names another
    engine than the folder's. A store that the configuration names needs no folder: then a ./data that
    happens to be here, and that nobody has named, is no matter. `tells` of mistyped variables.
    """
    settings, unknown = config.load(file)
    if tells:
        _tell_mistyped(unknown)
    folder = data if data is not None else Path(settings.server.data)
    remembered = memory.read(folder)
    if remembered is not None:
        beside, _ = config.load(file, beneath=remembered)
        is_named = data is not None or folder != Path(config.Server().data)
        if beside.store.engine == remembered["store"]["engine"]:
            settings = beside
        elif is_named or beside.store.engine == "sqlite":
            raise CommandFailed(_other_engine(folder, remembered, beside, file))
    settings.server.data = str(folder)
    return Place(settings, folder, unknown)


def place_to_serve(data: Path | None, file: Path | None) -> Place:
    """Where a server works: as configured. CommandFailed if the folder is of another engine."""
    settings, unknown = config.load(file)
    folder = data if data is not None else Path(settings.server.data)
    remembered = memory.read(folder)
    if remembered is not None and settings.store.engine != remembered["store"]["engine"]:
        raise CommandFailed(_other_engine(folder, remembered, settings, file))
    settings.server.data = str(folder)
    return Place(settings, folder, unknown)


def _tell_mistyped(unknown: Sequence[str]) -> None:
    """Variables that are nearly known are told: a command might otherwise do something else than meant."""
    for name in unknown:
        meant = config.suggestion(name)
        if meant is not None:
            note(f"{name} means nothing to Parley; did you mean {meant}?")


def _other_engine(folder: Path, remembered: config.Values, settings: Config, file: Path | None) -> str:
    theirs, ours = remembered["store"]["engine"], settings.store.engine
    is_default = file is None and config.variable_of("store", "engine") not in os.environ
    where = "the default" if is_default else config.origin("store", "engine", file)
    if theirs == "sqlite":
        undo = f"take it out of {where}" if file is not None and where == str(file) else f"unset {where}"
        remedy = f"choose another --data, or {undo}"
    else:
        remedy = (
            f"set PARLEY_STORE_ENGINE={theirs} and the other settings of its nodes, or choose another --data"
        )
    return f"{folder} belongs to a store on {theirs}, and store.engine is {ours} ({where}): {remedy}"


def url_for(host: str, port: int) -> str:
    """The address under which this machine reaches a server that listens there."""
    reachable = EVERYWHERE.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{reachable}:{port}"
