"""`parley search`: finds messages through the server, as a user."""

from __future__ import annotations

import asyncio
import re
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from parley.cli.options import As, AsJson, Ca, ConfigFile, Data, Token, Url

if TYPE_CHECKING:
    from parley.cli.remote import Identity
    from parley.wire.search_bodies import ChatHits, Hits, SearchHit

MINUTE_CHARS = len("2026-01-30T14:30")


def search(
    text: Annotated[
        str, typer.Argument(metavar="QUERY", help="Words, all of them; word* finds words that begin so.")
    ],
    chat: Annotated[
        str | None,
        typer.Option("--chat", metavar="CHAT", help="Only this chat: its id, title, or the other person."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100, help="How many at most.")] = 20,
    before: Annotated[
        str | None, typer.Option(metavar="NEXT", help="Go on where an earlier search ended.")
    ] = None,
    name: As = None,
    token: Token = None,
    url: Url = None,
    ca: Ca = None,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Find messages in your chats, the newest first."""
    from parley.cli import remote
    from parley.cli.output import print_json
    from parley.cli.places import find_place

    with remote.identified(find_place(data, config), name, token, url, ca) as identity:
        found, names = asyncio.run(_search(identity, text, chat, before, limit))
    if json:
        print_json(found)
        return
    for hit in found.hits:
        _print(hit, names)
    if found.next is not None:
        print(f"there may be more: --before {found.next}", file=sys.stderr)


async def _search(
    identity: Identity, text: str, chat: str | None, before: str | None, limit: int
) -> tuple[ChatHits | Hits, dict[str, str]]:
    """What was found, and the titles of the chats."""
    from parley.cli.remote import check_me, find_chat
    from parley.client.api import Api, chat_path, open_http
    from parley.wire.search_bodies import ChatHits, Hits

    params = {"q": text, "limit": str(limit)} | ({} if before is None else {"before": before})
    async with open_http(identity.ca) as http:
        api = Api(http, identity.url, identity.token)
        me = await check_me(api, identity)
        if chat is not None:
            path = f"{chat_path(await find_chat(api, me, chat))}/search"
            return await api.call("GET", path, ChatHits, params=params), {}
        found = await api.call("GET", "search", Hits, params=params)
        chats = await api.chats() if found.hits else []
        return found, {one.chat_id: one.title for one in chats if isinstance(one.title, str)}


def _print(hit: SearchHit, names: dict[str, str]) -> None:
    """One line: when, in which chat, where, and the words; on a terminal the hits are bold."""
    from parley.cli.display import PLAIN, STYLES
    from parley.cli.output import printable
    from parley.core.search import HIT_BEGINS, HIT_ENDS

    entry = hit.entry
    styles = {HIT_BEGINS: STYLES["bold"], HIT_ENDS: PLAIN} if sys.stdout.isatty() else {}
    parts = re.split(f"([{HIT_BEGINS}{HIT_ENDS}])", hit.snippet)
    text = "".join(
        styles.get(part, "") if part in (HIT_BEGINS, HIT_ENDS) else printable(part) for part in parts
    )
    at = entry.created_at[:MINUTE_CHARS].replace("T", " ")
    place = printable(names.get(entry.chat_id, entry.chat_id))
    print(f"{at}  {place} #{entry.sequence}  {text}")
