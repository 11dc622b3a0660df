"""`parley explain`: what became of a message, from the store and from the nodes that run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from parley.cli.options import As, AsJson, Ca, ConfigFile, Data, Token, Url

if TYPE_CHECKING:
    from parley.cli.places import Place
    from parley.cli.remote import Identity
    from parley.wire.bodies import MessageTimeline, TimelineStep

HEADINGS = ("TIME", "AFTER", "STEP", "PERSON", "DEVICE", "NODE", "DETAIL")
MS_PER_MINUTE, MS_PER_HOUR = 60_000, 3_600_000
SECONDS_SHOWN_MS_MAX = 1_000
DAY_CHARS = len("2026-01-01")

MessageId = Annotated[str, typer.Argument(metavar="MESSAGE_ID", help="The message.")]
To = Annotated[str | None, typer.Option("--to", metavar="NAME", help="Only what concerns this member.")]
Chat = Annotated[str | None, typer.Option("--chat", metavar="ID", help="The chat it is in, if you know.")]


def explain(
    message_id: MessageId,
    to: To = None,
    chat: Chat = None,
    name: As = None,
    token: Token = None,
    url: Url = None,
    ca: Ca = None,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Say what became of a message: who was sent it, who has it, and why not, where not.

    Beside a running server it also says what the nodes remember; else only what the store knows.
    """
    from parley.cli.output import print_json
    from parley.cli.places import find_place

    place = find_place(data, config)
    names: dict[str, str] = {}
    if name or token or url:
        from parley.cli import remote

        with remote.identified(place, name, token, url, ca) as identity:
            found = asyncio.run(_fetch(identity, message_id, to or "", chat or ""))
    else:
        found, names = _beside(place, message_id, to, chat or "", ca)
    if json:
        print_json(found)
    else:
        _print(found, names)


async def _fetch(identity: Identity, message_id: str, user_id: str, chat_id: str) -> MessageTimeline:
    from urllib.parse import quote, urlencode

    from parley.cli.remote import check_me
    from parley.client.api import Api, open_http
    from parley.wire.bodies import MessageTimeline

    query = urlencode({"user_id": user_id, "chat_id": chat_id})
    async with open_http(identity.ca) as http:
        api = Api(http, identity.url, identity.token)
        await check_me(api, identity)
        path = f"admin/messages/{quote(message_id, safe='')}/timeline?{query}"
        return await api.call("GET", path, MessageTimeline)


def _beside(
    place: Place, message_id: str, to: str | None, chat_id: str, ca: str | None
) -> tuple[MessageTimeline, dict[str, str]]:
    """From the store, and from whatever nodes can be asked. Returns the names of the people, too."""
    from parley.cli import offline, remote
    from parley.cli.output import note

    is_served = not place.is_shared and place.server_process() is not None
    found, names, operator = offline.run(_from_store(place, message_id, to, chat_id, is_served))
    if is_served and operator is not None:
        user_id = next((known for known, name in names.items() if name == to), to or "")
        with remote.identified(place, operator, None, None, ca) as identity:
            found = asyncio.run(_fetch(identity, message_id, user_id, chat_id))
    elif is_served:
        note(
            "This is what the store knows; the server tells more to an operator:"
            " add one with parley user add NAME --operator"
        )
    elif not place.is_shared:
        note(f"No server runs on {place.folder}: this is what the store knows.")
    elif not (place.settings.redis.url and place.settings.cluster.secret):
        note("This is what the store knows: set redis.url and cluster.secret, and the nodes are asked too.")
    return found, names


async def _from_store(
    place: Place, message_id: str, to: str | None, chat_id: str, is_served: bool
) -> tuple[MessageTimeline, dict[str, str], str | None]:
    """The timeline, the names of the people in it, and an operator if a server runs on the folder."""
    from parley.app.timeline import make_timeline
    from parley.cli import offline
    from parley.cli.names import require_user
    from parley.clock import wall_clock
    from parley.gateway.api.timeline import timeline_body
    from parley.model import AccountState

    async with offline.open_services(place) as services:
        engine, notices = services.engine, services.notices
        traces = [notices.traces] if notices is not None else []
        user_id = await require_user(services.kinds.listing, to) if to else ""
        timeline = make_timeline(place.settings, engine, services.kinds, traces, wall_clock)
        found = timeline_body(await timeline.explain(message_id, user_id, chat_id))
        named = {step.user_id for step in found.steps if isinstance(step.user_id, str)} | {found.sender_id}
        profiles = await services.kinds.accounts.profiles(sorted(named | ({user_id} - {""})))
        names = {known: user.username for known, user in profiles.items()}
        users = await services.kinds.listing.users() if is_served else []
        active = AccountState.ACTIVE.value
        operators = [user.username for user in users if user.is_operator and user.state == active]
        return found, names, operators[0] if operators else None


def _print(found: MessageTimeline, names: dict[str, str]) -> None:
    from parley.cli.output import print_table
    from parley.clock import from_iso
    from parley.model import StepName

    stored = next((step.at for step in found.steps if step.step is StepName.STORED), found.steps[0].at)
    sender = names.get(found.sender_id, found.sender_id)
    print(f"{found.message_id}  from {sender}, at {found.sequence} in {found.chat_id}, stored {stored}")
    rows = [_row(step, stored, from_iso(step.at) - from_iso(stored), names) for step in found.steps]
    print_table(HEADINGS, rows)


def _row(step: TimelineStep, stored: str, after_ms: int, names: dict[str, str]) -> tuple[object, ...]:
    is_same_day = step.at[:DAY_CHARS] == stored[:DAY_CHARS]
    time = step.at[DAY_CHARS + 1 :].rstrip("Z") if is_same_day else step.at
    user_id = step.user_id if isinstance(step.user_id, str) else ""
    rest = [text if isinstance(text, str) else "" for text in (step.device_id, step.node, step.detail)]
    return time, _duration(after_ms), step.step.value, names.get(user_id, user_id), *rest


def _duration(after_ms: int) -> str:
    """A difference of times, short enough to be read at a glance."""
    sign, ms = "-" if after_ms < 0 else "+", abs(after_ms)
    if not ms:
        return ""
    if ms < SECONDS_SHOWN_MS_MAX:
        return f"{sign}{ms} ms"
    if ms < MS_PER_MINUTE:
        return f"{sign}{ms / 1_000:.1f} s"
    return f"{sign}{ms / MS_PER_MINUTE:.0f} min" if ms < MS_PER_HOUR else f"{sign}{ms / MS_PER_HOUR:.1f} h"
