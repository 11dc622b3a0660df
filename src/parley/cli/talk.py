"""`parley send` and `parley tail`: through the server, as a user."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from parley.cli.options import As, AsJson, Ca, ConfigFile, Data, Token, Url

EMPTY = "the message is empty; nothing was sent"

Chat = Annotated[
    str, typer.Argument(metavar="CHAT", help="A chat's id, its title, or the other person's username.")
]


def send(
    chat: Chat,
    text: Annotated[
        str, typer.Argument(metavar="[TEXT]", help="The message; - reads it from stdin.", show_default=False)
    ] = "",
    reply_to: Annotated[
        str | None,
        typer.Option("--reply-to", metavar="MESSAGE", help="The number or the id of the message it answers."),
    ] = None,
    files: Annotated[
        list[Path] | None,
        typer.Option(
            "--file", metavar="PATH", help="Send this file along; up to 10.", exists=True, dir_okay=False
        ),
    ] = None,
    name: As = None,
    token: Token = None,
    url: Url = None,
    ca: Ca = None,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Send a message, or files, through the server; done when it is stored."""
    from parley.cli import remote
    from parley.cli.places import find_place

    if not text and not files:
        raise typer.BadParameter(EMPTY, param_hint="TEXT")
    with remote.identified(find_place(data, config), name, token, url, ca) as identity:
        content = sys.stdin.read().rstrip("\n") if text == "-" else text
        if not content and not files:
            raise typer.BadParameter(EMPTY, param_hint="TEXT")
        remote.send(identity, chat, content, json, reply_to, files or [])


def tail(
    chat: Chat,
    start: Annotated[
        int | None, typer.Option("--from", metavar="N", min=1, help="Start at this sequence of the log.")
    ] = None,
    last: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--last",
            metavar="COUNT",
            min=0,
            help="Show only so many of the last entries at the start (default: 10; with --from: all).",
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show the existing entries and exit.")] = False,
    read: Annotated[bool, typer.Option("--read", help="Mark the shown entries as read.")] = False,
    name: As = None,
    token: Token = None,
    url: Url = None,
    ca: Ca = None,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
    events: Annotated[
        bool, typer.Option("--events", help="With --json: also typing, and receipts of your messages.")
    ] = False,
) -> None:
    """Show a chat and follow it, across restarts of the server, until Ctrl-C.

    On a terminal your own messages have ticks: ✓ stored, ✓✓ received by all members, coloured once all
    have read it; a line below shows who is typing. A message that was written a minute or more before it was
    stored shows when: (written 14:02).
    """
    from parley.cli import follow, remote
    from parley.cli.places import find_place

    if events and not json:
        raise typer.BadParameter("works only with --json", param_hint="--events")
    wanted = follow.TailOptions(start=start, last=last, once=once, as_json=json, events=events, read=read)
    with remote.identified(find_place(data, config), name, token, url, ca) as identity:
        follow.tail(identity, chat, wanted)
