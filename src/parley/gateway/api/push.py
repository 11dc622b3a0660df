"""Devices that notifications are sent to."""

from __future__ import annotations

from msgspec import UNSET

from parley.clock import iso
from parley.core.node_questions import StateQuestion
from parley.core.push_devices import Provider, PushDevice
from parley.errors import FORBIDDEN, NOT_FOUND
from parley.gateway.calls import Call
from parley.gateway.routes import Answer, Routes
from parley.model import Scope
from parley.wire import bodies, operator_bodies

DEVICES = "/v1/me/push"
DEVICE = f"{DEVICES}/{{device_id}}"

OPERATED = "/v1/admin/users/{user_id}/push/{device_id}"

routes = Routes("Push")
operator_routes = Routes("Operators")


@routes.route(
    "GET", DEVICES, "Your devices that get notifications", {200: bodies.PushDeviceList}, scope=Scope.READ
)
async def list_push_devices(call: Call) -> Answer:
    """Without their tokens."""
    found = await call.services.push.listed(call.user_id)
    return 200, bodies.PushDeviceList([push_device_info(device) for device in found])


@routes.route(
    "PUT",
    DEVICE,
    "Let a device get notifications",
    {200: bodies.PushDeviceInfo},
    body=bodies.NewPushDevice,
    scope=Scope.ADMIN,
)
async def register_push_device(call: Call) -> Answer:
    """A device of yours that is logged in. It gets notifications while none of your devices is connected,
    until it is logged out or removed. May be repeated, also with a new token. A webhook is signed with a
    secret that is in the answer once, when its address is new.
    """
    wanted = await call.body(bodies.NewPushDevice)
    device, secret = await call.services.push.register(call.user_id, call.path("device_id"), wanted)
    return 200, push_device_info(device, secret)


@routes.route(
    "GET",
    DEVICE,
    "How a device is notified",
    {200: bodies.PushDeviceInfo},
    refusals=(NOT_FOUND,),
    scope=Scope.READ,
)
async def show_push_device(call: Call) -> Answer:
    """Without its token."""
    return 200, push_device_info(await call.services.push.one(call.user_id, call.path("device_id")))


@routes.route(
    "DELETE",
    DEVICE,
    "Let a device get no more notifications",
    {204: None},
    refusals=(NOT_FOUND,),
    scope=Scope.ADMIN,
)
async def remove_push_device(call: Call) -> Answer:
    """It gets no more notifications."""
    await call.services.push.remove(call.user_id, call.path("device_id"))
    return 204, None


@routes.route("GET", "/v1/push/vapid", "The key for Web Push", {200: bodies.VapidPublicKey}, scope=Scope.READ)
async def show_vapid_key(call: Call) -> Answer:
    """The same on every node, for as long as the store lives or the configuration names it."""
    return 200, bodies.VapidPublicKey(await call.services.push.public_key())


@operator_routes.route(
    "GET",
    "/v1/admin/push",
    "The providers of notifications, and what became of them",
    {200: operator_bodies.PushState},
    refusals=(FORBIDDEN,),
    needs="operator",
)
async def show_push(call: Call) -> Answer:
    """Counted by each node since it started."""
    counted = {provider.value: dict[str, int]() for provider in Provider}
    silent = []
    said = await call.services.nodes.ask_all(StateQuestion(), operator_bodies.NodeState)
    for node_id, state in said.items():
        if not isinstance(state, operator_bodies.NodeState):
            silent.append(node_id)
            continue
        for provider, outcomes in state.rings.items():
            known = counted.setdefault(provider, {})
            for outcome, count in outcomes.items():
                known[outcome] = known.get(outcome, 0) + count
    ready = call.services.push.providers
    providers = [
        operator_bodies.PushProviderInfo(provider, provider in ready, outcomes)
        for provider, outcomes in counted.items()
    ]
    return 200, operator_bodies.PushState(providers, silent)


@operator_routes.route(
    "DELETE",
    OPERATED,
    "Let a device of a person get no more notifications",
    {204: None},
    refusals=(FORBIDDEN, NOT_FOUND),
    needs="operator",
)
async def silence_device(call: Call) -> Answer:
    """Until its application registers it again."""
    user_id, device_id = call.path("user_id"), call.path("device_id")
    async with call.services.user_admin.audited(call.acting, "push.remove", user_id, device_id):
        await call.services.push.remove(user_id, device_id)
    return 204, None


def push_device_info(device: PushDevice, secret: str | None = None) -> bodies.PushDeviceInfo:
    return bodies.PushDeviceInfo(
        device_id=device.device_id,
        provider=device.provider.value,
        preview=device.preview,
        created_at=iso(device.created_ms),
        secret=UNSET if secret is None else secret,
    )
