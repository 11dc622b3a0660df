"""`parley token list` and `parley token revoke`: the tokens of programs. `parley token NAME` makes one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from parley.cli import people
from parley.cli.default_command import MAKE, WithDefault
from parley.cli.options import AsJson, ConfigFile, Data

if TYPE_CHECKING:
    from parley.model import ApiToken

HEADINGS = ["TOKEN", "NAME", "ACTS FOR", "SCOPES", "CHAT", "SINCE", "LAST USED", "EXPIRES", "MADE BY"]


app = typer.Typer(
    cls=WithDefault,
    help="Print a new token for a user: parley token NAME. List and revoke tokens of programs.",
)
app.command(MAKE)(people.token)


@app.command("list")
def list_tokens(data: Data = None, config: ConfigFile = None, json: AsJson = False) -> None:
    """List the tokens of programs, the oldest first. The tokens themselves are not known to anybody."""
    from parley.cli import offline
    from parley.cli.output import print_json, print_table
    from parley.cli.places import find_place
    from parley.clock import iso

    async def look() -> list[ApiToken]:
        async with offline.open_services(find_place(data, config)) as services:
            return await services.api_tokens.all()

    rows = [
        {
            "token_id": token.token_id,
            "name": token.name,
            "user_id": token.user_id,
            "scopes": [scope.value for scope in token.scopes],
            "chat_id": token.chat_id or None,
            "created_at": iso(token.created_at_ms),
            "last_used_at": iso(token.last_used_at_ms) if token.last_used_at_ms else None,
            "expires_at": iso(token.expires_at_ms) if token.expires_at_ms else None,
            "created_by": token.makers[0] if token.makers else None,
        }
        for token in offline.run(look())
    ]
    if json:
        print_json({"tokens": rows})
        return
    print_table(HEADINGS, [list({**row, "scopes": ",".join(row["scopes"] or ())}.values()) for row in rows])


@app.command("revoke")
def revoke_token(
    token_id: Annotated[str, typer.Argument(metavar="TOKEN_ID", help="As parley token list shows it.")],
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Revoke a token of a program: it is refused from now on."""
    from parley.cli import offline
    from parley.cli.output import print_json
    from parley.cli.places import find_place

    async def act() -> None:
        async with (
            offline.open_services(find_place(data, config)) as services,
            services.user_admin.audited(offline.who_acts(), "token.revoke", token_id),
        ):
            await services.api_tokens.revoke(token_id)

    offline.run(act())
    if json:
        print_json({"token_id": token_id, "result": "revoked"})
    else:
        print(f"{token_id}  revoked")
