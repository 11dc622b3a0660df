"""What `parley chat …` does, through the same use cases as the server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from parley.chats.membership import Membership
from parley.cli.naming import require_chat, require_user
from parley.cli.opening import open_desk, run
from parley.cli.places import CommandFailed, Place
from parley.cli.records import Records, records_of
from parley.model import Appended, Chat, ChatType, Role


class Changed(Struct):
    """A change of a chat and the entry that it is."""

    chat_id: str
    sequence: int
    message_id: str


def create(
    place: Place, chat_type: ChatType, owner: str, members: Sequence[str], title: str | None
) -> tuple[Chat, bool]:
    """The chat, and whether it is new."""
    records = records_of(place)
    owner_id, *member_ids = (require_user(records, name) for name in (owner, *members))

    async def make() -> tuple[Chat, bool]:
        async with open_desk(place) as desk:
            return await desk.membership.create(owner_id, chat_type, member_ids, title)

    return run(make())


def add(place: Place, chat: str, person: str, role: Role, actor: str | None) -> Changed:
    records = records_of(place)
    chat_id, actor_id = _acting(records, chat, actor)
    user_id = require_user(records, person)
    return _change(place, chat_id, lambda membership: membership.add(chat_id, actor_id, user_id, role))


def remove(place: Place, chat: str, person: str, actor: str | None) -> Changed:
    records = records_of(place)
    chat_id, actor_id = _acting(records, chat, actor)
    user_id = require_user(records, person)
    return _change(place, chat_id, lambda membership: membership.remove(chat_id, actor_id, user_id))


def set_role(place: Place, chat: str, person: str, role: Role, actor: str | None) -> Changed:
    records = records_of(place)
    chat_id, actor_id = _acting(records, chat, actor)
    user_id = require_user(records, person)
    return _change(place, chat_id, lambda membership: membership.set_role(chat_id, actor_id, user_id, role))


def rename(place: Place, chat: str, title: str, actor: str | None) -> Changed:
    chat_id, actor_id = _acting(records_of(place), chat, actor)
    return _change(place, chat_id, lambda membership: membership.rename(chat_id, actor_id, title))


def _acting(records: Records, chat: str, actor: str | None) -> tuple[str, str]:
    """The chat, and in whose name it is changed: whoever was named, else one of its owners."""
    chat_id = require_chat(records, chat).chat_id
    if actor is not None:
        return chat_id, require_user(records, actor)
    members = records.members(chat_id)
    owner = next((member.user_id for member in members if member.role == Role.OWNER), None)
    if owner is None:
        raise CommandFailed("this chat has no owner; say with --as in whose name it is changed")
    return chat_id, owner


def _change(place: Place, chat_id: str, change: Callable[[Membership], Awaitable[Appended]]) -> Changed:
    async def make() -> Appended:
        async with open_desk(place) as desk:
            return await change(desk.membership)

    appended = run(make())
    return Changed(chat_id, appended.sequence, appended.message_id)
