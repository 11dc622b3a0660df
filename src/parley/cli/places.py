"""The data folder and the server that a command works on."""

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
from parley.cli import store_file
from parley.cli.output import note
from parley.config import Config
from parley.errors import ParleyError
from parley.store.folder import DATABASE_NAME, LOCK_NAME

URL_NAME = "serve.url"
"""A running server writes its address here, so that commands on the same folder find it."""

ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


class CommandFailed(ParleyError):
    """A command failed; the message is for a person and says what to do next."""


class Place(Struct):
    """A data folder and the settings that go with it."""

    settings: Config
    folder: Path
    unknown_variables: list[str]

    @property
    def is_shared(self) -> bool:
        """Whether the configuration names the store, so that it is not in the folder."""
        return self.settings.store.is_shared

    @property
    def is_accessible(self) -> bool:
        """Whether this user may read the folder, if there is one."""
        try:
            return not self.folder.is_dir() or os.access(self.folder, os.R_OK | os.X_OK)
        except PermissionError:
            return False

    @property
    def has_store(self) -> bool:
        return (self.folder / DATABASE_NAME).is_file()

    def require_store(self) -> Path:
        """The folder; CommandFailed if it has no store, PermissionError if this user may not use it."""
        if not self.has_store:
            where = f"--data {self.folder}"
            raise CommandFailed(
                f"there is no store in {self.folder}: start a server there (parley serve {where}),"
                f" create an empty one (parley store init {where}),"
                " or name the folder of yours with --data or PARLEY_DATA"
            )
        file = self.folder / DATABASE_NAME
        if not os.access(file, os.R_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file))
        return self.folder

    def server_process(self) -> str | None:
        """The id of the process that serves this folder now, or "unknown"; None if there is none."""
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
        """The address of this folder's server, or its last one before a crash, or else the configured one."""
        with contextlib.suppress(OSError):
            said = (self.folder / URL_NAME).read_text(encoding="utf-8").strip()
            if said:
                return said
        return self.url_at(self.settings.server.host, self.settings.server.port)

    def url_at(self, host: str, port: int) -> str:
        """The address of a server that listens there.

        With TLS it is named by the first of `server.hosts`, if there is one: a certificate is for a name.
        """
        hosts, scheme = self.settings.server.hosts, self.settings.scheme
        return url_for(hosts[0] if hosts and scheme == "https" else host, port, scheme)

    def how_to_serve(self) -> str:
        """The command that starts the server of this folder again, at its last address."""
        port = urlsplit(self.server_url()).port
        again = "" if port == self.settings.server.port else f" --port {port}"
        return f"parley serve --data {self.folder}{again}"


def find_place(data: Path | None, file: Path | None, *, warns: bool = True) -> Place:
    """The place of a command: from --data and --config, or their variables; by default ./data.

    The folder records its store, unless the configuration names one: CommandFailed if the engines differ. A
    store in the configuration needs no folder: then a ./data that no option names is ignored. `warns`: warn
    about mistyped variables.
    """
    settings, unknown = config.load(file)
    if warns:
        _warn_mistyped(unknown)
    folder = data if data is not None else Path(settings.server.data)
    remembered = store_file.read(folder)
    if remembered is not None:
        beside, _ = config.load(file, beneath=remembered)
        is_named = data is not None or folder != Path(config.ServerConfig().data)
        if beside.store.engine == remembered["store"]["engine"]:
            settings = beside
        elif is_named or not beside.store.is_shared:
            raise CommandFailed(_other_engine(folder, remembered, beside, file))
    settings.server.data = str(folder)
    return Place(settings, folder, unknown)


def place_to_serve(data: Path | None, file: Path | None) -> Place:
    """The place of a server, as configured. CommandFailed if the folder belongs to another engine."""
    settings, unknown = config.load(file)
    folder = data if data is not None else Path(settings.server.data)
    remembered = store_file.read(folder)
    if remembered is not None and settings.store.engine != remembered["store"]["engine"]:
        raise CommandFailed(_other_engine(folder, remembered, settings, file))
    settings.server.data = str(folder)
    return Place(settings, folder, unknown)


def _warn_mistyped(unknown: Sequence[str]) -> None:
    """Warn about variables that seem mistyped."""
    for name in unknown:
        meant = config.suggestion(name)
        if meant is not None:
            note(f"Parley does not know the variable {name}; did you mean {meant}?")


def _other_engine(folder: Path, remembered: config.Values, settings: Config, file: Path | None) -> str:
    theirs, ours = remembered["store"]["engine"], settings.store.engine
    is_default = file is None and config.variable_of("store", "engine") not in os.environ
    where = "the default" if is_default else config.origin("store", "engine", file)
    if theirs == "sqlite":
        undo = f"remove it from {where}" if file is not None and where == str(file) else f"unset {where}"
        remedy = f"choose another --data, or {undo}"
    else:
        remedy = (
            f"set PARLEY_STORE_ENGINE={theirs} and the other settings of its nodes, or choose another --data"
        )
    return f"{folder} belongs to a store on {theirs}, but store.engine is {ours} ({where}): {remedy}"


def url_for(host: str, port: int, scheme: str = "http") -> str:
    """The address at which this machine reaches a server that listens there."""
    reachable = ANY_ADDRESS.get(host, f"[{host}]" if ":" in host else host)
    return f"{scheme}://{reachable}:{port}"
