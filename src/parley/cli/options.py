"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="The data folder (default: ./data).",
        envvar="PARLEY_DATA",
        readable=False,  # commands check this themselves, and say what to do
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="A TOML file.", envvar="PARLEY_CONFIG", readable=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        help="The server's address (default: that of the server on --data).",
        envvar="PARLEY_URL",
    ),
]
Ca = Annotated[
    str | None,
    typer.Option(
        "--ca",
        metavar="FILE",
        help="Authorities (PEM) to trust for https, instead of the system's.",
        envvar="PARLEY_CA",
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        help="Your token. Better in the variable, where no process list shows it.",
        envvar="PARLEY_TOKEN",
    ),
]
As = Annotated[
    str | None,
    typer.Option("--as", metavar="NAME", help="Act as this person, with a new token from the store."),
]
ChatName = Annotated[
    str, typer.Argument(metavar="CHAT", help="A chat's id, its title, or alice,bob for their direct chat.")
]
