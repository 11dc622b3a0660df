"""What a backend does for its users: their accounts, their chats, messages on their behalf."""

from __future__ import annotations

from parley import ids
from parley.accounts.external_people import WantedProfile
from parley.clock import iso
from parley.errors import (
    ACCOUNT_DISABLED,
    BLOCKED,
    DUPLICATE_ID,
    FORBIDDEN,
    NO_SUCH_USER,
    NOT_A_MEMBER,
    NOT_FOUND,
    USERNAME_TAKEN,
)
from parley.gateway.api.admin import USERS
from parley.gateway.api.chats import APPENDS, POSTS
from parley.gateway.api.messages import send
from parley.gateway.calls import Call
from parley.gateway.routes import MESSAGE_KEY, Answer, Parameter, Routes
from parley.wire import identity_bodies as bodies
from parley.wire.bodies import SessionGranted
from parley.wire.frames import Receipt

CHATS = "/v1/admin/chats"
MEMBER = f"{CHATS}/{{chat_id}}/members/{{user_id}}"
EXTERNAL_ID = Parameter("user_id", str, "Who the person is in your system.", "4711", is_required=True)
"""Called as in other methods of its path: OpenAPI knows a path once, whatever its parameters are called."""

routes = Routes("Operators")


@routes.route(
    "PUT",
    f"{USERS}/{{user_id}}",
    "Make or change the account of a person of your system",
    {201: bodies.ExternalUserPut, 200: bodies.ExternalUserPut},
    body=bodies.ExternalUser,
    path_parameters=(EXTERNAL_ID,),
    refusals=(FORBIDDEN, USERNAME_TAKEN, NO_SUCH_USER),
    needs="operator",
)
async def put_external_user(call: Call) -> Answer:
    """May be repeated: the same external id is the same person, also if they sign in with a JWT that says so.
    Without a `username` the account gets one that nobody else can have. A deleted account stays deleted.
    """
    wanted, services = await call.body(bodies.ExternalUser), call.services
    profile = WantedProfile(wanted.username, wanted.display_name, wanted.about, wanted.is_bot)
    external_id = call.path(EXTERNAL_ID.name)
    async with services.user_admin.audited(call.acting, "user.put", external_id):
        user, created = await services.external_people.put(external_id, profile)
    return 201 if created else 200, bodies.ExternalUserPut(user.user_id, created, user.username)


@routes.route(
    "POST",
    f"{USERS}/{{user_id}}/tokens",
    "Make a token for a device of a person",
    {201: SessionGranted},
    body=bodies.NewUserToken,
    refusals=(FORBIDDEN, NO_SUCH_USER, ACCOUNT_DISABLED),
    needs="operator",
)
async def make_user_token(call: Call) -> Answer:
    """For backends that log people in themselves: hand it to their device. It is a session like any other;
    with `expires_in_seconds` it ends then, however often it is used.
    """
    wanted, services, user_id = await call.body(bodies.NewUserToken), call.services, call.path("user_id")
    async with services.user_admin.audited(call.acting, "user.token", user_id, wanted.device_id):
        token, session = await services.user_admin.make_session(
            user_id, wanted.device_id, wanted.device_name, wanted.expires_in_seconds
        )
    return 201, SessionGranted(
        token, user_id, session.session_id, session.device_id, iso(session.expires_at_ms)
    )


@routes.route(
    "POST",
    CHATS,
    "Create a chat for others",
    {201: bodies.ChatOfOthers, 200: bodies.ChatOfOthers},
    body=bodies.NewChatOfOthers,
    refusals=(FORBIDDEN, BLOCKED, NO_SUCH_USER),
    needs="operator",
    cost=5,
)
async def create_chat_of_others(call: Call) -> Answer:
    """As if its owner had created it: people who do not let the owner add them are invited. A direct chat of
    the same two people is the same chat: 200.
    """
    wanted, services = await call.body(bodies.NewChatOfOthers), call.services
    owner_id = wanted.owner_id or wanted.member_ids[0]
    async with services.user_admin.audited(call.acting, "chat.create", owner_id, wanted.type.value):
        done = await services.chat_admin.create(
            owner_id, wanted.type, wanted.member_ids, wanted.title, wanted.open_to_join, call.new_id(ids.CHAT)
        )
    chat = done.chat
    assert chat is not None
    return 201 if done.is_new else 200, bodies.ChatOfOthers(
        chat_id=chat.chat_id,
        type=chat.chat_type,
        title=chat.title,
        created_by=chat.created_by,
        created_at=chat.created_at,
        created=done.is_new,
        invited=done.invited,
    )


@routes.route(
    "PUT",
    MEMBER,
    "Put a person into a chat, or change their role",
    {200: bodies.MemberState},
    body=bodies.MemberPut,
    refusals=(FORBIDDEN, BLOCKED, NO_SUCH_USER, NOT_FOUND, *APPENDS),
    needs="operator",
)
async def put_member(call: Call) -> Answer:
    """On behalf of an owner of the group, in whose name it stands in the log. May be repeated: nothing is
    written if it is so already.
    """
    wanted, services = await call.body(bodies.MemberPut), call.services
    chat_id, user_id = call.path("chat_id"), call.path("user_id")
    async with services.user_admin.audited(call.acting, "member.put", chat_id, user_id):
        sequence, invited = await services.chat_admin.put_member(chat_id, user_id, wanted.role)
    return 200, bodies.MemberState(chat_id, user_id, wanted.role, sequence, invited)


@routes.route(
    "DELETE",
    MEMBER,
    "Take a person out of a chat",
    {204: None},
    refusals=(FORBIDDEN, NOT_FOUND, *APPENDS),
    needs="operator",
)
async def remove_member_of_others(call: Call) -> Answer:
    """On behalf of an owner of the group. May be repeated."""
    services, chat_id, user_id = call.services, call.path("chat_id"), call.path("user_id")
    async with services.user_admin.audited(call.acting, "member.remove", chat_id, user_id):
        await services.chat_admin.remove_member(chat_id, user_id)
    return 204, None


@routes.route(
    "POST",
    f"{CHATS}/{{chat_id}}/messages",
    "Send a message for a member",
    {201: Receipt, 200: Receipt},
    body=bodies.MessageOnBehalf,
    headers=(MESSAGE_KEY,),
    refusals=(FORBIDDEN, NOT_A_MEMBER, BLOCKED, DUPLICATE_ID, *POSTS, *APPENDS),
    needs="operator",
)
async def send_on_behalf(call: Call) -> Answer:
    """As if `sender_id` had sent it: they must be a member. The audit log says who did it."""
    wanted, services, chat_id = await call.body(bodies.MessageOnBehalf), call.services, call.path("chat_id")
    async with services.user_admin.audited(call.acting, "message.send", wanted.sender_id, chat_id):
        return await send(
            call,
            wanted.sender_id,
            chat_id,
            wanted.content,
            client_message_id=wanted.client_message_id,
            content_type=wanted.content_type,
            display_time=wanted.display_time,
            mentions=wanted.mentions,
        )
