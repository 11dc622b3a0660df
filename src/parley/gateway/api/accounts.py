"""Accounts, sessions and devices."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from parley.clock import iso
from parley.errors import (
    ACCOUNT_DISABLED,
    BUSY,
    FORBIDDEN,
    LINK_EXPIRED,
    LINK_REVOKED,
    LINK_USED,
    NO_SUCH_LINK,
    NOT_FOUND,
    USERNAME_TAKEN,
    WRONG_PASSWORD,
    Refused,
)
from parley.gateway.calls import Call, address_of, check_rate, is_limited, is_local
from parley.gateway.routes import Answer, Routes
from parley.gateway.shared_rates import RateBudget
from parley.model import Scope
from parley.wire import bodies

REGISTRATION_CLOSED = FORBIDDEN.because(
    "this server does not take registrations; ask its operator for an account"
)
INVITE_NEEDED = FORBIDDEN.because("registration needs an invitation link; ask the operator for one")
LINK_REFUSALS = (NO_SUCH_LINK, LINK_USED, LINK_EXPIRED, LINK_REVOKED)

routes = Routes("Accounts")


@routes.route(
    "POST",
    "/v1/accounts",
    "Register",
    {201: bodies.Account},
    body=bodies.NewAccount,
    refusals=(REGISTRATION_CLOSED, USERNAME_TAKEN, BUSY, *LINK_REFUSALS),
    needs="nothing",
    hashes=True,
)
async def create_account(call: Call) -> Answer:
    """Create an account. The setting `accounts.registration` says who may: direct requests to a loopback
    address at first, and whoever has an `invite`, the token of an invitation link.
    """
    services, request = call.services, call.request
    setting = services.config.accounts.registration
    if setting == "closed":
        raise Refused(REGISTRATION_CLOSED)
    wanted = await call.body(bodies.NewAccount)
    if not wanted.invite and setting == "invite":
        raise Refused(INVITE_NEEDED)
    if not wanted.invite and setting == "loopback" and not is_local(request, services):
        raise Refused(REGISTRATION_CLOSED)
    address = address_of(request, services)
    if is_limited(request, services):
        check_rate(await services.rates.registration(address))
    if wanted.invite:
        user = await services.links.register(wanted.invite, wanted.username, wanted.password, address)
    else:
        user = await services.accounts.register(wanted.username, wanted.password, address=address)
    return 201, bodies.Account(user.user_id, user.username)


@routes.route(
    "POST",
    "/v1/sessions",
    "Log in",
    {201: bodies.SessionGranted},
    body=bodies.NewSession,
    refusals=(WRONG_PASSWORD, ACCOUNT_DISABLED, BUSY),
    needs="nothing",
    hashes=True,
)
async def create_session(call: Call) -> Answer:
    """Make a new session for a device. Its token goes into `Authorization: Bearer …`, or into the frame
    `hello`. Earlier tokens of the device stay valid until they are revoked or unused for 30 days. The
    hundred and first session of a person ends the one that was used least recently.
    """
    asked = await call.body(bodies.NewSession)
    accounts, address = call.services.accounts, address_of(call.request, call.services)
    is_known = partial(accounts.is_known_address, asked.username, address)
    async with limited_guesses(call, lambda: call.services.rates.login(asked.username, address, is_known)):
        token, session = await accounts.log_in(
            asked.username, asked.password, asked.device_id, asked.device_name, address
        )
    granted = bodies.SessionGranted(
        token, session.user_id, session.session_id, session.device_id, iso(session.expires_at_ms)
    )
    return 201, granted


@asynccontextmanager
async def limited_guesses(
    call: Call, count: Callable[[], Awaitable[tuple[int, list[RateBudget]]]]
) -> AsyncIterator[None]:
    """Count wrong passwords. Until it is known, every try counts: parallel guesses are guesses too."""
    if not is_limited(call.request, call.services):
        yield
        return
    wait_ms, counted = await count()
    check_rate(wait_ms)
    is_wrong = False
    try:
        yield
    except Refused as error:
        is_wrong = error.refusal.status == 401
        raise
    finally:
        if not is_wrong:
            await call.services.rates.give_back(counted)


@routes.route("GET", "/v1/sessions", "Your sessions", {200: bodies.SessionList}, scope=Scope.READ)
async def list_sessions(call: Call) -> Answer:
    """Every session of yours on any device."""
    found = [
        bodies.SessionInfo(
            session_id=session.session_id,
            device_id=session.device_id,
            device_name=session.device_name,
            last_used_at=iso(session.last_used_at_ms),
            expires_at=iso(session.expires_at_ms),
            current=session.session_id == call.me.session_id,
        )
        for session in await call.services.accounts.sessions(call.user_id)
    ]
    return 200, bodies.SessionList(found)


@routes.route("DELETE", "/v1/sessions/current", "Sign out", {204: None}, scope=Scope.ADMIN)
async def end_own_session(call: Call) -> Answer:
    """The session of this token is over: its sockets close, and a device without another session is
    forgotten. The token of a program or of another login is not ended by this.
    """
    await call.services.accounts.sign_out(call.user_id, call.me.session_id)
    return 204, None


@routes.route(
    "DELETE",
    "/v1/sessions/{session_id}",
    "Revoke a session",
    {204: None},
    refusals=(NOT_FOUND,),
    scope=Scope.ADMIN,
)
async def end_session(call: Call) -> Answer:
    """Its token is refused from now on, and its sockets are closed at once."""
    await call.services.accounts.revoke(call.user_id, call.path("session_id"))
    return 204, None


@routes.route(
    "GET", "/v1/devices", "Your devices, last used first", {200: bodies.DeviceList}, scope=Scope.READ
)
async def list_devices(call: Call) -> Answer:
    """Every device with a session of yours."""
    found = [
        bodies.Device(
            device_id=device.device_id,
            device_name=device.device_name,
            last_used_at=iso(device.last_used_at_ms),
            sessions=device.sessions,
            current=device.device_id == call.me.device_id,
        )
        for device in await call.services.accounts.devices(call.user_id)
    ]
    return 200, bodies.DeviceList(found)


@routes.route(
    "DELETE",
    "/v1/devices/{device_id}",
    "Remove a device: its sessions end, its positions are forgotten",
    {204: None},
    refusals=(NOT_FOUND,),
    cost=5,
    scope=Scope.ADMIN,
)
async def remove_device(call: Call) -> Answer:
    """Log a device out everywhere. When it comes back it starts without positions."""
    await call.services.accounts.remove_device(call.user_id, call.path("device_id"))
    return 204, None


@routes.route(
    "POST",
    "/v1/me/password",
    "Change your password; your other sessions end",
    {204: None},
    body=bodies.NewPassword,
    refusals=(WRONG_PASSWORD, BUSY),
    hashes=True,
    scope=Scope.ADMIN,
)
async def change_password(call: Call) -> Answer:
    """This session stays; every other one is revoked."""
    wanted = await call.body(bodies.NewPassword)
    address = address_of(call.request, call.services)
    async with limited_guesses(call, lambda: call.services.rates.password_change(call.me.session_id)):
        await call.services.accounts.change_password(
            call.me, wanted.old_password, wanted.new_password, address
        )
    return 204, None
