"""`parley api …`: any request to a running server, for what has no command of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from parley.cli.options import As, Ca, ConfigFile, Data, Token, Url

if TYPE_CHECKING:
    from parley.cli.remote import Identity

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")

Method = Annotated[str, typer.Argument(metavar="METHOD", help="GET, POST, PUT, PATCH or DELETE.")]
Path = Annotated[str, typer.Argument(metavar="PATH", help="Without /v1/, such as admin/chats.")]
Query = Annotated[list[str] | None, typer.Argument(metavar="NAME=VALUE", help="Query parameters.")]
Body = Annotated[str | None, typer.Option("--body", metavar="JSON", help="The body of the request.")]


def api(
    method: Method,
    path: Path,
    query: Query = None,
    body: Body = None,
    name: As = None,
    token: Token = None,
    url: Url = None,
    ca: Ca = None,
    data: Data = None,
    config: ConfigFile = None,
) -> None:
    """Send one request to a running server, and print the JSON of its answer. docs/PROTOCOL.md lists them."""
    import msgspec

    from parley.cli import remote
    from parley.cli.output import print_json
    from parley.cli.places import find_place

    if method.upper() not in METHODS:
        raise typer.BadParameter(f"choose of {', '.join(METHODS)}", param_hint="METHOD")
    if any("=" not in one for one in query or []):
        raise typer.BadParameter("write NAME=VALUE", param_hint="NAME=VALUE")
    params = dict(one.split("=", 1) for one in query or [])
    try:
        content = None if body is None else msgspec.json.decode(body, type=dict[str, object])
    except msgspec.DecodeError as error:
        raise typer.BadParameter(str(error), param_hint="--body") from error
    with remote.identified(find_place(data, config), name, token, url, ca) as identity:
        answer = asyncio.run(_call(identity, method.upper(), path.removeprefix("/v1/"), content, params))
    print_json(answer)


async def _call(
    identity: Identity, method: str, path: str, body: dict[str, object] | None, params: dict[str, str]
) -> object:
    from parley.cli.remote import check_me
    from parley.client.api import Api, open_http

    async with open_http(identity.ca) as http:
        caller = Api(http, identity.url, identity.token)
        if identity.name is not None:
            await check_me(caller, identity)
        return await caller.call(method, path, object, body, params or None)
