"""Members report messages, operators look at them and say what came of it. See docs/moderation.md.

A report says where the message is and who found what about it. It has no copy of the message: what operators
see is read from the log, so a body that is deleted is in no report either.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from msgspec.structs import replace

from parley import ids
from parley.audit import AuditTrail, OperatorCall
from parley.clock import Clock, iso
from parley.core.shown_text import shown_lines, shown_text
from parley.errors import (
    ALREADY_RESOLVED,
    BAD_REQUEST,
    MESSAGE_DELETED,
    NO_SUCH_MESSAGE,
    NO_SUCH_REPORT,
    NOT_A_MEMBER,
    Refused,
    StoreUnavailable,
)
from parley.model import Kind, MessageReport, ReportStatus
from parley.records.book import Book
from parley.store.ports import Directory, Log
from parley.wire.codec import decode_entry
from parley.wire.frames import Entry

LOOKED_AT_MAX = 1_000
"""Reports that one page reads at most, of whatever status."""
REPORTS_PER_READ = 200
REPORTER_CHARS = 16
READ = "report.read"
"""In the audit log: an operator saw reports with their messages."""
NO_REASON = BAD_REQUEST.because("reason has no character that shows")
YOUR_OWN = BAD_REQUEST.because("this message is yours; delete it instead")


class ReportView(NamedTuple):
    """A report, and its message as it is now; None if there is none any more."""

    report: MessageReport
    message: Entry | None


class ReportPage(NamedTuple):
    """`next_before`: where the next page begins; None on the last one."""

    views: list[ReportView]
    next_before: str | None


class ReportService:
    def __init__(
        self, reports: Book[MessageReport], log: Log, directory: Directory, trail: AuditTrail, clock: Clock
    ) -> None:
        self._reports = reports
        self._log = log
        self._directory = directory
        self._trail = trail
        self._clock = clock

    async def add(
        self, user_id: str, chat_id: str, message_id: str, reason: str
    ) -> tuple[MessageReport, bool]:
        """A member reports a message; the same again is the same report, with its first reason."""
        if not (reason := shown_lines(reason)):
            raise Refused(NO_REASON)
        if await self._directory.role(chat_id, user_id) is None:
            raise Refused(NOT_A_MEMBER)
        place = await self._log.find_message(message_id, [chat_id])
        message = await self._at(chat_id, place[1]) if place is not None else None
        if message is None or message.kind != Kind.MESSAGE:
            raise Refused(NO_SUCH_MESSAGE)
        if message.deleted is True:
            raise Refused(MESSAGE_DELETED)
        if message.sender_id == user_id:
            raise Refused(YOUR_OWN)
        report = MessageReport(
            report_id=report_id(message_id, user_id),
            chat_id=chat_id,
            message_id=message_id,
            sequence=message.sequence,
            sender_id=message.sender_id,
            reporter_id=user_id,
            reason=reason,
            created_at=iso(self._clock()),
        )
        known = await self._reports.get(report.report_id)
        kept = known if known is not None else await self._reports.add(report)
        return kept, kept is not known and kept == report

    # Operators

    async def page(self, status: ReportStatus | None, before: str, limit: int) -> ReportPage:
        """Reports about the newest messages first. A page may be short although others follow."""
        found: list[MessageReport] = []
        looked_at, last = 0, before
        while len(found) < limit and looked_at < LOOKED_AT_MAX:
            some = await self._reports.page(last, REPORTS_PER_READ)
            for report in some:
                looked_at, last = looked_at + 1, report.report_id
                if status is None or report.status is status:
                    found.append(report)
                if len(found) == limit:
                    break
            if len(some) < REPORTS_PER_READ and len(found) < limit:
                return ReportPage(await self._views(found), None)
        return ReportPage(await self._views(found), last)

    async def open_count(self) -> int:
        """Of the newest `LOOKED_AT_MAX` reports, how many are open."""
        some = await self._reports.page("", LOOKED_AT_MAX)
        return sum(report.status is ReportStatus.OPEN for report in some)

    async def show(self, report_id: str) -> ReportView:
        return (await self._views([await self._get(report_id)]))[0]

    async def resolve(self, call: OperatorCall, report_id: str, outcome: str, note: str) -> ReportView:
        """Say what came of it. The same again is fine; another outcome later is refused."""
        outcome, note = shown_text(outcome), shown_lines(note)
        async with self._trail.audited(call, "report.resolve", report_id, f"outcome={outcome}"):
            report = await self._get(report_id)
            resolved = replace(
                report,
                status=ReportStatus.RESOLVED,
                outcome=outcome,
                note=note,
                resolved_by=call.actor,
                resolved_at=iso(self._clock()),
            )
            if report.status is ReportStatus.RESOLVED:
                if (report.outcome, report.note) != (outcome, note):
                    raise Refused(ALREADY_RESOLVED)
            elif await self._reports.swap(report, resolved):
                report = resolved
            else:
                raise Refused(ALREADY_RESOLVED)
        return (await self._views([report]))[0]

    async def forget_reasons(self, user_id: str, *, dry: bool = False) -> int:
        """What a person wrote in their reports goes; returns in how many. `dry`: only count them."""
        forgotten, before = 0, ""
        while some := await self._reports.page(before, REPORTS_PER_READ):
            before = some[-1].report_id
            for report in some:
                if report.reporter_id == user_id and report.reason:
                    if not dry:
                        await self._forget_reason(report)
                    forgotten += 1
        return forgotten

    async def _forget_reason(self, report: MessageReport) -> None:
        if not await self._reports.swap(report, replace(report, reason="")):
            found = await self._reports.get(report.report_id)  # it was resolved meanwhile
            if found is not None and not await self._reports.swap(found, replace(found, reason="")):
                raise StoreUnavailable("a report is being changed by too many at once")

    async def _get(self, report_id: str) -> MessageReport:
        report = await self._reports.get(report_id)
        if report is None:
            raise Refused(NO_SUCH_REPORT)
        return report

    async def _views(self, reports: list[MessageReport]) -> list[ReportView]:
        return [ReportView(report, await self._at(report.chat_id, report.sequence)) for report in reports]

    async def _at(self, chat_id: str, sequence: int) -> Entry | None:
        page = await self._log.read(chat_id, sequence - 1, 1)
        return decode_entry(page.entries[0]) if page.entries else None


def report_id(message_id: str, reporter_id: str) -> str:
    """One for each message and reporter; those of newer messages are higher."""
    reporter = hashlib.sha256(reporter_id.encode()).hexdigest()[:REPORTER_CHARS]
    return f"{ids.REPORT}{message_id.removeprefix(ids.MESSAGE)}{reporter}"
