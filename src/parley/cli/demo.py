"""`parley demo`: a few people, chats and messages for a new user, created through the server."""

from __future__ import annotations

import asyncio
import hashlib
import shlex
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import aiohttp
from msgspec import Struct

from parley.cli.output import note, print_json, print_table
from parley.cli.places import CommandFailed, Place
from parley.cli.remote import send_once
from parley.client import connect
from parley.client.api import Api, open_http
from parley.client.errors import RequestRefused
from parley.clock import iso, wall_clock
from parley.config import is_loopback
from parley.model import ChatType
from parley.wire.bodies import Account, SessionGranted, SessionList

PASSWORD = "parley-demo"
DEVICE_ID = "demo"
PEOPLE = ("mia", "noah", "olga")

Line = tuple[str, str]


class Scene(Struct, frozen=True):
    """A chat and its messages. Without a title it is a direct chat."""

    title: str | None
    people: tuple[str, ...]
    lines: tuple[Line, ...]


SCENES = (
    Scene(
        "Weekend hike",
        ("mia", "noah", "olga"),
        (
            ("mia", "Who is in for a hike on Saturday?"),
            ("noah", "Me! The lake loop?"),
            ("olga", "Count me in, if we are back by six."),
            ("mia", "The loop takes four hours. We could start at nine."),
            ("noah", "Nine is early 😴 but fine. I bring the map."),
            ("olga", "And I bring tea 🍵"),
            ("mia", "Then it is settled: Saturday, nine, at the station."),
        ),
    ),
    Scene(
        "Kitchen rota",
        ("olga", "mia", "noah"),
        (
            ("olga", "Whose week is it?"),
            ("noah", "Mine, I think.\nMonday to Wednesday at least."),
            ("mia", "I take the rest."),
        ),
    ),
    Scene(
        None,
        ("mia", "noah"),
        (
            ("mia", "Is olga's birthday on the 21st?"),
            ("noah", "Yes! Shall we get her the blue teapot?"),
            ("mia", "Perfect. I will order it tonight."),
        ),
    ),
)


class Player(Struct):
    name: str
    user_id: str
    token: str
    api: Api
    read: dict[str, int] = {}
    """By chat: the last line that they sent. They have read everything before it."""


class DemoChat(Struct):
    chat_id: str
    title: str
    messages: int


def fill(url: str, place: Place, as_json: bool, *, anyway: bool = False, ca: str | None = None) -> None:
    host = urlsplit(url).hostname or ""
    if not is_loopback(host) and not anyway:
        raise CommandFailed(
            f"{host} is not this machine, and the demo's password is public"
            "\nto continue nevertheless, add --anyway"
        )
    shown = asyncio.run(_fill(url, ca))
    if as_json:
        print_json({"people": PEOPLE, "password": PASSWORD, "chats": shown})
        return
    _print_next_steps(shown, url, place)


async def _fill(url: str, ca: str | None) -> list[DemoChat]:
    async with open_http(ca) as http:
        players = [await _enter(http, url, name) for name in PEOPLE]
        async with _leaving(players):
            by_name = {player.name: player for player in players}
            shown = [await _play(scene, by_name) for scene in SCENES]
            await asyncio.gather(*(_read(url, player, ca) for player in players))
            return shown


async def _enter(http: aiohttp.ClientSession, url: str, name: str) -> Player:
    """Log in as a person; register them first if the name is not taken."""
    anonymous = Api(http, url)
    try:
        await anonymous.call("POST", "accounts", Account, {"username": name, "password": PASSWORD})
    except RequestRefused as error:
        if error.code == "forbidden":
            raise CommandFailed(
                f'{url} accepts no registrations\nset accounts.registration = "open" for the demo'
            ) from error
        if error.code != "username_taken":
            raise
    try:
        body: dict[str, object] = {"username": name, "password": PASSWORD, "device_id": DEVICE_ID}
        login = await anonymous.call("POST", "sessions", SessionGranted, body)
    except RequestRefused as error:
        raise CommandFailed(
            f"the username {name} is taken; the demo needs the usernames {', '.join(PEOPLE)}"
        ) from error
    return Player(name, login.user_id, login.token, Api(http, url, login.token))


@asynccontextmanager
async def _leaving(players: list[Player]) -> AsyncIterator[None]:
    """End the sessions of the demo."""
    try:
        yield
    finally:
        for player in players:
            await _log_out(player)


async def _log_out(player: Player) -> None:
    sessions = await player.api.call("GET", "sessions", SessionList)
    for session in sessions.sessions:
        if session.current:
            await player.api.call("DELETE", f"sessions/{session.session_id}", object)


async def _play(scene: Scene, players: dict[str, Player]) -> DemoChat:
    """Send every line once: the server recognises a line of an earlier run by its id."""
    chat_id = await _chat(scene, players)
    last = 0
    for number, (name, text) in enumerate(scene.lines):
        now = iso(wall_clock())
        receipt = await send_once(players[name].api, chat_id, text, _line_id(number), now)
        players[name].read[chat_id] = receipt.sequence
        last = max(last, receipt.sequence)
    return DemoChat(chat_id, scene.title or f"{scene.people[0]} and {scene.people[1]}", last)


async def _read(url: str, player: Player, ca: str | None) -> None:
    """Mark everything before the person's own last line as read."""
    async with connect(url, player.token, device_id=DEVICE_ID, ca=ca) as client:
        for chat_id, sequence in player.read.items():
            await client.chat(chat_id).mark_read(sequence)


async def _chat(scene: Scene, players: dict[str, Player]) -> str:
    owner, *others = (players[name] for name in scene.people)
    kind = ChatType.GROUP if scene.title else ChatType.DIRECT
    if scene.title:
        for chat in await owner.api.chats():
            if chat.title == scene.title:
                return chat.chat_id
    return (await owner.api.create_chat(kind, [other.user_id for other in others], scene.title)).chat_id


def _line_id(number: int) -> str:
    digest = hashlib.sha256(f"parley demo, line {number}".encode()).digest()
    return str(uuid.UUID(bytes=digest[:16], version=4))


def _print_next_steps(shown: list[DemoChat], url: str, place: Place) -> None:
    print(f"{', '.join(PEOPLE)} are at {url} (password: {PASSWORD}), in these chats:\n")
    print_table(["CHAT", "ID", "LAST"], ((chat.title, chat.chat_id, f"#{chat.messages}") for chat in shown))
    if place.server_process() is None or place.server_url() != url:
        note(f"\nLog in as one of them with POST {url}/v1/sessions, and set PARLEY_TOKEN to the token.")
        return
    where = "" if str(place.folder) == "data" else f" --data {shlex.quote(str(place.folder))}"
    title = shlex.quote(shown[0].title)
    print("\nTry next, each in a terminal of its own:\n")
    print(f"  parley tail {title} --as mia{where}")
    print(f'  parley send {title} "I bring cake" --as noah{where}')
    print(f"  parley check{where}")
