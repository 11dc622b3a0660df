"""Devices that rings are sent to, and how operators fan rings out."""

from __future__ import annotations

from msgspec import UNSET

from parley.clock import iso
from parley.core.push_devices import PushDevice
from parley.errors import FORBIDDEN, NOT_FOUND
from parley.gateway.calls import Call
from parley.gateway.routes import Answer, Routes
from parley.model import Scope
from parley.push.fanout_admin import FanoutView
from parley.wire import bodies

DEVICES = "/v1/me/push"
DEVICE = f"{DEVICES}/{{device_id}}"
ADMIN_CHAT = "/v1/admin/chats/{chat_id}"

routes = Routes("Push")
operator_routes = Routes("Operators")


@routes.route("GET", DEVICES, "Your devices that ring", {200: bodies.PushDeviceList}, scope=Scope.READ)
async def list_push_devices(call: Call) -> Answer:
    """Without their tokens."""
    found = await call.services.push.listed(call.user_id)
    return 200, bodies.PushDeviceList([_info(device) for device in found])


@routes.route(
    "PUT",
    DEVICE,
    "Let a device ring",
    {200: bodies.PushDeviceInfo},
    body=bodies.NewPushDevice,
    scope=Scope.ADMIN,
)
async def register_push_device(call: Call) -> Answer:
    """A device of yours that is logged in. It rings for messages while none of your devices is connected,
    until it is logged out or removed. May be repeated, also with a new token. A webhook is signed with a
    secret that is in the answer once, when its address is new.
    """
    wanted = await call.body(bodies.NewPushDevice)
    device, secret = await call.services.push.register(call.user_id, call.path("device_id"), wanted)
    return 200, _info(device, secret)


@routes.route(
    "GET", DEVICE, "How a device rings", {200: bodies.PushDeviceInfo}, refusals=(NOT_FOUND,), scope=Scope.READ
)
async def show_push_device(call: Call) -> Answer:
    """Without its token."""
    return 200, _info(await call.services.push.one(call.user_id, call.path("device_id")))


@routes.route(
    "DELETE", DEVICE, "Let a device not ring any more", {204: None}, refusals=(NOT_FOUND,), scope=Scope.ADMIN
)
async def remove_push_device(call: Call) -> Answer:
    """It gets no more rings."""
    await call.services.push.remove(call.user_id, call.path("device_id"))
    return 204, None


@routes.route("GET", "/v1/push/vapid", "The key for Web Push", {200: bodies.VapidPublicKey}, scope=Scope.READ)
async def show_vapid_key(call: Call) -> Answer:
    """The same on every node, for as long as the store lives or the configuration names it."""
    return 200, bodies.VapidPublicKey(await call.services.push.public_key())


@operator_routes.route(
    "GET",
    ADMIN_CHAT,
    "A chat, and how its rings are fanned out",
    {200: bodies.FanoutInfo},
    refusals=(FORBIDDEN, NOT_FOUND),
    needs="operator",
)
async def show_fanout(call: Call) -> Answer:
    """By its size, or as an operator chose."""
    return 200, _fanout(await call.services.fanouts.show(call.path("chat_id")))


@operator_routes.route(
    "PATCH",
    ADMIN_CHAT,
    "Choose how rings of a chat are fanned out",
    {200: bodies.FanoutInfo},
    body=bodies.FanoutChange,
    refusals=(FORBIDDEN, NOT_FOUND),
    needs="operator",
)
async def choose_fanout(call: Call) -> Answer:
    """For messages from now on, on every node within half a minute. Rings that are owed stay owed."""
    wanted = await call.body(bodies.FanoutChange)
    by = call.acting
    return 200, _fanout(await call.services.fanouts.choose(by, call.path("chat_id"), wanted.fanout))


def _info(device: PushDevice, secret: str | None = None) -> bodies.PushDeviceInfo:
    return bodies.PushDeviceInfo(
        device_id=device.device_id,
        provider=device.provider.value,
        preview=device.preview,
        created_at=iso(device.created_ms),
        secret=UNSET if secret is None else secret,
    )


def _fanout(view: FanoutView) -> bodies.FanoutInfo:
    chat = view.chat
    return bodies.FanoutInfo(
        chat.chat_id, chat.chat_type, chat.title, view.member_count, view.strategy, view.chosen
    )
