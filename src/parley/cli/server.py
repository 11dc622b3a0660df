"""`parley serve`."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import structlog
import uvloop

from parley import app
from parley.cli import store_file
from parley.cli.places import URL_NAME, CommandFailed, Place, place_to_serve
from parley.cli.problems import complain
from parley.cli.startup import ServeOptions
from parley.config import ROLES_DEFAULT, Config, check_roles, risks, split, suggestion
from parley.errors import ConfigError, ParleyError
from parley.telemetry import configure_logs

ROLES_ALL = "all"


def serve(
    options: ServeOptions,
    started: Callable[[], None] = lambda: None,
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Run the server. If it cannot start, print why and exit with 1. `started` is called when ready."""
    try:
        place = _place(options, environment)
        _configure_logs(place, options, environment)
        if place.server_process() is None:  # otherwise report this error
            check_address(place.settings.server.host, place.settings.server.port)
        _run_announced(place, started)
    except (ParleyError, OSError) as error:
        complain(error)
        raise SystemExit(1) from error


def _place(options: ServeOptions, environment: Mapping[str, str]) -> Place:
    data, file = (
        options.data or environment.get("PARLEY_DATA"),
        options.config or environment.get("PARLEY_CONFIG"),
    )
    place = place_to_serve(Path(data) if data else None, Path(file) if file else None)
    server = place.settings.server
    server.host = options.host if options.host is not None else server.host
    server.port = options.port if options.port is not None else server.port
    if options.roles is not None:
        is_all = options.roles == ROLES_ALL
        place.settings.cluster.roles = list(ROLES_DEFAULT) if is_all else split(options.roles)
        try:
            check_roles(place.settings)
        except ConfigError as error:
            raise ConfigError(f"{error} (--roles)") from error
    return place


def _configure_logs(place: Place, options: ServeOptions, environment: Mapping[str, str]) -> None:
    """As configured; by default text on a terminal, JSON otherwise."""
    settings = place.settings
    is_chosen = "PARLEY_LOG_FORMAT" in environment or options.config or "PARLEY_CONFIG" in environment
    is_person = sys.stderr.isatty() and not is_chosen
    configure_logs(settings.log.level, settings.log.format == "json" and not is_person)
    for name in place.unknown_variables:
        meant = suggestion(name)
        structlog.get_logger("parley").warning(
            "unknown environment variable", name=name, **({"did_you_mean": meant} if meant else {})
        )


def check_address(host: str, port: int) -> None:
    """Try to bind the address before anything is created, so that a failed start leaves nothing behind.

    A name may have addresses of a kind that this machine lacks; one that works is enough.
    """
    with _explained_address(host, port):
        missing: list[OSError] = []
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in found:
            try:
                _bind(family, kind, protocol, address)
            except OSError as error:
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                missing.append(error)
        if len(missing) == len(found):
            raise missing[0]


def _bind(family: int, kind: int, protocol: int, address: Any) -> None:
    """Bind an address as the server will, and release it."""
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        probe.bind(address)


def _run_announced(place: Place, started: Callable[[], None]) -> None:
    """Run the server. Meanwhile its folder has a file with its address."""
    signs: list[Path] = []

    def ready(url: str) -> None:
        parts = urlsplit(url)
        address = place.url_at(parts.hostname or "", parts.port or 0)
        store_file.write(place.folder, place.settings)
        signs.append(place.folder / URL_NAME)
        signs[-1].write_text(address, encoding="utf-8")
        _print_ready(url, address, place)
        started()

    try:
        _run(place.settings, ready)
    finally:
        for sign in signs:
            sign.unlink(missing_ok=True)


def _run(settings: Config, ready: Callable[[str], None]) -> None:
    with _explained_address(settings.server.host, settings.server.port):
        uvloop.run(app.serve(settings, ready))


@contextlib.contextmanager
def _explained_address(host: str, port: int) -> Iterator[None]:
    """Explain why the server cannot listen on an address."""
    try:
        yield
    except socket.gaierror as error:
        raise CommandFailed(f"cannot listen on {host}: there is no such address on this machine") from error
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise CommandFailed(
                f"port {port} of {host} is taken, perhaps by another server; stop it or choose another --port"
            ) from error
        if error.errno in (errno.EACCES, errno.EADDRNOTAVAIL) and error.filename is None:
            raise CommandFailed(
                f"cannot listen on {host} port {port}: {error.strerror}; choose another --host or --port"
            ) from error
        raise


def _print_ready(url: str, address: str, place: Place) -> None:
    """One line to stdout for scripts; more to stderr for a person."""
    print(f"parley ready on {url}", flush=True)
    if sys.stdout.isatty() and sys.stderr.isatty():
        print(_hints(address, place.folder, place.settings), file=sys.stderr)
        for risk in risks(place.settings):
            print(f"  Careful {risk}\n", file=sys.stderr)


def _pages(address: str, settings: Config) -> str:
    """Where to click, or how to get something to click on."""
    from parley.gateway.web_pages import CHAT, CONSOLE, CONSOLE_PAGE, built_pages

    if built_pages(CHAT) is None:
        return f"Chat    {address}/ says how to get its pages"
    has_console = built_pages(CONSOLE) is not None and settings.serves_console(
        urlsplit(address).hostname or ""
    )
    return f"Chat    {address}/" + (f"\n  Console {address}{CONSOLE_PAGE.path}" if has_console else "")


def _hints(address: str, folder: Path, settings: Config) -> str:
    where = "" if str(folder) == "data" or folder == Path("./data") else f" --data {folder}"
    return (
        f"\n  {_pages(address, settings)}"
        f"\n  API     {address}/docs"
        f"\n  Data    {folder}"
        f"\n  Try     parley demo{where}               adds sample people and chats (in another terminal)"
        f"\n          parley user add alice{where}     adds a user"
        "\n  Stop    Ctrl-C\n"
    )
