"""`parley user …` and `parley token`."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parley.cli.options import AsJson, ConfigFile, Data

if TYPE_CHECKING:
    from parley.audit import FoundRecords, OperatorCall
    from parley.cli.offline import OfflineServices
    from parley.cli.places import Place
    from parley.model import ErasureReport, Session

PASSWORD_BYTES = 12
DEVICE_DEFAULT = "cli"
SCOPES_DEFAULT = "send,read"
AUDIT_LIMIT_MAX = 1_000
MISTYPED = "the two passwords differ; nothing was changed"
OPERATOR = "May use /v1/admin, and /metrics of an exposed server, with a token: parley token NAME."
BOT = "A program: shown as a bot, without unread counts and notifications."
API = "A token for a program, which is bound to no device and does not expire by itself."
SCOPES = "What it may do, of send,read,admin."
ERASE = "Also remove what they wrote; the server does it, and parley user erasure shows what it removed."
SURE = "Delete {name} for good? Their messages stay, the account does not come back"

app = typer.Typer(no_args_is_help=True, help="People: add and list them, and act when something happens.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="A username: a-z 0-9 . _ -")]
Person = Annotated[str, typer.Argument(metavar="NAME", help="A username or user id.")]
PasswordStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from stdin (its first line).")
]


@app.command("add")
def add(
    name: Name,
    operator: Annotated[bool, typer.Option("--operator", help=OPERATOR)] = False,
    bot: Annotated[bool, typer.Option("--bot", help=BOT)] = False,
    password_stdin: PasswordStdin = False,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Add a user. On a terminal it asks for a password; otherwise, or if you enter none, it generates one."""
    from parley.cli import offline
    from parley.cli.output import note, print_json
    from parley.model import User

    place = _place(data, config)
    password, is_generated = _password(password_stdin)

    async def register() -> User:
        async with offline.open_services(place) as services:
            action = "operator.add" if operator else "user.add"
            async with services.user_admin.audited(offline.who_acts(), action, "", name):
                return await services.people.register(name, password, operator, is_bot=bot, by_operator=True)

    user = offline.run(register())
    if json:
        made = {"password": password} if is_generated else {}
        print_json(
            {"user_id": user.user_id, "username": name, "is_operator": operator, "is_bot": bot, **made}
        )
        return
    print(f"{name}  {user.user_id}{'  operator' if operator else ''}{'  bot' if bot else ''}")
    if is_generated:
        print(f"password  {password}")
        note("The password is shown only once.")


def _password(from_stdin: bool) -> tuple[str, bool]:
    """The password, and whether it was generated."""
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n"), False
    if sys.stdin.isatty():
        given: str = typer.prompt(
            "Password (empty: generate one)", "", hide_input=True, show_default=False, err=True
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
    """List all users."""
    from parley.cli.offline import ask
    from parley.cli.output import print_json, print_table
    from parley.cli.places import find_place
    from parley.clock import wall_clock
    from parley.records.listing import Listing

    found = ask(find_place(data, config), lambda engine: Listing(engine, wall_clock).users())
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
                " ".join(filter(None, [u.state if u.state != "active" else "", "operator" * u.is_operator])),
            )
            for u in found
        ),
    )


# When something happens


@app.command("passwd")
def passwd(
    name: Person,
    password_stdin: PasswordStdin = False,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Set a person's password, and end all their sessions. Asks for it like parley user add."""
    from parley.cli.output import note

    place = _place(data, config)
    password, is_generated = _password(password_stdin)

    async def act(services: OfflineServices, call: OperatorCall, user_id: str) -> None:
        await services.user_admin.set_password(call, user_id, password)

    user_id = _act(place, name, act)
    shown = {"password": password} if is_generated else {}
    _tell(json, name, user_id, "password set, all sessions ended", shown)
    if is_generated and not json:
        note("The password is shown only now.")


@app.command("disable")
def disable(name: Person, data: Data = None, config: ConfigFile = None, json: AsJson = False) -> None:
    """Stop an account: nothing is stored of theirs any more, their sessions end, and they cannot log in."""

    async def act(services: OfflineServices, call: OperatorCall, user_id: str) -> None:
        await services.user_admin.disable(call, user_id)

    _tell(json, name, _act(_place(data, config), name, act), "disabled")


@app.command("enable")
def enable(name: Person, data: Data = None, config: ConfigFile = None, json: AsJson = False) -> None:
    """Let a disabled person log in again."""

    async def act(services: OfflineServices, call: OperatorCall, user_id: str) -> None:
        await services.user_admin.enable(call, user_id)

    _tell(json, name, _act(_place(data, config), name, act), "active")


@app.command("delete")
def delete(
    name: Person,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    erase: Annotated[bool, typer.Option("--erase", help=ERASE)] = False,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Delete an account for good. Its name is free, its messages stay under an author called deleted."""
    place = _place(data, config)
    if not yes and sys.stdin.isatty():
        typer.confirm(SURE.format(name=name), abort=True, err=True)

    async def act(services: OfflineServices, call: OperatorCall, user_id: str) -> None:
        await services.user_admin.delete(call, user_id)
        for deletion in await services.kinds.account_admin.deletions():
            if deletion.user_id == user_id:
                await services.deletions.advance(deletion)
        if erase:
            async with services.user_admin.audited(call, "user.erase", user_id, "bodies"):
                await offline.begin_erasure(services.engine, user_id)

    from parley.cli import offline

    _tell(json, name, _act(place, name, act), "deleted, bodies are being removed" if erase else "deleted")


@app.command("erasure")
def erasure(
    user_id: Annotated[str, typer.Argument(metavar="USER_ID", help="Of a person who was erased.")],
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Show what the erasure of a person has removed."""
    from parley.cli import offline
    from parley.cli.output import print_json
    from parley.cli.places import CommandFailed

    async def look(place: Place) -> ErasureReport | None:
        async with offline.open_services(place) as services:
            return await services.kinds.erasure_reports.get(user_id)

    report = offline.run(look(_place(data, config)))
    if report is None:
        raise CommandFailed(f"nothing was erased of {user_id}")
    if json:
        print_json(report)
        return
    when = f"finished {report.finished_at}" if report.finished_at else "not finished"
    print(f"{user_id}  begun {report.begun_at}, {when}")
    print(f"bodies  {report.hot} in the engine, {report.cold} in the cold tier")
    for chat in report.chats:
        kept = "under a legal hold, nothing removed" if chat.is_held else f"{chat.hot} and {chat.cold}"
        print(f"  {chat.chat_id}  {kept}")
    print(f"{report.cursors} positions, {report.devices} devices, {report.reports} reasons of reports")


@app.command("sessions")
def sessions(name: Person, data: Data = None, config: ConfigFile = None, json: AsJson = False) -> None:
    """List a person's sessions, the last used first."""
    from parley.cli.output import print_json, print_table
    from parley.clock import iso

    found: list[Session] = []

    async def act(services: OfflineServices, call: OperatorCall, user_id: str) -> None:
        found.extend(await services.user_admin.sessions(user_id))

    _act(_place(data, config), name, act)
    rows = [
        {
            "session_id": session.session_id,
            "device_id": session.device_id,
            "device_name": session.device_name,
            "created_at": iso(session.created_at_ms),
            "last_used_at": iso(session.last_used_at_ms),
            "expires_at": iso(session.expires_at_ms),
        }
        for session in found
    ]
    if json:
        print_json({"sessions": rows})
        return
    print_table(
        ["SESSION", "DEVICE", "NAME", "SINCE", "LAST USED", "EXPIRES"], [list(row.values()) for row in rows]
    )


@app.command("revoke")
def revoke(
    name: Person,
    session: Annotated[
        str, typer.Option("--session", metavar="ID", help="Only this one (default: all of them).")
    ] = "",
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """End a person's sessions: their tokens are refused from now on. They may log in again."""

    async def act(services: OfflineServices, call: OperatorCall, user_id: str) -> None:
        await services.user_admin.end_sessions(call, user_id, session)

    says = "session ended" if session else "all sessions ended"
    _tell(json, name, _act(_place(data, config), name, act), says)


@app.command("operator")
def operator_of(
    name: Person,
    off: Annotated[bool, typer.Option("--off", help="Not any more.")] = False,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Make a person an operator, or with --off no operator any more."""

    async def act(services: OfflineServices, call: OperatorCall, user_id: str) -> None:
        await services.user_admin.set_operator(call, user_id, is_operator=not off)

    says = "no operator any more" if off else "operator"
    _tell(json, name, _act(_place(data, config), name, act), says)


@app.command("audit")
def audit(
    limit: Annotated[int, typer.Option("--limit", min=1, max=AUDIT_LIMIT_MAX, help="How many.")] = 50,
    before: Annotated[str, typer.Option("--before", metavar="ID", help="Those before this record.")] = "",
    actor: Annotated[str, typer.Option("--actor", metavar="WHO", help="Of this operator.")] = "",
    action: Annotated[str, typer.Option("--action", metavar="WHAT", help="Such as user.disable.")] = "",
    target: Annotated[str, typer.Option("--target", metavar="ID", help="About this.")] = "",
    since: Annotated[str, typer.Option("--since", metavar="TIME", help="Since then (ISO 8601).")] = "",
    until: Annotated[str, typer.Option("--until", metavar="TIME", help="Before then (ISO 8601).")] = "",
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Show what operators did, by HTTP or by these commands, the newest first."""
    from parley.audit import WantedRecords
    from parley.cli import offline
    from parley.cli.output import print_json, print_table
    from parley.cli.places import CommandFailed
    from parley.clock import from_iso, iso

    try:
        wanted = WantedRecords(
            actor=actor,
            action=action,
            target=target,
            since=iso(from_iso(since)) if since else "",
            until=iso(from_iso(until)) if until else "",
        )
    except ValueError as error:
        raise CommandFailed(f"not a time: {error}") from error

    async def read(place: Place) -> FoundRecords:
        async with offline.open_services(place) as services:
            return await services.user_admin.records(before, limit, wanted)

    page = offline.run(read(_place(data, config)))
    found = page.records
    if json:
        print_json({"records": found, "next": page.next_before})
        return
    print_table(
        ["WHEN", "WHO", "WHAT", "WHOM", "DETAIL", "OUTCOME", "RECORD", "TOKEN"],
        ((r.at, r.actor, r.action, r.target_id, r.detail, r.outcome, r.audit_id, r.token_id) for r in found),
    )


def _place(data: Path | None, config: Path | None) -> Place:
    from parley.cli.places import find_place

    place = find_place(data, config)
    if not place.is_shared:
        place.require_store()  # before the user types anything
    return place


def _act(
    place: Place, name: str, act: Callable[[OfflineServices, OperatorCall, str], Awaitable[None]]
) -> str:
    """Do something to a person, directly in the store; returns their id."""
    from parley.cli import offline
    from parley.cli.names import require_user

    async def acted() -> str:
        async with offline.open_services(place) as services:
            user_id = await require_user(services.kinds.listing, name)
            await act(services, offline.who_acts(), user_id)
            return user_id

    return offline.run(acted())


def _tell(json: bool, name: str, user_id: str, says: str, more: dict[str, str] | None = None) -> None:
    from parley.cli.output import print_json

    if json:
        print_json({"user_id": user_id, "username": name, "result": says, **(more or {})})
        return
    print(f"{name}  {user_id}  {says}")
    for label, value in (more or {}).items():
        print(f"{label}  {value}")


def token(
    name: Name,
    device: Annotated[
        str, typer.Option("--device", metavar="ID", help="The device it is for.")
    ] = DEVICE_DEFAULT,
    api: Annotated[bool, typer.Option("--api", help=API)] = False,
    scopes: Annotated[str, typer.Option("--scopes", metavar="LIST", help=SCOPES)] = SCOPES_DEFAULT,
    chat: Annotated[
        str, typer.Option("--chat", metavar="CHAT", help="The only chat that it is for (with --api).")
    ] = "",
    expires: Annotated[
        int | None, typer.Option("--expires", metavar="DAYS", min=1, help="When it ends (with --api).")
    ] = None,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Print a new token for a user, or with --api for a program. It is shown once: the store has its hash."""
    from parley.cli.output import note, print_json
    from parley.cli.places import find_place

    place = find_place(data, config)
    if api:
        shown = _api_token(place, name, scopes, chat, expires)
        told = "For a program. Shown only once; valid until it is revoked, or expires."
    else:
        if chat or expires is not None or scopes != SCOPES_DEFAULT:
            raise typer.BadParameter("--scopes, --chat and --expires need --api")
        shown = _device_token(place, name, device)
        told = f"For the device {device}. Shown only once; valid until 30 days after its last use."
    if json:
        print_json(shown)
        return
    print(shown["token"])
    if sys.stdout.isatty():
        note(told)


def _device_token(place: Place, name: str, device: str) -> dict[str, object]:
    from parley.cli import offline
    from parley.clock import iso

    made, session = offline.make_token(place, name, device)
    return {
        "token": made,
        "user_id": session.user_id,
        "device_id": session.device_id,
        "session_id": session.session_id,
        "expires_at": iso(session.expires_at_ms),
    }


def _api_token(place: Place, name: str, listed: str, chat: str, expires: int | None) -> dict[str, object]:
    from parley.cli import offline
    from parley.clock import iso
    from parley.config import split
    from parley.model import Scope

    try:
        scopes = [Scope(scope) for scope in split(listed)]
    except ValueError as error:
        raise typer.BadParameter(f"--scopes: {error}; choose of send,read,admin") from error
    made, kept = offline.make_api_token(place, name, scopes, chat, expires)
    bound = {"chat_id": kept.chat_id} if kept.chat_id else {}
    return {
        "token": made,
        "token_id": kept.token_id,
        "name": kept.name,
        "user_id": kept.user_id,
        "scopes": [scope.value for scope in kept.scopes],
        **bound,
        "expires_at": iso(kept.expires_at_ms) if kept.expires_at_ms else None,
    }
