"""`parley send` and `parley tail`: through the server, as somebody."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from parley.cli.options import As, AsJson, ConfigFile, Data, Token, Url

EMPTY = "the message is empty; nothing was sent"

Chat = Annotated[
    str, typer.Argument(metavar="CHAT", help="A chat's id, its title, or whom the direct chat is with.")
]


def send(
    chat: Chat,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to say; - reads it from stdin.")],
    name: As = None,
    token: Token = None,
    url: Url = None,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Send a message through the server; done when it is stored."""
    from parley.cli import talking
    from parley.cli.places import find_place

    if not text:
        raise typer.BadParameter(EMPTY, param_hint="TEXT")
    with talking.identified(find_place(data, config), name, token, url) as identity:
        content = sys.stdin.read().rstrip("\n") if text == "-" else text
        if not content:
            raise typer.BadParameter(EMPTY, param_hint="TEXT")
        talking.send(identity, chat, content, json)


def tail(
    chat: Chat,
    start: Annotated[
        int | None, typer.Option("--from", metavar="N", min=1, help="Start at this number of the log.")
    ] = None,
    last: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--last",
            metavar="COUNT",
            min=0,
            help="Start with so many of the last ones, with --from of those (default: 10; all with --from).",
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show what is there and end, do not wait.")] = False,
    read: Annotated[bool, typer.Option("--read", help="Mark as read what is shown.")] = False,
    name: As = None,
    token: Token = None,
    url: Url = None,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
    events: Annotated[
        bool, typer.Option("--events", help="With --json: also who types, and receipts of your messages.")
    ] = False,
) -> None:
    """Show a chat and follow it, across restarts of the server, until Ctrl-C.

    On a terminal your own messages have ticks: ✓ stored, ✓✓ received by everybody, coloured once everybody
    has read it; a line below says who types. A message that was written a minute or more before it was stored
    says when: (written 14:02).
    """
    from parley.cli import tailing, talking
    from parley.cli.places import find_place

    if events and not json:
        raise typer.BadParameter("goes with --json only", param_hint="--events")
    wanted = tailing.Wanted(start=start, last=last, once=once, as_json=json, events=events, read=read)
    with talking.identified(find_place(data, config), name, token, url) as identity:
        tailing.tail(identity, chat, wanted)
