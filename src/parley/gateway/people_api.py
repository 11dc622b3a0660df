"""The HTTP API of people: devices, profiles and settings, contacts and blocks, presence."""

from __future__ import annotations

from parley.clock import iso
from parley.errors import BAD_REQUEST, Refused
from parley.gateway import bodies
from parley.gateway.calls import Answer, Call, Endpoint
from parley.model import Privacy, Relation, User
from parley.people.relating import Acquaintance
from parley.wire import limits

NO_USERNAME = BAD_REQUEST.because("say whom you look for: ?username=")


# Devices and sessions


async def list_sessions(call: Call) -> Answer:
    found = [
        bodies.SessionView(
            session_id=session.session_id,
            device_id=session.device_id,
            device_name=session.device_name,
            last_used_at=iso(session.last_used_at_ms),
            expires_at=iso(session.expires_at_ms),
            current=session.session_id == call.me.session_id,
        )
        for session in await call.services.people.sessions(call.user_id)
    ]
    return 200, bodies.SessionList(found)


async def end_session(call: Call) -> Answer:
    await call.services.people.revoke(call.user_id, call.path("session_id"))
    return 204, None


async def list_devices(call: Call) -> Answer:
    found = [
        bodies.DeviceView(
            device_id=device.device_id,
            device_name=device.device_name,
            last_used_at=iso(device.last_used_at_ms),
            sessions=device.sessions,
            current=device.device_id == call.me.device_id,
        )
        for device in await call.services.people.devices(call.user_id)
    ]
    return 200, bodies.DeviceList(found)


async def remove_device(call: Call) -> Answer:
    await call.services.people.remove_device(call.user_id, call.path("device_id"))
    return 204, None


# Profiles


async def show_me(call: Call) -> Answer:
    return 200, _me(await call.services.people.user(call.user_id))


async def change_me(call: Call) -> Answer:
    wanted = await call.body(bodies.ProfileChange)
    privacy = wanted.last_seen_privacy
    user = await call.services.people.update(
        call.user_id,
        display_name=wanted.display_name,
        about=wanted.about,
        last_seen_privacy=None if privacy is None else Privacy(privacy),
        send_read_receipts=wanted.send_read_receipts,
    )
    return 200, _me(user)


async def change_password(call: Call) -> Answer:
    wanted = await call.body(bodies.NewPassword)
    await call.services.people.change_password(call.me, wanted.old_password, wanted.new_password)
    return 204, None


def _me(user: User) -> bodies.Me:
    return bodies.Me(
        user_id=user.user_id,
        username=user.username,
        display_name=user.display_name,
        about=user.about,
        last_seen_privacy=user.last_seen_privacy.value,
        send_read_receipts=user.send_read_receipts,
    )


async def show_user(call: Call) -> Answer:
    return 200, await _profile(call, await call.services.people.user(call.path("user_id")))


async def find_user(call: Call) -> Answer:
    username = call.text("username")
    if not username:
        raise Refused(NO_USERNAME)
    return 200, await _profile(call, await call.services.relating.find(username))


async def _profile(call: Call, user: User) -> bodies.Profile:
    (presence,) = await call.services.presences.query(call.user_id, [user.user_id])
    return bodies.Profile(
        user_id=user.user_id,
        username=user.username,
        display_name=user.display_name,
        about=user.about,
        status=presence.status,
        last_seen=presence.last_seen,
    )


async def show_presences(call: Call) -> Answer:
    listed = ",".join(call.request.query.getall("user_ids", []))
    asked = [user_id for user_id in listed.split(",") if user_id]
    return 200, bodies.Presences(await call.services.presences.query(call.user_id, asked))


# Contacts and blocks


async def list_contacts(call: Call) -> Answer:
    found, next_after = await _listed(call, Relation.CONTACT)
    return 200, bodies.ContactList(found, next_after)


async def list_blocks(call: Call) -> Answer:
    found, next_after = await _listed(call, Relation.BLOCK)
    return 200, bodies.BlockList(found, next_after)


async def _listed(call: Call, relation: Relation) -> tuple[list[bodies.PersonView], str | None]:
    limit = call.limit(limits.PAGE_ENTRIES_DEFAULT, limits.PAGE_ENTRIES_MAX)
    found = await call.services.relating.listed(call.user_id, relation, call.text("after"), limit)
    return [_person(one) for one in found], found[-1].user.user_id if len(found) == limit else None


async def name_contact(call: Call) -> Answer:
    return 201, await _add(call, Relation.CONTACT, (await call.body(bodies.Named)).user_id)


async def name_block(call: Call) -> Answer:
    return 201, await _add(call, Relation.BLOCK, (await call.body(bodies.Named)).user_id)


async def add_contact(call: Call) -> Answer:
    return 200, await _add(call, Relation.CONTACT, call.path("user_id"))


async def add_block(call: Call) -> Answer:
    return 200, await _add(call, Relation.BLOCK, call.path("user_id"))


async def _add(call: Call, relation: Relation, user_id: str) -> bodies.PersonView:
    return _person(await call.services.relating.add(call.user_id, user_id, relation))


async def remove_contact(call: Call) -> Answer:
    await call.services.relating.remove(call.user_id, call.path("user_id"), Relation.CONTACT)
    return 204, None


async def remove_block(call: Call) -> Answer:
    await call.services.relating.remove(call.user_id, call.path("user_id"), Relation.BLOCK)
    return 204, None


def _person(one: Acquaintance) -> bodies.PersonView:
    return bodies.PersonView(one.user.user_id, one.user.username, one.user.display_name, one.since)


ONE_CONTACT = "/v1/contacts/{user_id}"
ONE_BLOCK = "/v1/blocks/{user_id}"
PAGED = ("after", "limit")

ENDPOINTS = [
    Endpoint("GET", "/v1/sessions", list_sessions, "Your sessions", bodies.SessionList),
    Endpoint("DELETE", "/v1/sessions/{session_id}", end_session, "Revoke a session", None, status=204),
    Endpoint("GET", "/v1/devices", list_devices, "Your devices, last used first", bodies.DeviceList),
    Endpoint(
        "DELETE",
        "/v1/devices/{device_id}",
        remove_device,
        "Remove a device: its sessions end, its positions are forgotten",
        None,
        status=204,
    ),
    Endpoint("GET", "/v1/me", show_me, "Your profile and settings", bodies.Me),
    Endpoint("PATCH", "/v1/me", change_me, "Change profile or settings", bodies.Me, bodies.ProfileChange),
    Endpoint(
        "POST",
        "/v1/me/password",
        change_password,
        "Change your password; your other sessions end",
        None,
        bodies.NewPassword,
        204,
        hashes=True,
    ),
    Endpoint(
        "GET", "/v1/users", find_user, "Find a person by exact username", bodies.Profile, query=("username",)
    ),
    Endpoint("GET", "/v1/users/{user_id}", show_user, "Somebody's profile", bodies.Profile),
    Endpoint(
        "GET",
        "/v1/presence",
        show_presences,
        "Who is there, of up to 500 people you know",
        bodies.Presences,
        query=("user_ids",),
    ),
    Endpoint("GET", "/v1/contacts", list_contacts, "Your contacts", bodies.ContactList, query=PAGED),
    Endpoint("POST", "/v1/contacts", name_contact, "Add a contact", bodies.PersonView, bodies.Named, 201),
    Endpoint("PUT", ONE_CONTACT, add_contact, "Add a contact", bodies.PersonView),
    Endpoint("DELETE", ONE_CONTACT, remove_contact, "Remove a contact", None, status=204),
    Endpoint("GET", "/v1/blocks", list_blocks, "Whom you have blocked", bodies.BlockList, query=PAGED),
    Endpoint("POST", "/v1/blocks", name_block, "Block somebody", bodies.PersonView, bodies.Named, 201),
    Endpoint("PUT", ONE_BLOCK, add_block, "Block somebody", bodies.PersonView),
    Endpoint("DELETE", ONE_BLOCK, remove_block, "Unblock somebody", None, status=204),
]
