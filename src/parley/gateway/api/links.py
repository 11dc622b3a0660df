"""Links that operators make: invitations to register, and resets of passwords."""

from __future__ import annotations

from msgspec import UNSET, structs

from parley.clock import iso
from parley.core.links import state_of
from parley.errors import (
    BUSY,
    FORBIDDEN,
    LINK_EXPIRED,
    LINK_REVOKED,
    LINK_USED,
    NO_SUCH_LINK,
    NO_SUCH_USER,
    Refused,
)
from parley.gateway.api.accounts import REGISTRATION_CLOSED
from parley.gateway.api.admin import USER
from parley.gateway.calls import REQUEST_ID, Call, address_of
from parley.gateway.link_page import path_of
from parley.gateway.routes import Answer, Parameter, Routes, limit_parameter
from parley.model import Link, LinkPurpose
from parley.wire import limits
from parley.wire import people_bodies as bodies

INVITES, INVITE = "/v1/admin/invites", "/v1/admin/invites/{link_id}"
RESET = f"{USER}/password-reset"

routes = Routes("Operators")
public_routes = Routes("Accounts")


@routes.route(
    "POST",
    INVITES,
    "Make a link by which people register",
    {201: bodies.LinkMade},
    body=bodies.NewInvite,
    refusals=(FORBIDDEN, REGISTRATION_CLOSED),
    needs="operator",
)
async def make_invite(call: Call) -> Answer:
    """The link is shown this once: the server keeps a digest. It is for one person, or for as many as `uses`
    says. It works unless `accounts.registration` is `closed`; with `invite` nobody registers without one.
    """
    if call.services.config.accounts.registration == "closed":
        raise Refused(REGISTRATION_CLOSED)
    wanted = await call.body(bodies.NewInvite)
    token, link = await call.services.links.invite(
        call.acting, wanted.uses, wanted.expires_in_seconds, wanted.note
    )
    return 201, _made(call, token, link)


@routes.route(
    "GET",
    INVITES,
    "The links by which people register",
    {200: bodies.LinkList},
    query=(
        Parameter("before", str, "The `next` of the page before; the newest without it."),
        limit_parameter(limits.PAGE_ENTRIES_DEFAULT, limits.PAGE_ENTRIES_MAX),
    ),
    refusals=(FORBIDDEN,),
    needs="operator",
)
async def list_invites(call: Call) -> Answer:
    """The newest first, with who came by each. Links that are over for 30 days may be gone."""
    limit = call.limit(limits.PAGE_ENTRIES_DEFAULT, limits.PAGE_ENTRIES_MAX)
    found = await call.services.links.page(LinkPurpose.INVITE, call.text("before"), limit)
    now_ms = call.services.clock()
    following = found[-1].link_id if len(found) == limit else None
    return 200, bodies.LinkList([_info(link, now_ms) for link in found], following)


@routes.route(
    "DELETE",
    INVITE,
    "Revoke a link by which people register",
    {204: None},
    refusals=(FORBIDDEN, NO_SUCH_LINK),
    needs="operator",
)
async def revoke_invite(call: Call) -> Answer:
    """Nobody registers by it from now on; accounts that were made stay. May be repeated."""
    await call.services.links.revoke(call.acting, call.path("link_id"))
    return 204, None


@routes.route(
    "POST",
    RESET,
    "Make a link by which a person sets a new password",
    {201: bodies.LinkMade},
    body=bodies.NewPasswordLink,
    refusals=(FORBIDDEN, NO_SUCH_USER),
    needs="operator",
)
async def offer_password_reset(call: Call) -> Answer:
    """For who has forgotten theirs: give them the link by a way that you trust. It is shown this once and
    works once; a newer one takes its place. Nothing changes until it is used.
    """
    wanted = await call.body(bodies.NewPasswordLink)
    token, link = await call.services.links.offer_reset(
        call.acting, call.path("user_id"), wanted.expires_in_seconds
    )
    return 201, _made(call, token, link)


@routes.route(
    "DELETE",
    RESET,
    "Revoke the link by which a person sets a new password",
    {204: None},
    refusals=(FORBIDDEN, NO_SUCH_USER),
    needs="operator",
)
async def withdraw_password_reset(call: Call) -> Answer:
    """May be repeated; also if there is none."""
    await call.services.links.withdraw_resets(call.acting, call.path("user_id"))
    return 204, None


@public_routes.route(
    "POST",
    "/v1/password-reset",
    "Set a new password by a link",
    {204: None},
    body=bodies.PasswordByLink,
    refusals=(NO_SUCH_LINK, LINK_USED, LINK_EXPIRED, LINK_REVOKED, BUSY),
    needs="nothing",
    hashes=True,
)
async def reset_password_by_link(call: Call) -> Answer:
    """With the `token` of a link that an operator made. All sessions of the person end. A password that is
    refused does not use the link up.
    """
    wanted = await call.body(bodies.PasswordByLink)
    address = address_of(call.request, call.services)
    await call.services.links.reset(wanted.token, wanted.new_password, call.request[REQUEST_ID], address)
    return 204, None


def _made(call: Call, token: str, link: Link) -> bodies.LinkMade:
    path = path_of(token)
    made = structs.asdict(_info(link, call.services.clock()))
    return bodies.LinkMade(**made, token=token, url=f"{call.request.url.origin()}{path}", path=path)


def _info(link: Link, now_ms: int) -> bodies.LinkInfo:
    return bodies.LinkInfo(
        link_id=link.link_id,
        state=state_of(link, now_ms).value,
        created_by=link.created_by,
        created_at=iso(link.created_at_ms),
        expires_at=iso(link.expires_at_ms),
        uses=link.uses_max,
        used_by=list(link.used_by),
        note=link.note,
        user_id=link.user_id or UNSET,
    )
