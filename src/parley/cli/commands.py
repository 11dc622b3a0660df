"""The commands of `parley`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Parley: every chat is one ordered, durable log."
)


@app.callback()
def root() -> None:
    pass


@app.command()
def serve(
    data: Annotated[Path | None, typer.Option(help="The data folder.", envvar="PARLEY_DATA")] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="The port to listen on; 0 takes a free one.")] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file.", envvar="PARLEY_CONFIG")] = None,
) -> None:
    """Run the server until SIGTERM."""
    from parley.cli.serving import serve as run

    run(data, host, port, config)
