"""How `send` and `tail` talk to the server: as whom, in which chat, and what a person sees of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from urllib.parse import quote

from msgspec import Struct

from parley.cli.opening import end_session, make_token
from parley.cli.output import print_json, print_json_line
from parley.cli.places import CommandFailed, Place
from parley.cli.showing import EntryPrinter, Names
from parley.client import BadToken, CannotConnect, Client, RequestRefused, connect
from parley.client.api import Api, open_http
from parley.client.keeping import Cursor
from parley.ids import CHAT
from parley.model import ChatType
from parley.wire.frames import Entry
from parley.wire.limits import PAGE_ENTRIES_MAX

DEVICE_ID = "cli"
SEND_TRIES_MAX = 4
RETRY_MS = 500
RETRY_MS_MAX = 2_000
"""A server that asks for more patience than this gets none: a person is waiting."""


class Identity(Struct):
    """A server, and a token for it. `name`: whose it must be."""

    url: str
    token: str
    name: str | None


class Me(Struct):
    user_id: str
    username: str


class Receipt(Struct):
    chat_id: str
    client_message_id: str
    message_id: str
    sequence: int
    epoch: int
    created_at: str
    deduplicated: bool
    conflict: bool


@contextlib.contextmanager
def identified(place: Place, name: str | None, token: str | None, url: str | None) -> Iterator[Identity]:
    """Who speaks: the token's owner, or whoever is named, with a token from the store that ends with this."""
    if token is not None:
        with _explained(url or place.server_url()):
            yield Identity(url or place.server_url(), token, name)
        return
    if name is None:
        raise CommandFailed("say who you are: --as NAME beside the data folder, or a token in PARLEY_TOKEN")
    if not place.is_shared:
        place.require_store()
        if url is None and place.server_process() is None:
            raise CommandFailed(
                f"no server runs on {place.folder}\nstart it: parley serve --data {place.folder}"
            )
    token, session = make_token(place, name, DEVICE_ID)
    try:
        with _explained(url or place.server_url(), place):
            yield Identity(url or place.server_url(), token, name)
    finally:
        end_session(place, session)


@contextlib.contextmanager
def _explained(url: str, place: Place | None = None) -> Iterator[None]:
    """Say why a token is not taken: one from a store means that the server has another one."""
    try:
        yield
    except BadToken as error:
        if place is None:
            says = f"the server at {url} does not take this token: {error}\nmake another: parley token NAME"
        else:
            says = (
                f"the server at {url} does not know a token made in {place.folder}: it runs on another folder"
                "\nname its folder with --data, or the right server with --url"
            )
        raise CommandFailed(says) from error


# Sending


def send(identity: Identity, chat: str, text: str, as_json: bool) -> None:
    content = sys.stdin.read().rstrip("\n") if text == "-" else text
    receipt = asyncio.run(_send(identity, chat, content))
    if as_json:
        print_json(receipt)
    else:
        print(f"#{receipt.sequence}  {receipt.message_id}")


async def _send(identity: Identity, chat: str, content: str) -> Receipt:
    async with open_http() as http:
        api = Api(http, identity.url, identity.token)
        me = await _check_me(api, identity)
        chat_id = await find_chat(api, me, chat)
        return await send_once(api, chat_id, content, str(uuid.uuid4()))


async def send_once(api: Api, chat_id: str, content: str, client_message_id: str) -> Receipt:
    """Store a message once, however often that must be tried: every try has the same id."""
    path = f"chats/{quote(chat_id, safe='')}/messages"
    body: dict[str, object] = {"client_message_id": client_message_id, "content": content}
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


# Reading


def tail(identity: Identity, chat: str, start: int | None, last: int, *, once: bool, as_json: bool) -> None:
    if sys.stderr.isatty():
        logging.basicConfig(format="parley: %(message)s", level=logging.INFO, stream=sys.stderr)
    # Ended by a program as by a person: either way the session made for this is taken back.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_tail(identity, chat, start, last, once, as_json))


async def _tail(
    identity: Identity, chat: str, start: int | None, last: int, once: bool, as_json: bool
) -> None:
    async with connect(identity.url, identity.token) as client:
        me = await _check_me(client.api, identity)
        chat_id = await find_chat(client.api, me, chat)
        info = await client.chat(chat_id).info()
        after = (start - 1) if start is not None else max(0, info.head - last)
        printer = EntryPrinter(Names(client.api), sys.stdout.isatty())
        entries = _pages(client.api, chat_id, after) if once else _follow(client, chat_id, info.epoch, after)
        try:
            async for entry in entries:
                if as_json:
                    print_json_line(entry)
                else:
                    await printer.show(entry)
        finally:
            # That this very command hangs up is no news.
            logging.getLogger("parley.client").setLevel(logging.ERROR)


async def _pages(api: Api, chat_id: str, after: int) -> AsyncIterator[Entry]:
    """What is there now."""
    while True:
        page = await api.history(chat_id, {"after": str(after), "limit": str(PAGE_ENTRIES_MAX)})
        for entry in page.entries:
            yield entry
        if page.to_sequence >= page.head:
            return
        after = page.to_sequence


async def _follow(client: Client, chat_id: str, epoch: int, after: int) -> AsyncIterator[Entry]:
    """What is there and what comes, in order, across reconnects; from a position that a person chose."""
    client.engine.cursors.move(chat_id, Cursor(epoch, after), 0)
    async for entry in client.chat(chat_id):
        yield entry


# Who and where


async def _check_me(api: Api, identity: Identity) -> Me:
    me = await api.call("GET", "me", Me)
    if identity.name not in (None, me.username, me.user_id):
        raise CommandFailed(f"this token is {me.username}'s, not {identity.name}'s; leave one of the two out")
    return me


async def find_chat(api: Api, me: Me, name: str) -> str:
    """The id of the one chat of mine that is meant: by id, title, or whom it is with."""
    if name.startswith(CHAT):
        return name
    chats = await api.chats()
    found = [chat.chat_id for chat in chats if (chat.title or "").casefold() == name.casefold()]
    if not found:
        direct = [chat.chat_id for chat in chats if chat.type is ChatType.DIRECT]
        found = [chat_id for chat_id in direct if await _is_with(api, me, chat_id, name)]
    if len(found) > 1:
        raise CommandFailed("\n".join([f"several chats are called {name}; say which by its id:", *found]))
    if not found:
        known = [chat.title for chat in chats if chat.title][:10]
        others = f"\n{me.username} is in: {', '.join(known)}" if known else ""
        raise CommandFailed(f"{me.username} is in no chat called {name}{others}")
    return found[0]


async def _is_with(api: Api, me: Me, chat_id: str, name: str) -> bool:
    names = Names(api)
    wanted = {part.strip() for part in name.split(",")} - {me.username}
    members = [m.user_id for m in await api.members(chat_id) if m.user_id != me.user_id]
    return wanted == {await names.of(user_id) for user_id in members}
