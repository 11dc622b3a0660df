"""`send` and `tail` over the API: the user's identity, the chat, and the send."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import uuid
from collections.abc import Iterator
from urllib.parse import quote

from msgspec import Struct

from parley.cli.output import print_json
from parley.cli.places import CommandFailed, Place
from parley.client import BadToken, CannotConnect, RequestRefused
from parley.client.api import Api, open_http
from parley.clock import iso, wall_clock
from parley.ids import CHAT
from parley.wire.bodies import Me
from parley.wire.frames import OverviewChat, Peer, Receipt

DEVICE_ID = "cli"
SEND_TRIES_MAX = 4
RETRY_MS = 500
RETRY_MS_MAX = 2_000
"""If the server asks to wait longer than this, the command fails: a person is waiting."""


class Identity(Struct):
    """A server, and a token for it. `name`: the user it must belong to. `ca`: trusted authorities."""

    url: str
    token: str
    name: str | None
    ca: str | None = None


@contextlib.contextmanager
def identified(
    place: Place, name: str | None, token: str | None, url: str | None, ca: str | None = None
) -> Iterator[Identity]:
    """The user: the token's owner, or the named user with a new token from the store, revoked at the end."""
    if token is not None:
        with explained(url or place.server_url()):
            yield Identity(url or place.server_url(), token, name, ca)
        return
    if name is None:
        raise CommandFailed("who are you? Use --as NAME next to the data folder, or set PARLEY_TOKEN")
    if not place.is_shared:
        place.require_store()
        if url is None and place.server_process() is None:
            raise CommandFailed(f"no server runs on {place.folder}\nstart it: {place.how_to_serve()}")
    from parley.cli.offline import end_session, make_token  # needs the server's packages

    token, session = make_token(place, name, DEVICE_ID)
    try:
        with explained(url or place.server_url(), place):
            yield Identity(url or place.server_url(), token, name, ca)
    finally:
        end_session(place, session)


@contextlib.contextmanager
def explained(url: str, place: Place | None = None) -> Iterator[None]:
    """Explain a refused token: if it came from a store, the server uses another store."""
    try:
        yield
    except BadToken as error:
        if place is None:
            message = f"the server at {url} refuses this token: {error}\ncreate a new one: parley token NAME"
        else:
            message = _other_store(url, place)
        raise CommandFailed(message) from error


def _other_store(url: str, place: Place) -> str:
    """The server does not know a token that was just created: it uses another store."""
    if place.is_shared:
        where, what, remedy = f"on {place.settings.store.engine}", "store", "the node's settings"
    else:
        where, what, remedy = f"in {place.folder}", "folder", "its folder with --data"
    return (
        f"the server at {url} does not know a token created {where}: it runs on another {what}"
        f"\nname {remedy}, or the right server with --url"
    )


# Sending


def send(identity: Identity, chat: str, content: str, as_json: bool) -> None:
    receipt = asyncio.run(_send(identity, chat, content, iso(wall_clock())))
    if as_json:
        print_json(receipt)
    else:
        print(f"#{receipt.sequence}  {receipt.message_id}{'  ✓' if sys.stdout.isatty() else ''}")


async def _send(identity: Identity, chat: str, content: str, display_time: str) -> Receipt:
    async with open_http(identity.ca) as http:
        api = Api(http, identity.url, identity.token)
        me = await check_me(api, identity)
        chat_id = await find_chat(api, me, chat)
        return await send_once(api, chat_id, content, str(uuid.uuid4()), display_time)


async def send_once(
    api: Api, chat_id: str, content: str, client_message_id: str, display_time: str
) -> Receipt:
    """Store a message once, with any number of tries: every try has the same id and time."""
    path = f"chats/{quote(chat_id, safe='')}/messages"
    body: dict[str, object] = {
        "client_message_id": client_message_id,
        "content": content,
        "display_time": display_time,
    }
    for attempt in range(1, SEND_TRIES_MAX + 1):
        try:
            return await api.call("POST", path, Receipt, body)
        except (RequestRefused, CannotConnect) as error:
            delay_ms = _retry_ms(error, attempt)
            if delay_ms is None:
                raise
        await asyncio.sleep(delay_ms / 1000)
    raise AssertionError("the last try returns or raises")


def _retry_ms(error: RequestRefused | CannotConnect, attempt: int) -> int | None:
    """How long to wait before the next try; None when there is none."""
    if attempt == SEND_TRIES_MAX or (attempt == 1 and isinstance(error, CannotConnect)):
        return None
    if isinstance(error, RequestRefused):
        wanted_ms = error.refusal.retry_after_ms or RETRY_MS
        return wanted_ms if error.temporary and wanted_ms <= RETRY_MS_MAX else None
    return RETRY_MS


# Who and where


async def check_me(api: Api, identity: Identity) -> Me:
    me = await api.call("GET", "me", Me)
    if identity.name not in (None, me.username, me.user_id):
        raise CommandFailed(f"this token is {me.username}'s, not {identity.name}'s; use only one of the two")
    return me


async def find_chat(api: Api, me: Me, name: str) -> str:
    """The id of the user's only chat with this id, this title, or this other person."""
    if name.startswith(CHAT):
        return name
    chats = await api.chats()
    titled = [chat.chat_id for chat in chats if (chat.title or "").casefold() == name.casefold()]
    found = titled or [chat.chat_id for chat in chats if _is_with(chat, name, me.username)]
    if len(found) > 1:
        raise CommandFailed("\n".join([f"several chats are called {name}; use one of these ids:", *found]))
    if not found:
        known = [chat.title for chat in chats if isinstance(chat.title, str)][:10]
        others = f"\n{me.username} is in: {', '.join(known)}" if known else ""
        raise CommandFailed(f"{me.username} is in no chat called {name}{others}")
    return found[0]


def _is_with(chat: OverviewChat, name: str, my_name: str) -> bool:
    """Whether it is the direct chat with the named person; the user's own name may be given too."""
    wanted = {part.strip() for part in name.split(",")} - {my_name}
    return isinstance(chat.peer, Peer) and wanted == {chat.peer.username}
