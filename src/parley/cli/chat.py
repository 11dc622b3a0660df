"""`parley chat …`: chats and their members, straight in the store; beside a running server too."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from parley.cli.options import AsJson, ChatName, ConfigFile, Data
from parley.model import ChatType, Role

if TYPE_CHECKING:
    from parley.cli.chatting import Changed
    from parley.model import Chat

app = typer.Typer(no_args_is_help=True, help="Chats: create, list and show them, change who is in them.")

Person = Annotated[str, typer.Argument(metavar="NAME", help="A username or user id.")]
Title = Annotated[str, typer.Option("--title", help="What it is called.")]
Owner = Annotated[str, typer.Option("--as", "--owner", metavar="NAME", help="Whose chat it is.")]
Members = Annotated[list[str] | None, typer.Argument(metavar="MEMBER", help="Who else is in it.")]
Actor = Annotated[
    str | None,
    typer.Option("--as", metavar="NAME", help="In whose name it is done (default: an owner of the chat)."),
]
AsRole = Annotated[Role, typer.Option("--role", help="What they may do.")]


@app.command("create")
def create(
    owner: Owner,
    title: Title,
    members: Members = None,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Create a group. Its first message will have sequence 1."""
    from parley.cli import chatting
    from parley.cli.places import find_place

    place = find_place(data, config)
    _tell_created(*chatting.create(place, ChatType.GROUP, owner, members or [], title), json)


@app.command("direct")
def direct(
    one: Annotated[str, typer.Argument(metavar="A", help="One person.")],
    other: Annotated[str, typer.Argument(metavar="B", help="The other.")],
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Create the direct chat of two people, or find it: there is only ever one."""
    from parley.cli import chatting
    from parley.cli.places import find_place

    place = find_place(data, config)
    _tell_created(*chatting.create(place, ChatType.DIRECT, one, [other], None), json)


def _tell_created(chat: Chat, is_new: bool, json: bool) -> None:
    from parley.cli.output import note, print_json

    if json:
        print_json({"chat_id": chat.chat_id, "type": chat.chat_type, "title": chat.title, "created": is_new})
        return
    print(chat.chat_id)
    if not is_new:
        note("They had it already.")
    elif sys.stdout.isatty():
        note(f"Next: parley tail {chat.chat_id} --as NAME, and parley send {chat.chat_id} hello --as NAME")


@app.command("list")
def list_chats(
    of: Annotated[str | None, typer.Option("--of", metavar="NAME", help="Only those of this person.")] = None,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """List chats."""
    from parley.cli.naming import require_user
    from parley.cli.output import print_json, print_table
    from parley.cli.places import find_place
    from parley.cli.records import records_of

    records = records_of(find_place(data, config))
    found = records.chats(require_user(records, of) if of else None)
    if json:
        print_json({"chats": found})
        return
    headings = ["CHAT ID", "TYPE", "TITLE", "MEMBERS", "LAST", "SINCE"]
    rows = (
        (c.chat_id, c.type, c.title, c.members, _last(c.sequence_counter), c.created_at[:10]) for c in found
    )
    print_table(headings, rows)


@app.command("show")
def show(chat: ChatName, data: Data = None, config: ConfigFile = None, json: AsJson = False) -> None:
    """Show a chat and its members."""
    from parley.cli.naming import require_chat
    from parley.cli.output import print_json, print_table, printable
    from parley.cli.places import find_place
    from parley.cli.records import records_of

    records = records_of(find_place(data, config))
    found = require_chat(records, chat)
    members = records.members(found.chat_id)
    if json:
        print_json({"chat": found, "members": members})
        return
    print(f"{printable(found.title or '(no title)')}  {found.type}  {found.chat_id}")
    print(f"last {_last(found.sequence_counter)}, since {found.created_at}\n")
    headings = ["MEMBER", "ROLE", "USER ID", "JOINED AT", "RECEIVED", "READ"]
    rows = (
        (m.username, m.role, m.user_id, m.joined_sequence, m.last_acked_sequence, m.read_up_to)
        for m in members
    )
    print_table(headings, rows)


@app.command("add")
def add(
    chat: ChatName,
    person: Person,
    role: AsRole = Role.MEMBER,
    actor: Actor = None,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Add somebody to a chat. Everybody in it sees that, as an entry of its log."""
    from parley.cli import chatting
    from parley.cli.places import find_place

    changed = chatting.add(find_place(data, config), chat, person, role, actor)
    _tell_changed(changed, f"{person} is in the chat as {role}", json)


@app.command("remove")
def remove(
    chat: ChatName,
    person: Person,
    actor: Actor = None,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Remove somebody from a chat; with --as themselves, they leave."""
    from parley.cli import chatting
    from parley.cli.places import find_place

    changed = chatting.remove(find_place(data, config), chat, person, actor)
    _tell_changed(changed, f"{person} is no longer in the chat", json)


@app.command("role")
def role(
    chat: ChatName,
    person: Person,
    new_role: Annotated[Role, typer.Argument(metavar="ROLE", help="owner, admin or member.")],
    actor: Actor = None,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Change what a member may do."""
    from parley.cli import chatting
    from parley.cli.places import find_place

    changed = chatting.set_role(find_place(data, config), chat, person, new_role, actor)
    _tell_changed(changed, f"{person} is {new_role} of the chat", json)


@app.command("rename")
def rename(
    chat: ChatName,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="What it is called from now on.")],
    actor: Actor = None,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Give a group another title."""
    from parley.cli import chatting
    from parley.cli.places import find_place

    changed = chatting.rename(find_place(data, config), chat, title, actor)
    _tell_changed(changed, "the chat has its new title", json)


def _tell_changed(changed: Changed, says: str, json: bool) -> None:
    from parley.cli.output import print_json, printable

    if json:
        print_json(changed)
    else:
        print(printable(f"{says}, since #{changed.sequence}"))


def _last(counter: int | None) -> str:
    return "no counter!" if counter is None else f"#{counter}" if counter else "-"
