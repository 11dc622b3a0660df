"""People who delete their own account, and what erasures have removed."""

from __future__ import annotations

from parley.errors import BUSY, FORBIDDEN, LAST_OPERATOR, NO_SUCH_ERASURE, WRONG_PASSWORD, Refused
from parley.gateway.api.accounts import limited_guesses
from parley.gateway.api.admin import ERASE, erases
from parley.gateway.calls import Call, address_of
from parley.gateway.routes import Answer, Parameter, Routes, limit_parameter
from parley.model import ErasureReport, Scope
from parley.wire import limits
from parley.wire import people_bodies as bodies
from parley.wire.operator_bodies import ErasureList

routes = Routes("Accounts")
operator_routes = Routes("Operators")


@routes.route(
    "DELETE",
    "/v1/me",
    "Delete your account",
    {202: bodies.OwnDeleted},
    body=bodies.OwnDeletion,
    query=(ERASE,),
    refusals=(WRONG_PASSWORD, LAST_OPERATOR, BUSY),
    hashes=True,
    scope=Scope.ADMIN,
)
async def delete_me(call: Call) -> Answer:
    """With your password; people who sign in elsewhere have none here, and need no body. From the answer on
    the account cannot be used, and its username is free. You leave your groups one by one; a group that you
    own alone goes to the admin who joined first, or else to the member who did. What you wrote stays under an
    author called `deleted`; with `erase=bodies` a job removes it, except from chats under a legal hold. This
    cannot be undone.
    """
    services, user_id = call.services, call.user_id
    wants_erasure = erases(call)
    wanted = await call.body(bodies.OwnDeletion) if call.request.can_read_body else bodies.OwnDeletion()
    address = address_of(call.request, services)
    async with limited_guesses(call, lambda: services.rates.password_change(call.me.session_id)):
        await services.accounts.prove(user_id, wanted.password, address)
    me = call.acting
    await services.user_admin.delete(me, user_id)
    job_id = None
    if wants_erasure:
        async with services.user_admin.audited(me, "user.erase", user_id, "bodies"):
            job_id = await services.body_admin.begin(user_id)
    return 202, bodies.OwnDeleted(user_id, job_id)


@operator_routes.route(
    "GET",
    "/v1/admin/erasures",
    "Erasures of people, and deletions of chats",
    {200: ErasureList},
    query=(
        Parameter("before", str, "The `next` of the page before; the first ones without it."),
        limit_parameter(limits.PAGE_ENTRIES_DEFAULT, limits.PAGE_ENTRIES_MAX),
    ),
    refusals=(FORBIDDEN,),
    needs="operator",
)
async def list_erasures(call: Call) -> Answer:
    """By the ids of the people and chats, descending. Those without `finished_at` are under way."""
    limit = call.limit(limits.PAGE_ENTRIES_DEFAULT, limits.PAGE_ENTRIES_MAX)
    found = await call.services.body_admin.reports(call.text("before"), limit)
    following = found[-1].user_id if len(found) == limit else None
    return 200, ErasureList([_info(report) for report in found], following)


@operator_routes.route(
    "GET",
    "/v1/admin/erasures/{user_id}",
    "What the erasure of a person has removed",
    {200: bodies.ErasureInfo},
    refusals=(FORBIDDEN, NO_SUCH_ERASURE),
    needs="operator",
)
async def show_erasure(call: Call) -> Answer:
    """While the job is at work, and afterwards. Chats under a legal hold are listed, and keep everything."""
    report = await call.services.body_admin.report_of(call.path("user_id"))
    if report is None:
        raise Refused(NO_SUCH_ERASURE)
    return 200, _info(report)


def _info(report: ErasureReport) -> bodies.ErasureInfo:
    return bodies.ErasureInfo(
        user_id=report.user_id,
        begun_at=report.begun_at,
        finished_at=report.finished_at or None,
        hot=report.hot,
        cold=report.cold,
        chats=list(report.chats),
        chats_left_out=report.chats_left_out,
        cursors=report.cursors,
        devices=report.devices,
        reports=report.reports,
    )
