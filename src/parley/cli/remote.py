"""`send` and `tail` over the API: the user's identity, the chat, and the send."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

import msgspec
from msgspec import UNSET, Struct

from parley.cli.output import print_json
from parley.cli.places import CommandFailed, Place
from parley.client import BadToken, CannotConnect, RequestRefused
from parley.client.api import Api, open_http
from parley.client.files import Files
from parley.clock import iso, wall_clock
from parley.ids import CHAT
from parley.model import AttachedFile
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


def send(
    identity: Identity,
    chat: str,
    content: str,
    as_json: bool,
    reply_to: str | None = None,
    files: Sequence[Path] = (),
) -> None:
    """`reply_to`: the number or the id of the message that it answers."""
    receipt = asyncio.run(_send(identity, chat, content, iso(wall_clock()), reply_to, files))
    if as_json:
        print_json(receipt)
    else:
        print(f"#{receipt.sequence}  {receipt.message_id}{'  ✓' if sys.stdout.isatty() else ''}")


async def _send(
    identity: Identity,
    chat: str,
    content: str,
    display_time: str,
    reply_to: str | None,
    files: Sequence[Path],
) -> Receipt:
    async with open_http(identity.ca) as http:
        api = Api(http, identity.url, identity.token)
        me = await check_me(api, identity)
        chat_id = await find_chat(api, me, chat)
        about = None if reply_to is None else await find_message(api, chat_id, reply_to)
        attachments = [await _upload(api, chat_id, file) for file in files]
        return await send_once(api, chat_id, content, str(uuid.uuid4()), display_time, about, attachments)


async def _upload(api: Api, chat_id: str, path: Path) -> str:
    from parley.cli.files import TransferLine

    with TransferLine(f"sending {path.name}") as line:
        return (await Files(api, chat_id).upload(path, progress=line)).attachment_id


def get_file(identity: Identity, chat: str, attachment_id: str, target: Path | None, as_json: bool) -> None:
    path, file = asyncio.run(_get_file(identity, chat, attachment_id, target))
    if as_json:
        print_json({"path": str(path), **msgspec.to_builtins(file)})
    else:
        print(f"{path}  {file.size:,} bytes")


async def _get_file(
    identity: Identity, chat: str, attachment_id: str, target: Path | None
) -> tuple[Path, AttachedFile]:
    from parley.cli.files import TransferLine

    async with open_http(identity.ca) as http:
        api = Api(http, identity.url, identity.token)
        files = Files(api, await find_chat(api, await check_me(api, identity), chat))
        if target is None:
            info = await files.info(attachment_id)
            own = info.attachment.name if info.attachment is not UNSET else ""
            target = Path(Path(own).name or attachment_id)  # into this folder, whatever a server says
        if await asyncio.to_thread(target.exists):
            raise CommandFailed(f"{target} is there already; name another file with --to")
        with TransferLine(f"getting {target.name}") as line:
            return target, await files.download(attachment_id, target, progress=line)


async def send_once(
    api: Api,
    chat_id: str,
    content: str,
    client_message_id: str,
    display_time: str,
    reply_to: str | None = None,
    attachments: Sequence[str] = (),
) -> Receipt:
    """Store a message once, with any number of tries: every try has the same id and time."""
    path = f"chats/{quote(chat_id, safe='')}/messages"
    body: dict[str, object] = {
        "client_message_id": client_message_id,
        "content": content,
        "display_time": display_time,
    }
    if reply_to is not None:
        body["reply_to"] = reply_to
    if attachments:
        body["attachments"] = list(attachments)
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


async def find_message(api: Api, chat_id: str, name: str) -> str:
    """The id of a message of a chat, by its id or by the number that `parley tail` shows."""
    number = name.removeprefix("#")
    if not number.isascii() or not number.isdecimal():
        return name
    page = await api.history(chat_id, {"after": str(max(0, int(number) - 1)), "limit": "1"})
    found = [entry.message_id for entry in page.entries if entry.sequence == int(number)]
    if not found:
        raise CommandFailed(f"there is no #{number} in this chat")
    return found[0]


def _is_with(chat: OverviewChat, name: str, my_name: str) -> bool:
    """Whether it is the direct chat with the named person; the user's own name may be given too."""
    wanted = {part.strip() for part in name.split(",")} - {my_name}
    return isinstance(chat.peer, Peer) and wanted == {chat.peer.username}
