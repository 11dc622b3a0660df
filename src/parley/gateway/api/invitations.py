"""Invitations to chats: yours, and those of a chat."""

from __future__ import annotations

from parley.chats.invitations import InvitationView, expires_at
from parley.core.consent import NO_INVITATION
from parley.errors import FORBIDDEN, NOT_A_MEMBER
from parley.gateway.api.chats import APPENDS, CHAT, appended_change, count_member_changes
from parley.gateway.calls import Call
from parley.gateway.routes import Answer, Routes, page_parameters
from parley.model import Scope
from parley.wire import bodies, limits

MINE, ONE = "/v1/invitations", "/v1/invitations/{chat_id}"
OF_CHAT = f"{CHAT}/invitations"

routes = Routes("Chats")


@routes.route(
    "GET",
    MINE,
    "Your invitations",
    {200: bodies.InvitationList},
    query=page_parameters("invitations"),
    scope=Scope.READ,
)
async def list_invitations(call: Call) -> Answer:
    """Chats that a member wanted to add you to but may not. In pages, ordered by `chat_id`."""
    limit = call.limit(limits.PAGE_ENTRIES_DEFAULT, limits.PAGE_ENTRIES_MAX)
    found = await call.services.invitations.mine(call.user_id, call.text("after"), limit)
    next_after = found[-1].invitation.chat_id if len(found) == limit else None
    return 200, bodies.InvitationList([_info(one) for one in found], next_after)


@routes.route(
    "POST",
    ONE,
    "Accept an invitation",
    {201: bodies.AppendedChange},
    refusals=(NO_INVITATION, *APPENDS),
    scope=Scope.ADMIN,
)
async def accept_invitation(call: Call) -> Answer:
    """You join the chat with the role that was offered."""
    await count_member_changes(call, 1)
    chat_id = call.path("chat_id")
    appended = await call.services.invitations.accept(chat_id, call.user_id)
    return 201, appended_change(chat_id, appended, call.user_id)


@routes.route(
    "DELETE", ONE, "Decline an invitation", {204: None}, refusals=(NO_INVITATION,), scope=Scope.ADMIN
)
async def decline_invitation(call: Call) -> Answer:
    """The inviter is not told."""
    await count_member_changes(call, 1)
    await call.services.invitations.decline(call.path("chat_id"), call.user_id)
    return 204, None


@routes.route(
    "GET",
    OF_CHAT,
    "A chat's pending invitations",
    {200: bodies.InvitationList},
    query=page_parameters("invitations"),
    refusals=(FORBIDDEN, NOT_A_MEMBER),
    scope=Scope.READ,
)
async def list_chat_invitations(call: Call) -> Answer:
    """For owners and admins. In pages, ordered by `user_id`."""
    limit = call.limit(limits.PAGE_ENTRIES_DEFAULT, limits.PAGE_ENTRIES_MAX)
    found = await call.services.invitations.of_chat(
        call.path("chat_id"), call.user_id, call.text("after"), limit
    )
    next_after = found[-1].invitation.user_id if len(found) == limit else None
    return 200, bodies.InvitationList([_info(one) for one in found], next_after)


@routes.route(
    "DELETE",
    f"{OF_CHAT}/{{user_id}}",
    "Withdraw an invitation",
    {204: None},
    refusals=(FORBIDDEN, NOT_A_MEMBER, NO_INVITATION),
    scope=Scope.ADMIN,
)
async def withdraw_invitation(call: Call) -> Answer:
    """For those who could remove the person as a member."""
    await count_member_changes(call, 1)
    await call.services.invitations.withdraw(call.path("chat_id"), call.user_id, call.path("user_id"))
    return 204, None


def _info(view: InvitationView) -> bodies.InvitationInfo:
    one, user, by = view.invitation, view.user, view.by
    return bodies.InvitationInfo(
        chat_id=one.chat_id,
        title=view.title,
        role=one.role,
        user_id=one.user_id,
        username=user.username if user is not None else None,
        by=one.invited_by,
        by_username=by.username if by is not None else None,
        by_display_name=by.display_name if by is not None else None,
        invited_at=one.invited_at,
        expires_at=expires_at(one),
    )
