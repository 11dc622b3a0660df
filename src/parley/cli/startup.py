"""A fast start for `serve`: a server that was killed must be available again soon.

Half of a plain start's 0.7 s went into imports for other commands' help and tables (typer, rich), for colours
in logs (rich again), and into garbage collections of modules that are never freed. This module avoids them.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

PORT_MAX = 65_535


class ServeOptions(NamedTuple):
    data: str | None = None
    host: str | None = None
    port: int | None = None
    config: str | None = None
    roles: str | None = None


def plain_options(arguments: Sequence[str]) -> ServeOptions | None:
    """The options of a plain `serve`. None: use the normal command line, which explains mistakes."""
    found: dict[str, Any] = {}
    words = list(arguments)
    while words:
        name, equals, value = words.pop(0).partition("=")
        if not equals:
            value = words.pop(0) if words else ""
        key = name.removeprefix("--")
        if not name.startswith("--") or key not in ServeOptions._fields or not value or value.startswith("-"):
            return None
        found[key] = value
    if "port" in found:
        port = found["port"]
        if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= PORT_MAX):
            return None
        found["port"] = int(port)
    return ServeOptions(**found)


def start(options: ServeOptions) -> None:
    """Import only what a server needs, then serve."""
    gc.disable()
    # structlog draws tracebacks with rich if it finds it; a server's log lines do not need that.
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]
    from parley.cli.server import serve

    serve(options, _started)


def _started() -> None:
    """The server is ready, and has excluded permanent objects from garbage collection."""
    gc.enable()
