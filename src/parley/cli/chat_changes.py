"""The changes of `parley chat …`, through the same use cases as the server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from parley.chats.invitations import InvitationView, NewcomersAdded
from parley.cli.names import require_chat, require_user
from parley.cli.offline import OfflineServices, open_services, run, who_acts
from parley.cli.places import CommandFailed, Place
from parley.core.fanout import FanoutSizes
from parley.model import Appended, ChatType, Fanout, Role
from parley.push.fanout_admin import FanoutAdmin, FanoutView
from parley.records.listing import Listing
from parley.wire.limits import INVITATIONS_MAX

BY_SIZE = "auto"


class Changed(Struct):
    """A change of a chat and its entry in the log; none if a person was invited instead."""

    chat_id: str
    sequence: int | None
    message_id: str | None


def create(
    place: Place, chat_type: ChatType, owner: str, members: Sequence[str], title: str | None
) -> NewcomersAdded:
    """The chat, whether it is new, and who could only be invited."""

    async def make() -> NewcomersAdded:
        async with open_services(place) as services:
            listing = services.kinds.listing
            owner_id, *member_ids = [await require_user(listing, name) for name in (owner, *members)]
            return await services.invitations.create(owner_id, chat_type, member_ids, title)

    return run(make())


def add(place: Place, chat: str, person: str, role: Role, actor: str | None) -> Changed:
    """Add a person, or invite them if they let only others add them."""

    async def change(services: OfflineServices, chat_id: str, actor_id: str, user_id: str) -> Appended | None:
        return (await services.invitations.add(chat_id, actor_id, [user_id], role)).appended

    return _change(place, chat, person, actor, change)


def remove(place: Place, chat: str, person: str, actor: str | None) -> Changed:
    return _change(place, chat, person, actor, lambda services, *names: services.membership.remove(*names))


def set_role(place: Place, chat: str, person: str, role: Role, actor: str | None) -> Changed:
    return _change(
        place, chat, person, actor, lambda services, *names: services.membership.set_role(*names, role)
    )


def rename(place: Place, chat: str, title: str, actor: str | None) -> Changed:
    return _change(
        place, chat, None, actor, lambda services, *names: services.membership.rename(*names, title)
    )


def set_posting(
    place: Place, chat: str, announcement_only: bool | None, slow_mode_seconds: int | None, actor: str | None
) -> Changed:
    return _change(
        place,
        chat,
        None,
        actor,
        lambda services, *names: services.membership.set_posting(
            *names, announcement_only, slow_mode_seconds
        ),
    )


def accept(place: Place, chat: str, person: str) -> Changed:
    return _change(place, chat, None, person, lambda services, *names: services.invitations.accept(*names))


def decline(place: Place, chat: str, person: str) -> Changed:
    return _change(place, chat, None, person, lambda services, *names: services.invitations.decline(*names))


def invitations(place: Place, person: str) -> list[InvitationView]:
    """What waits for a person."""

    async def look() -> list[InvitationView]:
        async with open_services(place) as services:
            user_id = await require_user(services.kinds.listing, person)
            return await services.invitations.mine(user_id, "", INVITATIONS_MAX)

    return run(look())


def fanout(place: Place, chat: str, strategy: str | None) -> FanoutView:
    """Show how notifications of a chat are fanned out; choose it first, if a strategy is given."""

    async def look() -> FanoutView:
        async with open_services(place) as services:
            engine, delivery = services.engine, place.settings.delivery
            sizes = FanoutSizes(delivery.write_below, delivery.read_above)
            chat_id = (await require_chat(services.kinds.listing, chat)).chat_id
            admin = FanoutAdmin(
                engine.directory, services.kinds.push.fanouts, sizes, services.user_admin.audited
            )
            if strategy is None:
                return await admin.show(chat_id)
            chosen = None if strategy == BY_SIZE else Fanout(strategy)
            return await admin.choose(who_acts(), chat_id, chosen)

    return run(look())


def _change(
    place: Place,
    chat: str,
    person: str | None,
    actor: str | None,
    change: Callable[..., Awaitable[Appended | None]],
) -> Changed:
    """`change` gets the services, the ids of chat and actor, and the person's id if one is given."""

    async def make() -> Changed:
        async with open_services(place) as services:
            listing = services.kinds.listing
            names = await _acting(listing, chat, actor)
            if person is not None:
                names = (*names, await require_user(listing, person))
            appended = await change(services, *names)
            if appended is None:
                return Changed(names[0], None, None)
            return Changed(names[0], appended.sequence, appended.message_id)

    return run(make())


async def _acting(listing: Listing, chat: str, actor: str | None) -> tuple[str, ...]:
    """The chat, and who changes it: the named person, else one of its owners."""
    chat_id = (await require_chat(listing, chat)).chat_id
    if actor is not None:
        return chat_id, await require_user(listing, actor)
    members = await listing.members(chat_id)
    owner = next((member.user_id for member in members if member.role == Role.OWNER), None)
    if owner is None:
        raise CommandFailed("this chat has no owner; name with --as who changes it")
    return chat_id, owner
