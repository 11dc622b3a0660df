"""Reports of messages: made by members, resolved by operators."""

from __future__ import annotations

import msgspec

from parley.chats.reports import READ, ReportView
from parley.errors import (
    ALREADY_RESOLVED,
    BAD_REQUEST,
    FORBIDDEN,
    LAST_OPERATOR,
    MESSAGE_DELETED,
    NO_SUCH_MESSAGE,
    NO_SUCH_REPORT,
    NOT_A_MEMBER,
    UNDER_HOLD,
    Refused,
)
from parley.gateway.api.chats import APPENDS, CHAT
from parley.gateway.calls import Call, check_rate
from parley.gateway.routes import Answer, Parameter, Routes, limit_parameter
from parley.model import ReportStatus, Scope
from parley.wire import operator_bodies
from parley.wire import people_bodies as bodies

REPORTS, REPORT = "/v1/admin/reports", "/v1/admin/reports/{report_id}"
REPORTS_DEFAULT, REPORTS_MAX = 50, 100
"""Each is shown with its message, which is read for it."""
NO_SUCH_STATUS = BAD_REQUEST.because("status is open or resolved, or left out: all of them")

routes = Routes("Messages")
operator_routes = Routes("Operators")


@routes.route(
    "POST",
    f"{CHAT}/messages/{{message_id}}/report",
    "Report a message to the operators",
    {201: bodies.ReportMade, 200: bodies.ReportMade},
    body=bodies.NewReport,
    refusals=(NOT_A_MEMBER, NO_SUCH_MESSAGE, MESSAGE_DELETED),
    scope=Scope.SEND,
)
async def report_message(call: Call) -> Answer:
    """For members of the chat. The sender is not told. The same message again is the same report: 200.
    Nothing of the message is kept in the report: if it is deleted, operators do not see it either.
    """
    wanted = await call.body(bodies.NewReport)
    if call.is_limited:
        check_rate(await call.services.rates.report(call.user_id))
    report, is_new = await call.services.reports.add(
        call.user_id, call.path("chat_id"), call.path("message_id"), wanted.reason
    )
    made = bodies.ReportMade(
        report.report_id, report.chat_id, report.message_id, report.reason, report.created_at
    )
    return 201 if is_new else 200, made


@operator_routes.route(
    "GET",
    REPORTS,
    "Reports of messages",
    {200: bodies.ReportList},
    query=(
        Parameter("status", str, "`open` or `resolved`; all without it.", "open"),
        Parameter("before", str, "The `next` of the page before; the newest without it."),
        Parameter("brief", bool, "Without the messages; then it is not audited.", default=False),
        limit_parameter(REPORTS_DEFAULT, REPORTS_MAX),
    ),
    refusals=(FORBIDDEN,),
    needs="operator",
)
async def list_reports(call: Call) -> Answer:
    """Those of the newest messages first, each with its message as it is now. A page may be short although
    others follow: go on while there is a `next`.
    """
    limit, asked = call.limit(REPORTS_DEFAULT, REPORTS_MAX), call.text("status")
    if asked and asked not in list(ReportStatus):
        raise Refused(NO_SUCH_STATUS)
    status = ReportStatus(asked) if asked else None
    before = call.text("before")
    if call.flag("brief"):
        page = await call.services.reports.page(status, before, limit)
        without = [msgspec.structs.replace(_info(view), message=None) for view in page.views]
        return 200, bodies.ReportList(without, page.next_before)
    detail = f"status={asked} before={before} limit={limit}"
    async with call.services.user_admin.audited(call.acting, READ, "", detail):
        page = await call.services.reports.page(status, before, limit)
    return 200, bodies.ReportList([_info(view) for view in page.views], page.next_before)


@operator_routes.route(
    "GET",
    REPORT,
    "One report",
    {200: bodies.ReportInfo},
    refusals=(FORBIDDEN, NO_SUCH_REPORT),
    needs="operator",
)
async def show_report(call: Call) -> Answer:
    """With its message as it is now."""
    report_id = call.path("report_id")
    async with call.services.user_admin.audited(call.acting, READ, report_id):
        return 200, _info(await call.services.reports.show(report_id))


@operator_routes.route(
    "POST",
    f"{REPORT}/resolve",
    "Resolve a report",
    {200: bodies.ReportInfo},
    body=bodies.ReportResolution,
    refusals=(FORBIDDEN, NO_SUCH_REPORT, ALREADY_RESOLVED),
    needs="operator",
)
async def resolve_report(call: Call) -> Answer:
    """Say what came of it. This deletes, removes and disables nothing: other requests do. The same again is
    fine; another outcome later is refused.
    """
    wanted = await call.body(bodies.ReportResolution)
    return 200, _info(
        await call.services.reports.resolve(call.acting, call.path("report_id"), wanted.outcome, wanted.note)
    )


@operator_routes.route(
    "POST",
    f"{REPORT}/act",
    "Act on a report",
    {200: operator_bodies.ReportActed},
    body=operator_bodies.ReportAction,
    refusals=(FORBIDDEN, NO_SUCH_REPORT, ALREADY_RESOLVED, UNDER_HOLD, LAST_OPERATOR, *APPENDS),
    needs="operator",
)
async def act_on_report(call: Call) -> Answer:
    """Delete the message, take its sender out of the chat, disable them: what is asked for, in this order.
    Then resolve the report, if there is an `outcome`. Each is recorded, and each can be done alone by its own
    route. If one is refused those before it stay done, and the report stays open. May be repeated.
    """
    wanted, services = await call.body(operator_bodies.ReportAction), call.services
    report_id, acting = call.path("report_id"), call.acting
    async with services.user_admin.audited(acting, "report.act", report_id, f"reason={wanted.reason}"):
        report = (await services.reports.show(report_id)).report
        if report.status is ReportStatus.RESOLVED and wanted.outcome not in (None, report.outcome):
            raise Refused(ALREADY_RESOLVED)
        chat_id, message_id, sender_id = report.chat_id, report.message_id, report.sender_id
        done: list[str] = []
        if wanted.delete_message:
            detail = f"chat={chat_id} reason={wanted.reason}"
            async with services.user_admin.audited(acting, "message.delete", message_id, detail):
                await services.chat_admin.delete_message(chat_id, message_id)
            done.append("delete_message")
        if wanted.remove_sender:
            async with services.user_admin.audited(acting, "member.remove", chat_id, sender_id):
                await services.chat_admin.remove_member(chat_id, sender_id)
            done.append("remove_sender")
        if wanted.disable_sender:
            await services.user_admin.disable(acting, sender_id)
            done.append("disable_sender")
        if wanted.outcome is not None:
            await services.reports.resolve(acting, report_id, wanted.outcome, wanted.note)
        view = await services.reports.show(report_id)
    return 200, operator_bodies.ReportActed(_info(view), done)


def _info(view: ReportView) -> bodies.ReportInfo:
    report, is_resolved = view.report, view.report.status is ReportStatus.RESOLVED
    return bodies.ReportInfo(
        report_id=report.report_id,
        status=report.status,
        chat_id=report.chat_id,
        message_id=report.message_id,
        sequence=report.sequence,
        sender_id=report.sender_id,
        reporter_id=report.reporter_id,
        reason=report.reason,
        created_at=report.created_at,
        message=view.message,
        outcome=report.outcome if is_resolved else None,
        note=report.note if is_resolved else None,
        resolved_by=report.resolved_by if is_resolved else None,
        resolved_at=report.resolved_at if is_resolved else None,
    )
