"""`parley edit`, `parley delete` and `parley react`: through the server, as a user."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from parley.cli.options import As, AsJson, Ca, ConfigFile, Data, Token, Url
from parley.cli.talk import EMPTY, Chat

if TYPE_CHECKING:
    from collections.abc import Callable

    from parley.cli.remote import Identity
    from parley.client import Chat as OpenChat
    from parley.client.chat import Sending

Message = Annotated[
    str,
    typer.Argument(metavar="MESSAGE", help="The number that tail shows, such as 12, or its id."),
]


def edit(
    chat: Chat,
    message: Message,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The new content; - reads it from stdin.")],
    name: As = None,
    token: Token = None,
    url: Url = None,
    ca: Ca = None,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Give a message of your own another content."""
    from parley.cli import remote
    from parley.cli.places import find_place

    if not text:
        raise typer.BadParameter(EMPTY, param_hint="TEXT")
    with remote.identified(find_place(data, config), name, token, url, ca) as identity:
        content = sys.stdin.read().rstrip("\n") if text == "-" else text
        if not content:
            raise typer.BadParameter(EMPTY, param_hint="TEXT")
        _amend(identity, chat, message, lambda one, message_id: one.edit(message_id, content), json)


def delete(
    chat: Chat,
    message: Message,
    name: As = None,
    token: Token = None,
    url: Url = None,
    ca: Ca = None,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Remove a message for good: your own, or any in a group that you are an admin or owner of."""
    from parley.cli import remote
    from parley.cli.places import find_place

    with remote.identified(find_place(data, config), name, token, url, ca) as identity:
        _amend(identity, chat, message, lambda one, message_id: one.delete(message_id), json)


def react(
    chat: Chat,
    message: Message,
    reaction: Annotated[str, typer.Argument(metavar="REACTION", help="1 to 16 characters, such as 👍.")],
    off: Annotated[bool, typer.Option("--off", help="Take your own reaction back.")] = False,
    name: As = None,
    token: Token = None,
    url: Url = None,
    ca: Ca = None,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """React to a message."""
    from parley.cli import remote
    from parley.cli.places import find_place

    with remote.identified(find_place(data, config), name, token, url, ca) as identity:
        _amend(
            identity, chat, message, lambda one, message_id: one.react(message_id, reaction, on=not off), json
        )


def _amend(
    identity: Identity, chat: str, message: str, work: Callable[[OpenChat, str], Sending], as_json: bool
) -> None:
    """Do it and wait until it is stored, and done."""
    import asyncio

    from parley.cli.output import print_json
    from parley.cli.remote import check_me, find_chat, find_message
    from parley.client import connect
    from parley.wire.frames import Ack

    async def run() -> Ack:
        async with connect(identity.url, identity.token, ca=identity.ca) as client:
            me = await check_me(client.api, identity)
            found = client.chat(await find_chat(client.api, me, chat))
            message_id = await find_message(client.api, found.chat_id, message)
            return await work(found, message_id)

    ack = asyncio.run(run())
    if as_json:
        print_json(ack)
    else:
        print(f"#{ack.sequence}  {ack.message_id}{'  ✓' if sys.stdout.isatty() else ''}")
