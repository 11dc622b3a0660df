"""`parley user …` and `parley token`."""

from __future__ import annotations

import secrets
import sys
from typing import Annotated

import typer

from parley.cli.options import AsJson, ConfigFile, Data

PASSWORD_BYTES = 12
DEVICE_DEFAULT = "cli"
MISTYPED = "the two passwords are not the same; nothing was done"
OPERATOR = "May read /metrics from other machines, with a token: parley token NAME."

app = typer.Typer(no_args_is_help=True, help="People: add and list them.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="A username: a-z 0-9 . _ -")]


@app.command("add")
def add(
    name: Name,
    operator: Annotated[bool, typer.Option("--operator", help=OPERATOR)] = False,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from stdin (its first line).")
    ] = False,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Add somebody. Asks for a password on a terminal; makes one otherwise, or when you enter none."""
    from parley.cli import opening
    from parley.cli.output import note, print_json
    from parley.cli.places import find_place
    from parley.model import User

    place = find_place(data, config)
    if not place.is_shared:
        place.require_store()  # before anybody types a password
    password, is_made = _password(password_stdin)

    async def register() -> User:
        async with opening.open_desk(place) as desk:
            return await desk.people.register(name, password, operator)

    user = opening.run(register())
    if json:
        made = {"password": password} if is_made else {}
        print_json({"user_id": user.user_id, "username": name, "is_operator": operator, **made})
        return
    print(f"{name}  {user.user_id}{'  operator' if operator else ''}")
    if is_made:
        print(f"password  {password}")
        note("The password is shown only now.")


def _password(from_stdin: bool) -> tuple[str, bool]:
    """The password, and whether it was made here."""
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n"), False
    if sys.stdin.isatty():
        given: str = typer.prompt(
            "Password (empty: make one)", "", hide_input=True, show_default=False, err=True
        )
        if given:
            again: str = typer.prompt("Again", hide_input=True, err=True)
            if again != given:
                from parley.cli.places import CommandFailed

                raise CommandFailed(MISTYPED)
            return given, False
    return secrets.token_urlsafe(PASSWORD_BYTES), True


@app.command("list")
def list_users(data: Data = None, config: ConfigFile = None, json: AsJson = False) -> None:
    """List everybody."""
    from parley.cli.output import print_json, print_table
    from parley.cli.places import find_place
    from parley.cli.records import records_of

    found = records_of(find_place(data, config)).users()
    if json:
        print_json({"users": found})
        return
    print_table(
        ["NAME", "USER ID", "CHATS", "SESSIONS", "SINCE", ""],
        (
            (
                u.username,
                u.user_id,
                u.chats,
                u.sessions,
                u.created_at[:10],
                "operator" if u.is_operator else "",
            )
            for u in found
        ),
    )


def token(
    name: Name,
    device: Annotated[
        str, typer.Option("--device", metavar="ID", help="The device it is for.")
    ] = DEVICE_DEFAULT,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Print a new token for somebody. It is shown this once; the store keeps only its hash."""
    from parley.cli import opening
    from parley.cli.output import note, print_json
    from parley.cli.places import find_place
    from parley.clock import iso

    place = find_place(data, config)
    made, session = opening.make_token(place, name, device)
    if json:
        print_json(
            {
                "token": made,
                "user_id": session.user_id,
                "device_id": session.device_id,
                "session_id": session.session_id,
                "expires_at": iso(session.expires_at_ms),
            }
        )
        return
    print(made)
    if sys.stdout.isatty():
        note(f"For the device {device}. Shown only now; valid until 30 days after its last use.")
