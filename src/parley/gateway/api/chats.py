"""Chats and their members."""

from __future__ import annotations

from typing import Annotated, Literal, get_args
from uuid import UUID

from msgspec import UNSET, Meta, structs

from parley import ids
from parley.errors import (
    ANNOUNCEMENT_ONLY,
    BAD_REQUEST,
    BLOCKED,
    BUSY,
    COUNTER_INCONSISTENT,
    COUNTER_MISSING,
    FORBIDDEN,
    NO_SUCH_USER,
    NOT_A_MEMBER,
    NOT_FOUND,
    SERVICE_UNAVAILABLE,
    SLOW_MODE,
    Refused,
)
from parley.gateway.calls import ROWS_PER_COST, Call, check_rate
from parley.gateway.routes import Answer, Parameter, Routes, limit_parameter, page_parameters
from parley.model import Appended, ChatMember, Role, Scope, StoredChat
from parley.people.chat_list import UserView, is_muted, muted_time
from parley.store.rules import NEWEST, begins_with, folded
from parley.wire import bodies, limits

NO_MEMBER_NAMED = BAD_REQUEST.because("name the new member in user_id")
NO_ORDER = BAD_REQUEST.because("order is newest, or left out")
Order = Literal["newest"]
CHAT = "/v1/chats/{chat_id}"
UUID_BYTES = 16
MEMBERS_LOOKED_AT_MAX = 2_000
"""In one search for names."""
MEMBERS, MEMBER = f"{CHAT}/members", f"{CHAT}/members/{{user_id}}"
APPENDS = (NOT_A_MEMBER, BUSY, COUNTER_MISSING, COUNTER_INCONSISTENT, SERVICE_UNAVAILABLE)
"""What a request that appends an entry to a log can be refused with."""
POSTS = (ANNOUNCEMENT_ONLY, SLOW_MODE)
"""The same for one that posts a message."""

routes = Routes("Chats")


@routes.route(
    "POST",
    "/v1/chats",
    "Create a chat",
    {201: bodies.ChatInfo, 200: bodies.ChatInfo},
    body=bodies.NewChat,
    refusals=(NO_SUCH_USER, FORBIDDEN, BLOCKED),
    cost=5,
    scope=Scope.SEND,
)
async def create_chat(call: Call) -> Answer:
    """A direct chat of the same two people is the same chat: 200. You become the owner of a new one, whether
    `member_ids` names you or not. Its first message is number 1. People who do not let you add them
    (`who_may_add`) are invited to a group, as `invited` says; a direct chat with them is `forbidden`.
    """
    wanted = await call.body(bodies.NewChat)
    if call.is_limited:
        check_rate(await call.services.rates.new_chat(call.user_id, len(wanted.member_ids)))
    done = await call.services.invitations.create(
        call.user_id, wanted.type, wanted.member_ids, wanted.title, wanted.open_to_join, call.new_id(ids.CHAT)
    )
    chat = done.chat
    assert chat is not None
    info = await _chat_info(call, chat, Role.OWNER if chat.created_by == call.user_id else Role.MEMBER)
    if not done.is_new:
        return 200, info
    return 201, structs.replace(info, added=done.added, invited=done.invited)


@routes.route(
    "GET",
    "/v1/chats",
    "Your chats",
    {200: bodies.ChatList},
    query=(
        Parameter("changed_since", str, "The `token` of an earlier answer: only what changed since."),
        Parameter("order", Order, "`newest` lists all chats, those with the latest entries first.", "newest"),
        limit_parameter(limits.OVERVIEW_CHATS_DEFAULT, limits.OVERVIEW_CHATS_MAX),
    ),
    cost=5,
    scope=Scope.READ,
)
async def list_chats(call: Call) -> Answer:
    """The overview of this token's device, in pages: ask again with `changed_since` until `complete`; a
    token goes on in the order of its list. A page in the order `newest` may be all that you need; the token
    of the last one is like any other, and what became newer while you read the pages is not missed: it is
    what changed since.
    """
    order = call.text("order")
    if order not in ("", *get_args(Order)):
        raise Refused(NO_ORDER)
    limit = call.limit(limits.OVERVIEW_CHATS_DEFAULT, limits.OVERVIEW_CHATS_MAX)
    since = call.text("changed_since") or (NEWEST if order else None)
    listed = await call.services.chat_list.chats(call.user_id, call.me.device_id, since, limit)
    return 200, bodies.ChatList(listed.chats, listed.token, listed.complete)


@routes.route("GET", CHAT, "One chat", {200: bodies.ChatInfo}, refusals=(NOT_A_MEMBER,), scope=Scope.READ)
async def show_chat(call: Call) -> Answer:
    """A chat that you are in. One that does not exist is refused like one of others."""
    chat, role = await call.services.membership.chat_for(call.path("chat_id"), call.user_id)
    return 200, await _chat_info(call, chat, role)


@routes.route(
    "PATCH",
    CHAT,
    "Change a chat, or mute it for yourself",
    {200: bodies.ChatInfo},
    body=bodies.ChatChange,
    refusals=(FORBIDDEN, *APPENDS),
    scope=Scope.ADMIN,
)
async def change_chat(call: Call) -> Answer:
    """`title`, `read_receipts`, `edit_window_seconds`, `announcement_only` and `slow_mode_seconds` are for
    all members, each an entry of the log, the last two together one: for owners and admins of a group, and
    `read_receipts` and `edit_window_seconds` for either person of a direct chat. `announcement_only`: only
    owners and admins post. `slow_mode_seconds`: so long a member waits between two messages. `muted_until`
    and `notify` are settings of your own: nothing is appended. Your other devices are told of `muted_until`.
    """
    wanted = await call.body(bodies.ChatChange)
    services, chat_id = call.services, call.path("chat_id")
    until = wanted.muted_until
    if until is not UNSET:
        until = muted_time(until)  # refuses a bad time before half of the change is done
    announces, slow = wanted.announcement_only, wanted.slow_mode_seconds
    is_about_posting = announces is not None or slow is not None
    entries = [wanted.title is not None, wanted.read_receipts is not None, is_about_posting]
    entries.append(wanted.edit_window_seconds is not UNSET)
    if call.is_limited and (count := sum(entries)):
        check_rate(await services.rates.chat_changes(call.user_id, count))
    if wanted.title is not None:
        await services.membership.rename(chat_id, call.user_id, wanted.title)
    if wanted.read_receipts is not None:
        await services.membership.set_read_receipts(chat_id, call.user_id, wanted.read_receipts)
    if is_about_posting:
        await services.membership.set_posting(chat_id, call.user_id, announces, slow)
    if wanted.edit_window_seconds is not UNSET:
        client_id = str(UUID(bytes=services.random_bytes(UUID_BYTES), version=4))
        await services.message_actions.set_edit_window(
            chat_id, call.user_id, wanted.edit_window_seconds, client_id
        )
    if until is not UNSET:
        await services.chat_list.mute(chat_id, call.user_id, until)
    if wanted.notify is not None:
        await services.chat_list.set_notify(chat_id, call.user_id, wanted.notify)
    return await show_chat(call)


async def _chat_info(call: Call, chat: StoredChat, role: Role) -> bodies.ChatInfo:
    settings = await call.services.chat_list.settings(chat.chat_id, call.user_id)
    return bodies.ChatInfo(
        chat_id=chat.chat_id,
        type=chat.chat_type,
        title=chat.title,
        created_by=chat.created_by,
        created_at=chat.created_at,
        updated_at=chat.updated_at,
        epoch=chat.epoch,
        head=await call.services.reader.head(chat.chat_id),
        role=role,
        member_count=await call.services.membership.count(chat.chat_id),
        open_to_join=chat.open_to_join,
        read_receipts=chat.read_receipts,
        muted=is_muted(settings.muted_until, call.services.clock()),
        muted_until=settings.muted_until,
        notify=settings.notify,
        announcement_only=chat.announcement_only,
        slow_mode_seconds=chat.slow_mode_seconds,
        edit_window_seconds=await call.services.message_actions.edit_window(chat.chat_id),
    )


@routes.route(
    "GET",
    MEMBERS,
    "Its members",
    {200: bodies.MemberList},
    query=(
        *page_parameters("members"),
        Parameter(
            "q",
            Annotated[str, Meta(max_length=limits.DISPLAY_NAME_CHARS_MAX)],
            "Only people whose username, or a word of whose name, begins like this; pages may be short.",
        ),
    ),
    refusals=(NOT_A_MEMBER,),
    scope=Scope.READ,
)
async def list_members(call: Call) -> Answer:
    """In pages, ordered by `user_id`. Presence and `last_seen` are there as far as you may see them. With `q`
    a page looks at up to 2,000 members; go on while there is a `next_after`.
    """
    limit = call.limit(limits.PAGE_ENTRIES_DEFAULT, limits.PAGE_ENTRIES_MAX)
    if begin := call.text("q"):
        found, next_after = await _members_called(call, folded(begin[: limits.DISPLAY_NAME_CHARS_MAX]), limit)
    else:
        found = await call.services.membership.members(
            call.path("chat_id"), call.user_id, call.text("after"), limit
        )
        next_after = found[-1].user_id if len(found) == limit else None
    known = await call.services.chat_list.members(call.user_id, found)
    members = [_member_info(member, person) for member, person in known if person is not None]
    return 200, bodies.MemberList(members, next_after)


async def _members_called(call: Call, begin: str, limit: int) -> tuple[list[ChatMember], str | None]:
    """Members whose names begin like this, and where the next page goes on."""
    found: list[ChatMember] = []
    after = call.text("after")
    for _ in range(MEMBERS_LOOKED_AT_MAX // limits.PAGE_ENTRIES_MAX):
        members = await call.services.membership.members(
            call.path("chat_id"), call.user_id, after, limits.PAGE_ENTRIES_MAX
        )
        call.charge(len(members) // ROWS_PER_COST)
        users = await call.services.contacts.profiles([member.user_id for member in members])
        known = {user.user_id: user for user in users}
        for member in members:
            after = member.user_id
            user = known.get(member.user_id)
            if user is not None and begins_with(begin, user.username, user.display_name):
                found.append(member)
                if len(found) == limit:
                    return found, after
        if len(members) < limits.PAGE_ENTRIES_MAX:
            return found, None
    return found, after


def _member_info(member: ChatMember, person: UserView) -> bodies.MemberInfo:
    return bodies.MemberInfo(
        user_id=member.user_id,
        role=member.role,
        joined_at=member.joined_at,
        joined_sequence=member.joined_sequence,
        username=person.user.username,
        display_name=person.user.display_name,
        status=person.presence.status,
        last_seen=person.presence.last_seen,
        is_bot=person.user.is_bot,
    )


@routes.route(
    "POST",
    MEMBERS,
    "Add people, or join",
    {201: bodies.MembersAdded, 202: bodies.MembersAdded},
    body=bodies.NewMember,
    refusals=(FORBIDDEN, BLOCKED, NO_SUCH_USER, *APPENDS),
    scope=Scope.ADMIN,
)
async def add_member(call: Call) -> Answer:
    """Each person is an entry of the log; the answer names the last. Name yourself to join an open group.
    People who do not let you add them (`who_may_add`) are invited; 202 says that no person was added.
    """
    wanted = await call.body(bodies.NewMember)
    people = [wanted.user_id] if wanted.user_id else wanted.user_ids
    if not people:
        raise Refused(NO_MEMBER_NAMED)
    await count_member_changes(call, len(people))
    chat_id = call.path("chat_id")
    done = await call.services.invitations.add(chat_id, call.user_id, people, wanted.role)
    appended = done.appended
    answer = bodies.MembersAdded(
        chat_id=chat_id,
        sequence=appended.sequence if appended is not None else None,
        message_id=appended.message_id if appended is not None else None,
        user_id=(done.added or done.invited)[-1],
        added=done.added,
        invited=done.invited,
    )
    return 202 if appended is None else 201, answer


@routes.route(
    "PATCH",
    MEMBER,
    "Change a role",
    {200: bodies.AppendedChange},
    body=bodies.MemberChange,
    refusals=(FORBIDDEN, NOT_FOUND, *APPENDS),
    scope=Scope.ADMIN,
)
async def change_member(call: Call) -> Answer:
    """For owners. The last owner makes another member owner first."""
    wanted = await call.body(bodies.MemberChange)
    await count_member_changes(call, 1)
    chat_id, person = call.path("chat_id"), call.path("user_id")
    appended = await call.services.membership.set_role(chat_id, call.user_id, person, wanted.role)
    return 200, appended_change(chat_id, appended, person)


@routes.route(
    "DELETE",
    MEMBER,
    "Remove a member, or leave",
    {200: bodies.AppendedChange},
    refusals=(FORBIDDEN, NOT_FOUND, *APPENDS),
    scope=Scope.ADMIN,
)
async def remove_member(call: Call) -> Answer:
    """Name yourself to leave. Owners remove anyone, admins remove members."""
    await count_member_changes(call, 1)
    chat_id, person = call.path("chat_id"), call.path("user_id")
    appended = await call.services.membership.remove(chat_id, call.user_id, person)
    return 200, appended_change(chat_id, appended, person)


async def count_member_changes(call: Call, count: int) -> None:
    if call.is_limited:
        check_rate(await call.services.rates.member_changes(call.user_id, count))


def appended_change(chat_id: str, appended: Appended, user_id: str) -> bodies.AppendedChange:
    return bodies.AppendedChange(chat_id, appended.sequence, appended.message_id, user_id)
