"""Profiles and settings, presence, contacts and blocks."""

from __future__ import annotations

from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Meta

from parley.core.notifications import minute_of
from parley.errors import BAD_REQUEST, NO_SUCH_USER, Refused
from parley.gateway.calls import Call
from parley.gateway.fields import OTHER_ID
from parley.gateway.routes import Answer, Parameter, Routes, page_parameters
from parley.model import QuietHours, Relation, Scope, User
from parley.people.contacts import RelatedProfile
from parley.wire import bodies, limits
from parley.wire.frames import PresenceView
from parley.wire.page_bodies import ProfileList

PEOPLE_PER_COST = 10
"""The presence of so many people costs as much as an ordinary request."""
NO_USERNAME = BAD_REQUEST.because("say whom you look for: ?username= or ?ids=")
TOO_MANY = BAD_REQUEST.because(f"a request can name at most {limits.PROFILES_MAX} people")
NO_QUIET_HOURS = BAD_REQUEST.because(
    "do_not_disturb has from and to, times of day like 22:30, and timezone, a name like Europe/Berlin"
)
CONTACTS, CONTACT = "/v1/contacts", "/v1/contacts/{user_id}"
BLOCKS, BLOCK = "/v1/blocks", "/v1/blocks/{user_id}"

routes = Routes("People")


# Profiles


@routes.route("GET", "/v1/me", "Your profile and settings", {200: bodies.Me}, scope=Scope.READ)
async def show_me(call: Call) -> Answer:
    """At first `last_seen_privacy` and `who_may_add` are `everyone`, and `send_read_receipts` is true."""
    return 200, _me(await call.services.accounts.user(call.user_id))


@routes.route(
    "PATCH",
    "/v1/me",
    "Change profile or settings",
    {200: bodies.Me},
    body=bodies.ProfileChange,
    scope=Scope.ADMIN,
)
async def change_me(call: Call) -> Answer:
    """Only the fields that you name change."""
    wanted = await call.body(bodies.ProfileChange)
    quiet = wanted.do_not_disturb
    user = await call.services.accounts.update(
        call.user_id,
        display_name=wanted.display_name,
        about=wanted.about,
        last_seen_privacy=wanted.last_seen_privacy,
        send_read_receipts=wanted.send_read_receipts,
        who_may_add=wanted.who_may_add,
        do_not_disturb=quiet_hours(quiet) if isinstance(quiet, bodies.QuietHoursChange) else quiet,
    )
    return 200, _me(user)


def quiet_hours(hours: bodies.QuietHoursChange) -> QuietHours:
    """Refused unless they are times of day and the name of a time zone."""
    try:
        minute_of(hours.starts)
        minute_of(hours.ends)
        ZoneInfo(hours.timezone)
    except (ValueError, OSError, ZoneInfoNotFoundError) as error:
        raise Refused(NO_QUIET_HOURS) from error
    return QuietHours(hours.starts, hours.ends, hours.timezone)


def _me(user: User) -> bodies.Me:
    return bodies.Me(
        user_id=user.user_id,
        username=user.username,
        display_name=user.display_name,
        about=user.about,
        last_seen_privacy=user.last_seen_privacy,
        send_read_receipts=user.send_read_receipts,
        who_may_add=user.who_may_add,
        do_not_disturb=user.do_not_disturb,
        is_bot=user.is_bot,
        is_operator=user.is_operator,
    )


@routes.route(
    "GET",
    "/v1/users",
    "Find a person by exact username, or people by their ids",
    {200: bodies.Profile | ProfileList},
    query=(
        Parameter("username", str, "The whole username.", "ben"),
        Parameter(
            "ids",
            Annotated[list[str], Meta(max_length=limits.PROFILES_MAX)],
            "The people, separated by commas; the answer is a list then, without those who do not exist.",
        ),
    ),
    refusals=(NO_SUCH_USER,),
    scope=Scope.READ,
)
async def find_user(call: Call) -> Answer:
    """There is no search by parts of a name."""
    if "ids" in call.request.query:
        return 200, ProfileList(await _profiles(call, call.listed("ids")))
    username = call.text("username")
    if not username:
        raise Refused(NO_USERNAME)
    return 200, await _profile(call, await call.services.contacts.find(username))


@routes.route(
    "GET",
    "/v1/users/{user_id}",
    "A person's profile",
    {200: bodies.Profile},
    refusals=(NO_SUCH_USER,),
    scope=Scope.READ,
)
async def show_user(call: Call) -> Answer:
    """Presence and `last_seen` are there as far as you may see them."""
    return 200, await _profile(call, await call.services.accounts.user(call.path("user_id")))


async def _profiles(call: Call, user_ids: list[str]) -> list[bodies.Profile]:
    """Of those of these people who exist, in this order."""
    if len(user_ids) > limits.PROFILES_MAX:
        raise Refused(TOO_MANY)
    call.charge(len(user_ids) // PEOPLE_PER_COST)
    users = await call.services.contacts.profiles(list(dict.fromkeys(user_ids)))
    presences = await call.services.presence.query(call.user_id, [user.user_id for user in users])
    return [_seen(user, presence) for user, presence in zip(users, presences, strict=True)]


async def _profile(call: Call, user: User) -> bodies.Profile:
    (presence,) = await call.services.presence.query(call.user_id, [user.user_id])
    return _seen(user, presence)


def _seen(user: User, presence: PresenceView) -> bodies.Profile:
    return bodies.Profile(
        user_id=user.user_id,
        username=user.username,
        display_name=user.display_name,
        about=user.about,
        status=presence.status,
        last_seen=presence.last_seen,
        is_bot=user.is_bot,
    )


@routes.route(
    "GET",
    "/v1/presence",
    "Who is online, of up to 500 people you know",
    {200: bodies.PresenceList},
    query=(
        Parameter(
            "user_ids",
            Annotated[list[str], Meta(max_length=limits.PRESENCE_BATCH_MAX)],
            "The people, separated by commas; the parameter may also be repeated.",
            [OTHER_ID],
        ),
    ),
    scope=Scope.READ,
)
async def show_presences(call: Call) -> Answer:
    """A person whom you do not know, or who hides from you, is offline and "unavailable"."""
    asked = call.listed("user_ids")
    call.charge(len(asked) // PEOPLE_PER_COST)
    return 200, bodies.PresenceList(await call.services.presence.query(call.user_id, asked))


# Contacts and blocks


@routes.route(
    "GET",
    CONTACTS,
    "Your contacts",
    {200: bodies.ContactList},
    query=page_parameters("contacts"),
    scope=Scope.READ,
)
async def list_contacts(call: Call) -> Answer:
    """In pages. Only you see them."""
    found, next_after = await _listed(call, Relation.CONTACT)
    return 200, bodies.ContactList(found, next_after)


@routes.route(
    "POST",
    CONTACTS,
    "Add a contact",
    {201: bodies.Related},
    body=bodies.NewRelation,
    refusals=(NO_SUCH_USER,),
    scope=Scope.ADMIN,
)
async def name_contact(call: Call) -> Answer:
    """May be repeated. The person is not told."""
    return 201, await _add(call, Relation.CONTACT, (await call.body(bodies.NewRelation)).user_id)


@routes.route(
    "PUT", CONTACT, "Add a contact", {200: bodies.Related}, refusals=(NO_SUCH_USER,), scope=Scope.ADMIN
)
async def add_contact(call: Call) -> Answer:
    """The same as `POST /v1/contacts`, without a body."""
    return 200, await _add(call, Relation.CONTACT, call.path("user_id"))


@routes.route("DELETE", CONTACT, "Remove a contact", {204: None}, scope=Scope.ADMIN)
async def remove_contact(call: Call) -> Answer:
    """The person is not told."""
    await call.services.contacts.remove(call.user_id, call.path("user_id"), Relation.CONTACT)
    return 204, None


@routes.route(
    "GET",
    BLOCKS,
    "The people you have blocked",
    {200: bodies.BlockList},
    query=page_parameters("people"),
    scope=Scope.READ,
)
async def list_blocks(call: Call) -> Answer:
    """In pages. Only you see them."""
    found, next_after = await _listed(call, Relation.BLOCK)
    return 200, bodies.BlockList(found, next_after)


@routes.route(
    "POST",
    BLOCKS,
    "Block a person",
    {201: bodies.Related},
    body=bodies.NewRelation,
    refusals=(NO_SUCH_USER,),
    scope=Scope.ADMIN,
)
async def name_block(call: Call) -> Answer:
    """A person you block can neither open the direct chat with you nor write to it, cannot add you to chats
    or invite you, and sees nothing of your presence, typing and receipts. Their invitations end. May be
    repeated. The person is not told.
    """
    return 201, await _add(call, Relation.BLOCK, (await call.body(bodies.NewRelation)).user_id)


@routes.route(
    "PUT", BLOCK, "Block a person", {200: bodies.Related}, refusals=(NO_SUCH_USER,), scope=Scope.ADMIN
)
async def add_block(call: Call) -> Answer:
    """The same as `POST /v1/blocks`, without a body."""
    return 200, await _add(call, Relation.BLOCK, call.path("user_id"))


@routes.route("DELETE", BLOCK, "Unblock a person", {204: None}, scope=Scope.ADMIN)
async def remove_block(call: Call) -> Answer:
    """The person is not told."""
    await call.services.contacts.remove(call.user_id, call.path("user_id"), Relation.BLOCK)
    return 204, None


async def _listed(call: Call, relation: Relation) -> tuple[list[bodies.Related], str | None]:
    limit = call.limit(limits.PAGE_ENTRIES_DEFAULT, limits.PAGE_ENTRIES_MAX)
    found = await call.services.contacts.listed(call.user_id, relation, call.text("after"), limit)
    return [_related(one) for one in found], found[-1].user.user_id if len(found) == limit else None


async def _add(call: Call, relation: Relation, user_id: str) -> bodies.Related:
    added = await call.services.contacts.add(call.user_id, user_id, relation)
    if relation is Relation.BLOCK:
        await call.services.invitations.decline_from(call.user_id, user_id)
    return _related(added)


def _related(one: RelatedProfile) -> bodies.Related:
    return bodies.Related(one.user.user_id, one.user.username, one.user.display_name, one.since)
