"""`parley user invite …` and `parley user reset`: links that operators make, directly in the store."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from parley.cli.default_command import MAKE, WithDefault
from parley.cli.options import AsJson, ConfigFile, Data, Url

if TYPE_CHECKING:
    from pathlib import Path

    from parley.cli.places import Place
    from parley.model import Link

HOURS_SECONDS = 3_600
DAY_SECONDS = 86_400
LISTED_MAX = 1_000
SHOWN_ONCE = "The link is shown only once: the store has a digest of it."

invite = typer.Typer(cls=WithDefault, help="Links by which people register: make, list and revoke them.")

Uses = Annotated[int, typer.Option("--uses", metavar="N", min=1, help="How many people may use it.")]
Days = Annotated[int, typer.Option("--expires", metavar="DAYS", min=1, help="How long it works.")]
Note = Annotated[str, typer.Option("--note", help="For operators: whom it is for.")]
LinkId = Annotated[str, typer.Argument(metavar="LINK_ID", help="As parley user invite list shows it.")]
Person = Annotated[str, typer.Argument(metavar="NAME", help="A username or user id.")]


@invite.command(MAKE)
def make_invite(
    uses: Uses = 1,
    expires: Days = 7,
    note: Note = "",
    url: Url = None,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Print a new link by which people register: once, or as often as --uses says."""
    from parley.cli import offline
    from parley.cli.places import CommandFailed

    place = _place(data, config)
    if place.settings.accounts.registration == "closed":
        raise CommandFailed('accounts.registration is "closed": no link opens it; set it to "invite"')

    async def make() -> tuple[str, Link]:
        async with offline.open_services(place) as services:
            return await services.links.invite(offline.who_acts(), uses, expires * DAY_SECONDS, note)

    _print_made(place, url, json, *offline.run(make()))


@invite.command("list")
def list_invites(data: Data = None, config: ConfigFile = None, json: AsJson = False) -> None:
    """List the links by which people register, the newest first."""
    from parley.cli import offline
    from parley.cli.output import print_json, print_table
    from parley.clock import iso, wall_clock
    from parley.core.links import state_of
    from parley.model import LinkPurpose

    place = _place(data, config)

    async def look() -> list[Link]:
        async with offline.open_services(place) as services:
            return await services.links.page(LinkPurpose.INVITE, "", LISTED_MAX)

    now_ms = wall_clock()
    rows = [
        {
            "link_id": link.link_id,
            "state": state_of(link, now_ms).value,
            "used": len(link.used_by),
            "uses": link.uses_max,
            "expires_at": iso(link.expires_at_ms),
            "created_by": link.created_by,
            "note": link.note,
        }
        for link in offline.run(look())
    ]
    if json:
        print_json({"invites": rows})
        return
    headings = ["LINK", "STATE", "USED", "OF", "EXPIRES", "MADE BY", "NOTE"]
    print_table(headings, [list(row.values()) for row in rows])


@invite.command("revoke")
def revoke_invite(
    link_id: LinkId, data: Data = None, config: ConfigFile = None, json: AsJson = False
) -> None:
    """Revoke a link: nobody registers by it from now on."""
    from parley.cli import offline
    from parley.cli.output import print_json

    place = _place(data, config)

    async def revoke() -> None:
        async with offline.open_services(place) as services:
            await services.links.revoke(offline.who_acts(), link_id)

    offline.run(revoke())
    if json:
        print_json({"link_id": link_id, "result": "revoked"})
    else:
        print(f"{link_id}  revoked")


def reset(
    name: Person,
    expires: Annotated[
        int, typer.Option("--expires", metavar="HOURS", min=1, help="How long it works.")
    ] = 24,
    url: Url = None,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Print a link by which a person sets a new password, once. Nothing changes until they do."""
    from parley.cli import offline
    from parley.cli.names import require_user

    place = _place(data, config)

    async def make() -> tuple[str, Link]:
        async with offline.open_services(place) as services:
            user_id = await require_user(services.kinds.listing, name)
            return await services.links.offer_reset(offline.who_acts(), user_id, expires * HOURS_SECONDS)

    _print_made(place, url, json, *offline.run(make()))


def _print_made(place: Place, url: str | None, json: bool, token: str, link: Link) -> None:
    from parley.cli.output import note, print_json
    from parley.clock import iso
    from parley.gateway.link_page import path_of

    address = (url or place.server_url()).rstrip("/") + path_of(token)
    if json:
        about = {"user_id": link.user_id} if link.user_id else {"uses": link.uses_max, "note": link.note}
        print_json(
            {
                "link_id": link.link_id,
                "url": address,
                "token": token,
                "expires_at": iso(link.expires_at_ms),
                **about,
            }
        )
        return
    print(address)
    if sys.stdout.isatty():
        note(f"{SHOWN_ONCE} It works until {iso(link.expires_at_ms)}.")


def _place(data: Path | None, config: Path | None) -> Place:
    from parley.cli.places import find_place

    place = find_place(data, config)
    if not place.is_shared:
        place.require_store()
    return place
