"""The HTTP API: accounts, chats, messages and their receipts. See docs/PROTOCOL.md."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import UNSET

from parley import ids
from parley.chats.reading import check_sequence
from parley.clock import iso
from parley.core.sending import NO_CLIENT_ID, check_send
from parley.errors import BAD_REQUEST, FORBIDDEN, RATE_LIMITED, Refusal, Refused
from parley.gateway import bodies, people_api
from parley.gateway.calls import (
    REQUEST_ID,
    Answer,
    Call,
    Endpoint,
    address_of,
    is_limited,
    is_local,
)
from parley.model import Appended, Chat, ChatType, Draft, Member, Page, ReadReceipts, Role
from parley.people.listing import Person
from parley.people.muting import is_muted, muted_time
from parley.wire import limits
from parley.wire.codec import JSON
from parley.wire.frames import SendMessage, SyncRequest

REGISTRATION_CLOSED = FORBIDDEN.because(
    "this server does not take registrations; ask its operator for an account"
)
NO_MEMBER_NAMED = BAD_REQUEST.because("name the new member in user_id")


async def create_account(call: Call) -> Answer:
    services, request = call.services, call.request
    setting = services.config.accounts.registration
    if setting == "closed" or (setting == "loopback" and not is_local(request, services)):
        raise Refused(REGISTRATION_CLOSED)
    if is_limited(request, services):
        _check_rate(await services.rates.registration(address_of(request, services)))
    wanted = await call.body(bodies.NewAccount)
    user = await services.people.register(wanted.username, wanted.password)
    return 201, bodies.Account(user.user_id, user.username)


async def create_session(call: Call) -> Answer:
    asked = await call.body(bodies.NewSession)
    async with _limited_login(call, asked.username):
        token, session = await call.services.people.log_in(
            asked.username, asked.password, asked.device_id, asked.device_name
        )
    granted = bodies.SessionGranted(
        token, session.user_id, session.session_id, session.device_id, iso(session.expires_at_ms)
    )
    return 201, granted


@asynccontextmanager
async def _limited_login(call: Call, username: str) -> AsyncIterator[None]:
    """A wrong password counts. Until it is known, every try does: guesses made at once are guesses too."""
    services = call.services
    if not is_limited(call.request, services):
        yield
        return
    address, is_wrong = address_of(call.request, services), False
    _check_rate(await services.rates.login(username, address))
    try:
        yield
    except Refused as error:
        is_wrong = error.refusal.status == 401
        raise
    finally:
        if not is_wrong:
            await services.rates.login_not_failed(username, address)


def _check_rate(wait_ms: int) -> None:
    if wait_ms:
        raise Refused(RATE_LIMITED.after(wait_ms))


async def create_chat(call: Call) -> Answer:
    wanted = await call.body(bodies.NewChat)
    chat, created = await call.services.membership.create(
        call.user_id, ChatType(wanted.type), wanted.member_ids, wanted.title, wanted.open_to_join
    )
    view = await _chat_view(call, chat, Role.OWNER if chat.created_by == call.user_id else Role.MEMBER)
    return 201 if created else 200, view


async def show_chat(call: Call) -> Answer:
    chat, role = await call.services.membership.chat_for(call.path("chat_id"), call.user_id)
    return 200, await _chat_view(call, chat, role)


async def change_chat(call: Call) -> Answer:
    wanted = await call.body(bodies.ChatChange)
    services, chat_id = call.services, call.path("chat_id")
    until = wanted.muted_until
    if until is not UNSET:
        until = muted_time(until)  # lest half of a change be done when it is none
    if wanted.title is not None:
        await services.membership.rename(chat_id, call.user_id, wanted.title)
    if wanted.read_receipts is not None:
        mode = ReadReceipts(wanted.read_receipts)
        await services.membership.set_read_receipts(chat_id, call.user_id, mode)
    if until is not UNSET:
        await services.muting.mute(chat_id, call.user_id, until)
    return await show_chat(call)


async def _chat_view(call: Call, chat: Chat, role: Role) -> bodies.ChatView:
    muted_until = await call.services.muting.muted_until(chat.chat_id, call.user_id)
    return bodies.ChatView(
        chat_id=chat.chat_id,
        type=chat.chat_type.value,
        title=chat.title,
        created_by=chat.created_by,
        created_at=chat.created_at,
        updated_at=chat.updated_at,
        epoch=chat.epoch,
        head=await call.services.reading.head(chat.chat_id),
        role=role.value,
        member_count=await call.services.membership.count(chat.chat_id),
        open_to_join=chat.open_to_join,
        read_receipts=chat.read_receipts.value,
        muted=is_muted(muted_until, call.services.clock()),
        muted_until=muted_until,
    )


async def list_chats(call: Call) -> Answer:
    limit = call.limit(limits.OVERVIEW_CHATS_DEFAULT, limits.OVERVIEW_CHATS_MAX)
    since = call.text("changed_since") or None
    listed = await call.services.listing.chats(call.user_id, call.me.device_id, since, limit)
    return 200, bodies.ChatList(listed.chats, listed.token, listed.complete)


async def list_members(call: Call) -> Answer:
    limit = call.limit(limits.PAGE_ENTRIES_DEFAULT, limits.PAGE_ENTRIES_MAX)
    found = await call.services.membership.members(
        call.path("chat_id"), call.user_id, call.text("after"), limit
    )
    known = await call.services.listing.members(call.user_id, found)
    views = [_member_view(member, person) for member, person in known if person is not None]
    return 200, bodies.MemberList(views, found[-1].user_id if len(found) == limit else None)


def _member_view(member: Member, person: Person) -> bodies.MemberView:
    return bodies.MemberView(
        user_id=member.user_id,
        role=member.role.value,
        joined_at=member.joined_at,
        joined_sequence=member.joined_sequence,
        username=person.user.username,
        display_name=person.user.display_name,
        status=person.presence.status,
        last_seen=person.presence.last_seen,
    )


async def add_member(call: Call) -> Answer:
    """Each person is an entry of their own; the answer names the last one."""
    wanted = await call.body(bodies.NewMember)
    people = [wanted.user_id] if wanted.user_id else wanted.user_ids
    if not people:
        raise Refused(NO_MEMBER_NAMED)
    chat_id, role = call.path("chat_id"), Role(wanted.role)
    added = [await call.services.membership.add(chat_id, call.user_id, person, role) for person in people]
    return 201, _changed(chat_id, added[-1], people[-1])


async def change_member(call: Call) -> Answer:
    wanted = await call.body(bodies.MemberChange)
    chat_id, person = call.path("chat_id"), call.path("user_id")
    appended = await call.services.membership.set_role(chat_id, call.user_id, person, Role(wanted.role))
    return 200, _changed(chat_id, appended, person)


async def remove_member(call: Call) -> Answer:
    chat_id, person = call.path("chat_id"), call.path("user_id")
    appended = await call.services.membership.remove(chat_id, call.user_id, person)
    return 200, _changed(chat_id, appended, person)


def _changed(chat_id: str, appended: Appended, user_id: str) -> bodies.Changed:
    return bodies.Changed(chat_id, appended.sequence, appended.message_id, user_id)


async def send_message(call: Call) -> Answer:
    services = call.services
    wanted = await call.body(bodies.NewMessage)
    request = SendMessage(
        chat_id=call.path("chat_id"),
        client_message_id=wanted.client_message_id,
        content=wanted.content,
        content_type=wanted.content_type,
        display_time=wanted.display_time,
        after_client_message_id=wanted.after_client_message_id,
    )
    draft = check_send(request, call.user_id, call.request[REQUEST_ID])
    if isinstance(draft, Refusal):
        raise Refused(draft)
    if is_limited(call.request, services):
        _check_rate(services.message_rate.take(call.user_id, services.clock()))
    appended = await services.sending.send(draft)
    return 200 if appended.deduplicated else 201, _receipt(draft, appended)


def _receipt(draft: Draft, appended: Appended) -> bodies.Receipt:
    return bodies.Receipt(
        chat_id=draft.chat_id,
        client_message_id=draft.client_message_id or "",
        message_id=appended.message_id,
        sequence=appended.sequence,
        epoch=appended.epoch,
        created_at=appended.created_at,
        deduplicated=appended.deduplicated,
        conflict=appended.conflict,
    )


async def list_messages(call: Call) -> Answer:
    reading, chat_id = call.services.reading, call.path("chat_id")
    limit = call.limit(limits.PAGE_ENTRIES_DEFAULT, limits.PAGE_ENTRIES_MAX)
    if "before" in call.request.query:
        page = await reading.history(call.user_id, chat_id, call.number("before", limits.SEQUENCE_MAX), limit)
        return 200, _batch(page)
    request = SyncRequest(
        chat_id=chat_id,
        last_acked_sequence=call.number("after", 0),
        epoch=call.number("epoch", 0) or None,
        last_message_id=call.text("last_message_id") or None,
        limit=limit,
    )
    return 200, _batch(await reading.sync(call.user_id, request))


def _batch(page: Page) -> bodies.Batch:
    return bodies.Batch(
        chat_id=page.chat_id,
        epoch=page.epoch,
        entries=JSON.entries(page.entries),
        voids=page.voids,
        from_sequence=page.from_sequence,
        to_sequence=page.to_sequence,
        head=page.head,
        complete=page.complete,
        reset=page.reset,
    )


async def list_receipts(call: Call) -> Answer:
    sequence = check_sequence(call.path("sequence"), "sequence", 0)
    mode, found = await call.services.receipts.of_message(call.user_id, call.path("chat_id"), sequence)
    receipts = bodies.ReceiptList(
        sequence=sequence,
        member_count=found.member_count,
        mode=mode.value,
        status=found.status.value,
        delivered=found.delivered,
        read=found.read,
    )
    return 200, receipts


async def list_marks(call: Call) -> Answer:
    found = await call.services.receipts.of_chat(call.user_id, call.path("chat_id"))
    return 200, bodies.MarkList(found.mode.value, found.marks, found.read_by_anybody)


async def find_send(call: Call) -> Answer:
    key = ids.client_key(call.path("client_message_id"))
    if key is None:
        raise Refused(NO_CLIENT_ID)
    entry = await call.services.reading.find_send(call.user_id, call.path("chat_id"), key)
    found = bodies.SendFound(
        status="stored",
        chat_id=entry.chat_id,
        client_message_id=call.path("client_message_id"),
        message_id=entry.message_id,
        sequence=entry.sequence,
        epoch=entry.epoch,
        created_at=entry.created_at,
    )
    return 200, found


CHAT = "/v1/chats/{chat_id}"

ENDPOINTS = [
    Endpoint(
        "POST",
        "/v1/accounts",
        create_account,
        "Register",
        bodies.Account,
        bodies.NewAccount,
        201,
        "nothing",
        hashes=True,
    ),
    Endpoint(
        "POST",
        "/v1/sessions",
        create_session,
        "Log in",
        bodies.SessionGranted,
        bodies.NewSession,
        201,
        "nothing",
        hashes=True,
    ),
    *people_api.ENDPOINTS,
    Endpoint(
        "POST", "/v1/chats", create_chat, "Create a chat", bodies.ChatView, bodies.NewChat, 201, again=200
    ),
    Endpoint("GET", "/v1/chats", list_chats, "Your chats", bodies.ChatList, query=("changed_since", "limit")),
    Endpoint("GET", CHAT, show_chat, "One chat", bodies.ChatView),
    Endpoint(
        "PATCH",
        CHAT,
        change_chat,
        "Rename a chat, choose its read receipts, or mute it for yourself",
        bodies.ChatView,
        bodies.ChatChange,
    ),
    Endpoint(
        "GET", f"{CHAT}/members", list_members, "Its members", bodies.MemberList, query=("after", "limit")
    ),
    Endpoint(
        "POST", f"{CHAT}/members", add_member, "Add people, or join", bodies.Changed, bodies.NewMember, 201
    ),
    Endpoint(
        "PATCH",
        f"{CHAT}/members/{{user_id}}",
        change_member,
        "Change a role",
        bodies.Changed,
        bodies.MemberChange,
    ),
    Endpoint(
        "DELETE", f"{CHAT}/members/{{user_id}}", remove_member, "Remove somebody, or leave", bodies.Changed
    ),
    Endpoint(
        "POST",
        f"{CHAT}/messages",
        send_message,
        "Send a message",
        bodies.Receipt,
        bodies.NewMessage,
        201,
        again=200,
    ),
    Endpoint(
        "GET",
        f"{CHAT}/messages",
        list_messages,
        "A page of the log: ?after= catches up, ?before= goes back",
        bodies.Batch,
        query=("after", "before", "limit", "epoch", "last_message_id"),
    ),
    Endpoint(
        "GET",
        f"{CHAT}/messages/{{sequence}}/receipts",
        list_receipts,
        "Who has received and read a message",
        bodies.ReceiptList,
    ),
    Endpoint(
        "GET",
        f"{CHAT}/receipts",
        list_marks,
        "How far every member has received and read; in chats of up to 100 members",
        bodies.MarkList,
    ),
    Endpoint(
        "GET",
        "/v1/sends/{chat_id}/{client_message_id}",
        find_send,
        "What became of a message of yours",
        bodies.SendFound,
    ),
]
