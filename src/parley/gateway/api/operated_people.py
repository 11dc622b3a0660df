"""One person, and who is an operator. All of it needs an operator's token."""

from __future__ import annotations

import msgspec

from parley.clock import iso
from parley.errors import FORBIDDEN, LAST_OPERATOR, NO_SUCH_USER
from parley.gateway.api.admin import USER, session_info, user_info
from parley.gateway.api.push import push_device_info
from parley.gateway.calls import Call
from parley.gateway.operated_people import ChatOfPerson
from parley.gateway.routes import Answer, Routes
from parley.wire import operator_bodies as bodies
from parley.wire.people_bodies import UserInfo

OPERATOR = f"{USER}/operator"
PERSON_COST = 5

routes = Routes("Operators")


@routes.route(
    "GET",
    USER,
    "A person with their chats, devices and sessions",
    {200: bodies.PersonInfo},
    refusals=(FORBIDDEN, NO_SUCH_USER),
    needs="operator",
    cost=PERSON_COST,
)
async def show_person(call: Call) -> Answer:
    """And how far they are in each chat. It shows no messages."""
    state = await call.services.operated_people.show(call.path("user_id"))
    last_first = sorted(state.devices.items(), key=lambda one: -one[1])
    return 200, bodies.PersonInfo(
        **msgspec.structs.asdict(user_info(state.user)),
        about=state.user.about,
        chats=[_chat(one) for one in state.chats],
        chat_count=state.chat_count,
        devices=[bodies.PersonDevice(device_id, iso(used_ms)) for device_id, used_ms in last_first],
        push_devices=[push_device_info(device) for device in state.push],
        sessions=[session_info(session) for session in state.sessions],
    )


@routes.route(
    "PUT",
    OPERATOR,
    "Make a person an operator",
    {200: UserInfo},
    refusals=(FORBIDDEN, NO_SUCH_USER),
    needs="operator",
    needs_password=True,
)
async def make_operator(call: Call) -> Answer:
    """They may use these routes with the tokens that they have. May be repeated."""
    user = await call.services.user_admin.set_operator(call.acting, call.path("user_id"), is_operator=True)
    return 200, user_info(user)


@routes.route(
    "DELETE",
    OPERATOR,
    "Let a person be no operator any more",
    {200: UserInfo},
    refusals=(FORBIDDEN, NO_SUCH_USER, LAST_OPERATOR),
    needs="operator",
)
async def end_operator(call: Call) -> Answer:
    """From the next request on, also with the tokens of programs that they made: these keep their other
    scopes, and `admin` counts again if their maker is an operator again. There is always one who is left.
    May be repeated.
    """
    user = await call.services.user_admin.set_operator(call.acting, call.path("user_id"), is_operator=False)
    return 200, user_info(user)


def _chat(one: ChatOfPerson) -> bodies.PersonChat:
    chat, settings = one.chat, one.settings
    return bodies.PersonChat(
        chat.chat_id,
        chat.chat_type,
        chat.title,
        one.role,
        one.head,
        settings.delivered_up_to,
        settings.read_up_to,
    )
