"""`parley report …`: messages that members reported, directly in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from parley.cli.options import AsJson, ChatName, ConfigFile, Data
from parley.model import ReportStatus
from parley.wire.limits import REPORT_OUTCOME_CHARS_MAX

if TYPE_CHECKING:
    from parley.chats.reports import ReportPage, ReportView
    from parley.model import MessageReport

LISTED_DEFAULT, LISTED_MAX = 50, 1_000
HEADINGS = ["REPORT", "STATUS", "CHAT", "SENDER", "REPORTER", "REASON", "MESSAGE"]

app = typer.Typer(no_args_is_help=True, help="Reported messages: list and resolve reports.")

ReportId = Annotated[str, typer.Argument(metavar="REPORT_ID", help="As parley report list shows it.")]


@app.command("list")
def list_reports(
    status: Annotated[
        ReportStatus | None, typer.Option("--status", help="Only these (default: all).")
    ] = None,
    before: Annotated[str, typer.Option("--before", metavar="ID", help="Those before this report.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, max=LISTED_MAX, help="How many.")] = LISTED_DEFAULT,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """List reports, those of the newest messages first, with the messages as they are now."""
    from parley.chats.reports import READ
    from parley.cli import offline
    from parley.cli.output import print_json, print_table, printable
    from parley.cli.places import find_place

    async def look() -> ReportPage:
        async with offline.open_services(find_place(data, config)) as services:
            detail = f"status={status or ''} before={before} limit={limit}"
            async with services.user_admin.audited(offline.who_acts(), READ, "", detail):
                return await services.reports.page(status, before, limit)

    page = offline.run(look())
    if json:
        print_json({"reports": [_shown(view) for view in page.views], "next": page.next_before})
        return
    rows = [
        (r.report_id, r.status, r.chat_id, r.sender_id, r.reporter_id, printable(r.reason), _text(view))
        for view in page.views
        for r in [view.report]
    ]
    print_table(HEADINGS, rows)


@app.command("resolve")
def resolve(
    report_id: ReportId,
    outcome: Annotated[str, typer.Argument(metavar="OUTCOME", help="What came of it, such as dismissed.")],
    note: Annotated[str, typer.Option("--note", help="What other operators should know.")] = "",
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Say what came of a report. This deletes, removes and disables nothing by itself."""
    from parley.cli import offline
    from parley.cli.output import print_json
    from parley.cli.places import find_place

    if not 1 <= len(outcome) <= REPORT_OUTCOME_CHARS_MAX:
        raise typer.BadParameter(f"1 to {REPORT_OUTCOME_CHARS_MAX} characters", param_hint="OUTCOME")

    async def act() -> ReportView:
        async with offline.open_services(find_place(data, config)) as services:
            return await services.reports.resolve(offline.who_acts(), report_id, outcome, note)

    view = offline.run(act())
    if json:
        print_json(_shown(view))
    else:
        print(f"{report_id}  resolved: {view.report.outcome}")


@app.command("add")
def add(
    chat: ChatName,
    message_id: Annotated[str, typer.Argument(metavar="MESSAGE_ID", help="The message.")],
    reason: Annotated[str, typer.Option("--reason", help="What is wrong with it.")],
    name: Annotated[str, typer.Option("--as", metavar="NAME", help="The member who reports it.")],
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """MessageReport a message for a member of its chat."""
    from parley.cli import offline
    from parley.cli.names import require_chat, require_user
    from parley.cli.output import print_json
    from parley.cli.places import find_place

    async def act() -> tuple[MessageReport, bool]:
        async with offline.open_services(find_place(data, config)) as services:
            listing = services.kinds.listing
            chat_id = (await require_chat(listing, chat)).chat_id
            user_id = await require_user(listing, name)
            async with services.user_admin.audited(offline.who_acts(), "report.add", user_id, message_id):
                return await services.reports.add(user_id, chat_id, message_id, reason)

    report, is_new = offline.run(act())
    if json:
        print_json({"report_id": report.report_id, "created": is_new})
    else:
        print(f"{report.report_id}  {'reported' if is_new else 'was reported before'}")


def _shown(view: ReportView) -> dict[str, object]:
    from msgspec import to_builtins

    report: dict[str, object] = to_builtins(view.report)
    return {"status": view.report.status.value, **report, "message": view.message}


def _text(view: ReportView) -> str:
    from parley.cli.output import printable

    if view.message is None or view.message.deleted is True:
        return "(deleted)"
    return printable(view.message.content)
