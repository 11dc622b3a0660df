"""`parley file`: files of messages, through the server, as a user."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self

import typer

from parley.cli.options import As, AsJson, Ca, ConfigFile, Data, Token, Url
from parley.cli.talk import Chat

PROGRESS_SECONDS = 0.2

app = typer.Typer(no_args_is_help=True, help="Files of messages.")


@app.callback()
def root() -> None:
    """A command of its own for each thing."""


@app.command("get")
def get(
    chat: Chat,
    attachment_id: Annotated[
        str, typer.Argument(metavar="FILE_ID", help="The file's id: parley tail shows it.")
    ],
    target: Annotated[
        Path | None,
        typer.Option("--to", metavar="PATH", help="Where to write it (default: its own name, here)."),
    ] = None,
    name: As = None,
    token: Token = None,
    url: Url = None,
    ca: Ca = None,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Download a file, and verify it. A download that broke goes on where it was."""
    from parley.cli import remote
    from parley.cli.places import find_place

    with remote.identified(find_place(data, config), name, token, url, ca) as identity:
        remote.get_file(identity, chat, attachment_id, target, json)


class TransferLine:
    """A progress line on a terminal; nothing elsewhere."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._next = 0.0
        self._is_shown = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def __call__(self, done: int, size: int) -> None:
        now = time.monotonic()
        if self._is_shown and now >= self._next:
            self._next = now + PROGRESS_SECONDS
            share = 100 * done // max(size, 1)
            print(f"\r\x1b[K{self._what}: {share} %", end="", file=sys.stderr, flush=True)
