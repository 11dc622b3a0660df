"""`parley send` and `parley tail`: through the server, as somebody."""

from __future__ import annotations

from typing import Annotated

import typer

from parley.cli.options import As, AsJson, ConfigFile, Data, Token, Url

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

    with talking.identified(find_place(data, config), name, token, url) as identity:
        talking.send(identity, chat, text, json)


def tail(
    chat: Chat,
    start: Annotated[
        int | None, typer.Option("--from", metavar="N", min=1, help="Start at this number of the log.")
    ] = None,
    last: Annotated[
        int, typer.Option("-n", "--last", min=0, help="Start with this many of the last ones.")
    ] = 10,
    once: Annotated[bool, typer.Option("--once", help="Show what is there and end, do not wait.")] = False,
    name: As = None,
    token: Token = None,
    url: Url = None,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Show a chat and follow it, across restarts of the server, until Ctrl-C."""
    from parley.cli import talking
    from parley.cli.places import find_place

    with talking.identified(find_place(data, config), name, token, url) as identity:
        talking.tail(identity, chat, start, last, once=once, as_json=json)
