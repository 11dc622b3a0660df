"""`parley chat …`: chats and their members, directly in the store, also while a server runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from parley.cli.options import AsJson, ChatName, ConfigFile, Data
from parley.model import ChatType, Fanout, Role

if TYPE_CHECKING:
    from parley.chats.invitations import NewcomersAdded
    from parley.cli.chat_changes import Changed
    from parley.store.ports import Engine
    from parley.store.rows import ListedChat, ListedMember

app = typer.Typer(no_args_is_help=True, help="Chats: create, list and show them, change who is in them.")

Person = Annotated[str, typer.Argument(metavar="NAME", help="A username or user id.")]
Title = Annotated[str, typer.Option("--title", help="The title of the group.")]
Owner = Annotated[str, typer.Option("--as", "--owner", metavar="NAME", help="The owner of the group.")]
Members = Annotated[list[str] | None, typer.Argument(metavar="MEMBER", help="The other members.")]
Actor = Annotated[
    str | None,
    typer.Option("--as", metavar="NAME", help="Act as this person (default: an owner of the chat)."),
]
Invited = Annotated[str, typer.Option("--as", metavar="NAME", help="Who was invited.")]
AsRole = Annotated[Role, typer.Option("--role", help="The role of the new member.")]


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
    from parley.cli import chat_changes
    from parley.cli.places import find_place

    place = find_place(data, config)
    _print_created(chat_changes.create(place, ChatType.GROUP, owner, members or [], title), json)


@app.command("direct")
def direct(
    one: Annotated[str, typer.Argument(metavar="A", help="One person.")],
    other: Annotated[str, typer.Argument(metavar="B", help="The other.")],
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Create the direct chat of two people, or find the existing one."""
    from parley.cli import chat_changes
    from parley.cli.places import find_place

    place = find_place(data, config)
    _print_created(chat_changes.create(place, ChatType.DIRECT, one, [other], None), json)


def _print_created(done: NewcomersAdded, json: bool) -> None:
    from parley.cli.output import note, print_json

    chat = done.chat
    assert chat is not None
    if json:
        told = {"chat_id": chat.chat_id, "type": chat.chat_type, "title": chat.title, "created": done.is_new}
        print_json(told | {"invited": done.invited})
        return
    print(chat.chat_id)
    if done.invited:
        note(f"Only invited, because of their settings: {', '.join(done.invited)}")
    if not done.is_new:
        note("It already exists.")
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
    from parley.cli.names import require_user
    from parley.cli.offline import ask
    from parley.cli.output import print_json, print_table
    from parley.cli.places import find_place
    from parley.clock import wall_clock
    from parley.records.listing import Listing

    async def chats(engine: Engine) -> list[ListedChat]:
        listing = Listing(engine, wall_clock)
        return await listing.chats(await require_user(listing, of) if of else None)

    found = ask(find_place(data, config), chats)
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
    from parley.cli.names import require_chat
    from parley.cli.offline import ask
    from parley.cli.output import print_json, print_table, printable
    from parley.cli.places import find_place
    from parley.clock import wall_clock
    from parley.records.listing import Listing

    async def chat_and_members(engine: Engine) -> tuple[ListedChat, list[ListedMember]]:
        listing = Listing(engine, wall_clock)
        found = await require_chat(listing, chat)
        return found, await listing.members(found.chat_id)

    found, members = ask(find_place(data, config), chat_and_members)
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
    """Add a person to a chat, or invite them if their settings ask for it. Members see it in the log."""
    from parley.cli import chat_changes
    from parley.cli.places import find_place

    changed = chat_changes.add(find_place(data, config), chat, person, role, actor)
    is_added = changed.sequence is not None
    _print_changed(changed, f"{person} is {'in the chat' if is_added else 'invited'} as {role}", json)


@app.command("remove")
def remove(
    chat: ChatName,
    person: Person,
    actor: Actor = None,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Remove a person from a chat. With --as and the same name, the person leaves."""
    from parley.cli import chat_changes
    from parley.cli.places import find_place

    changed = chat_changes.remove(find_place(data, config), chat, person, actor)
    _print_changed(changed, f"{person} is no longer in the chat", json)


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
    """Change the role of a member."""
    from parley.cli import chat_changes
    from parley.cli.places import find_place

    changed = chat_changes.set_role(find_place(data, config), chat, person, new_role, actor)
    _print_changed(changed, f"{person} is now {new_role} of the chat", json)


@app.command("rename")
def rename(
    chat: ChatName,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="The new title.")],
    actor: Actor = None,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Give a group another title."""
    from parley.cli import chat_changes
    from parley.cli.places import find_place

    changed = chat_changes.rename(find_place(data, config), chat, title, actor)
    _print_changed(changed, "the chat has a new title", json)


@app.command("announce")
def announce(
    chat: ChatName,
    setting: Annotated[str, typer.Argument(metavar="on|off", help="Whether only admins post.")],
    actor: Actor = None,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Let only owners and admins of a group post, or everybody again."""
    from parley.cli import chat_changes
    from parley.cli.places import find_place

    if setting not in ("on", "off"):
        raise typer.BadParameter("choose on or off", param_hint="on|off")
    changed = chat_changes.set_posting(find_place(data, config), chat, setting == "on", None, actor)
    _print_changed(changed, "only admins post now" if setting == "on" else "everybody may post", json)


@app.command("slow")
def slow(
    chat: ChatName,
    seconds: Annotated[
        int, typer.Argument(metavar="SECONDS", min=0, help="Between two messages of a member; 0 ends it.")
    ],
    actor: Actor = None,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Set slow mode: a member of the group sends at most one message in so many seconds."""
    from parley.cli import chat_changes
    from parley.cli.places import find_place

    changed = chat_changes.set_posting(find_place(data, config), chat, None, seconds, actor)
    _print_changed(changed, f"slow mode is {seconds} s" if seconds else "slow mode is off", json)


@app.command("fanout")
def fanout(
    chat: ChatName,
    strategy: Annotated[
        str | None, typer.Argument(metavar="STRATEGY", help="write, hybrid, read, or auto: by size.")
    ] = None,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Show how notifications of a chat are fanned out, or choose it."""
    from parley.cli import chat_changes
    from parley.cli.output import print_json
    from parley.cli.places import find_place

    if strategy not in (None, chat_changes.BY_SIZE, *Fanout):
        raise typer.BadParameter("choose write, hybrid, read or auto", param_hint="STRATEGY")
    view = chat_changes.fanout(find_place(data, config), chat, strategy)
    if json:
        print_json(
            {
                "chat_id": view.chat.chat_id,
                "member_count": view.member_count,
                "fanout": view.strategy,
                "chosen": view.chosen,
            }
        )
        return
    why = "chosen" if view.chosen is not None else f"by its size, {view.member_count} members"
    print(f"{view.strategy.value} ({why})")


@app.command("invitations")
def invitations(person: Person, data: Data = None, config: ConfigFile = None, json: AsJson = False) -> None:
    """List the chats that a person is invited to."""
    from parley.cli import chat_changes
    from parley.cli.output import print_json, print_table
    from parley.cli.places import find_place

    found = chat_changes.invitations(find_place(data, config), person)
    if json:
        print_json({"invitations": [view.invitation for view in found]})
        return
    rows = (
        (
            view.invitation.chat_id,
            view.title,
            view.by.username if view.by is not None else view.invitation.invited_by,
            view.invitation.role,
            view.invitation.invited_at[:10],
        )
        for view in found
    )
    print_table(["CHAT ID", "TITLE", "BY", "AS", "SINCE"], rows)


@app.command("accept")
def accept(
    chat: ChatName, person: Invited, data: Data = None, config: ConfigFile = None, json: AsJson = False
) -> None:
    """Accept an invitation to a chat."""
    from parley.cli import chat_changes
    from parley.cli.places import find_place

    _print_changed(
        chat_changes.accept(find_place(data, config), chat, person), f"{person} is in the chat", json
    )


@app.command("decline")
def decline(
    chat: ChatName, person: Invited, data: Data = None, config: ConfigFile = None, json: AsJson = False
) -> None:
    """Decline an invitation to a chat. The inviter gets no notice."""
    from parley.cli import chat_changes
    from parley.cli.places import find_place

    changed = chat_changes.decline(find_place(data, config), chat, person)
    _print_changed(changed, f"{person} is no longer invited", json)


def _print_changed(changed: Changed, text: str, json: bool) -> None:
    from parley.cli.output import print_json, printable

    if json:
        print_json(changed)
    else:
        since = f", since #{changed.sequence}" if changed.sequence is not None else ""
        print(printable(text + since))


def _last(counter: int | None) -> str:
    return "no counter!" if counter is None else f"#{counter}" if counter else "-"
