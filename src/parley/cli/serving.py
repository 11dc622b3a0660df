"""`parley serve`."""

from __future__ import annotations

import sys
from pathlib import Path

import structlog
import uvloop

from parley import app, config
from parley.errors import ParleyError
from parley.telemetry import configure_logs


def serve(data: Path | None, host: str | None, port: int | None, file: Path | None) -> None:
    """Run the server; a problem at start is one sentence and exit status 1."""
    try:
        settings, unknown = config.load(file)
        settings.server.data = str(data) if data is not None else settings.server.data
        settings.server.host = host if host is not None else settings.server.host
        settings.server.port = port if port is not None else settings.server.port
        configure_logs(settings.log.level, settings.log.format == "json")
        for name in unknown:
            structlog.get_logger("parley").warning("unknown environment variable", name=name)
        uvloop.run(app.serve(settings, _say_ready))
    except (ParleyError, OSError) as error:
        print(f"parley: {error}", file=sys.stderr)
        raise SystemExit(1) from error


def _say_ready(url: str) -> None:
    print(f"parley ready on {url}", flush=True)
