"""How long bodies are kept, chat by chat; who holds them; and the erasure of a person's bodies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

import msgspec
import structlog
from msgspec import Struct

from parley.bodies.subjects import chats_of, choice_of
from parley.bodies.writer import Choice, EntryWriter
from parley.clock import MS_PER_DAY, Clock, iso
from parley.records.chat_settings import Retentions
from parley.store.maintenance import Inspection
from parley.store.rows import ChatRetention
from parley.telemetry import Metrics

log = structlog.get_logger("parley.archive")


class RetentionLine(Struct, kw_only=True):
    """What is removed from one chat. `days`: how long bodies are kept, 0 for ever. `before`: the limit."""

    chat_id: str
    days: int
    is_held: bool
    before: str
    hot: int = 0
    cold: int = 0


class RetentionReport(Struct):
    """What was removed, or will be: the chats with something to remove, and those under a hold."""

    chats: int = 0
    hot: int = 0
    cold: int = 0
    lines: list[RetentionLine] = msgspec.field(default_factory=list)

    @property
    def bodies(self) -> int:
        return self.hot + self.cold


class ErasureJournal(Protocol):
    """Hears of each chat that an erasure of a person changes."""

    async def begin(self, line: RetentionLine) -> None:
        """So much will be removed. Durable before it returns."""
        ...

    async def end(self) -> None:
        """It was."""
        ...


OnReport = Callable[[RetentionReport], None]


def nothing_shown(_: RetentionReport) -> None:
    """For a run without a display."""


def days_of(retention: ChatRetention, days_usual: int) -> int:
    """How many days the bodies of a chat are kept; 0 for ever."""
    return days_usual if retention.days is None else retention.days


class Retention:
    """`days`: how long bodies are kept where no operator decided otherwise; 0 for ever."""

    def __init__(
        self,
        writer: EntryWriter,
        retentions: Retentions,
        inspection: Inspection,
        clock: Clock,
        metrics: Metrics,
        days: int,
    ) -> None:
        self._writer = writer
        self._retentions = retentions
        self._inspection = inspection
        self._clock = clock
        self._metrics = metrics
        self._days = days

    async def report(
        self, chat_ids: Sequence[str] | None = None, show: OnReport = nothing_shown
    ) -> RetentionReport:
        """What `apply` would remove now. Changes nothing."""
        return await self._run(chat_ids, show, dry=True)

    async def apply(
        self, chat_ids: Sequence[str] | None = None, show: OnReport = nothing_shown
    ) -> RetentionReport:
        """Remove bodies that are older than they are kept. May be repeated."""
        return await self._run(chat_ids, show, dry=False)

    async def _run(self, chat_ids: Sequence[str] | None, show: OnReport, *, dry: bool) -> RetentionReport:
        report = RetentionReport()
        async for chat_id, retention in self._chats(chat_ids):
            days = days_of(retention, self._days)
            if days and not retention.is_held:
                before = iso(self._clock() - days * MS_PER_DAY)
                erased = await self._writer.erase(chat_id, Choice(before=before), dry=dry)
                line = RetentionLine(
                    chat_id=chat_id, days=days, is_held=False, before=before, hot=erased.hot, cold=erased.cold
                )
                self._add(report, line, "retention", is_done=not dry)
            elif retention.is_held:
                report.lines.append(RetentionLine(chat_id=chat_id, days=days, is_held=True, before=""))
            report.chats += 1
            show(report)
        if report.bodies and not dry:
            log.warning("bodies removed", why="retention", hot=report.hot, cold=report.cold)
            await self._writer.scrub()
        return report

    async def erase(
        self,
        subject_id: str,
        show: OnReport = nothing_shown,
        *,
        dry: bool = False,
        journal: ErasureJournal | None = None,
    ) -> RetentionReport:
        """Remove the bodies of all messages of a person, or of a chat, where they are not under a hold.

        A chat with such messages is read twice: what is removed is counted before.
        """
        report, choice = RetentionReport(), choice_of(subject_id)
        async for chat_id, retention in self._chats(chats_of(subject_id)):
            found = await self._writer.erase(chat_id, choice, dry=True)
            if retention.is_held and found.bodies:
                report.lines.append(RetentionLine(chat_id=chat_id, days=0, is_held=True, before=""))
            elif found.bodies:
                line = RetentionLine(
                    chat_id=chat_id, days=0, is_held=False, before="", hot=found.hot, cold=found.cold
                )
                if not dry:
                    await self._remove(line, choice, journal)
                self._add(report, line, "erasure", is_done=not dry)
            report.chats += 1
            show(report)
        if not dry:  # also without bodies: the profile was emptied before
            await self._writer.scrub()
        return report

    async def _remove(self, line: RetentionLine, choice: Choice, journal: ErasureJournal | None) -> None:
        if journal is not None:
            await journal.begin(line)
        await self._writer.erase(line.chat_id, choice)
        if journal is not None:
            await journal.end()

    async def finish_chat(self, subject_id: str, chat_id: str) -> RetentionLine:
        """Remove what an erasure that was cut off has left in a chat; what a hold keeps of it is counted."""
        choice = choice_of(subject_id)
        async for found, retention in self._chats([chat_id]):
            if retention.is_held:
                kept = await self._writer.erase(found, choice, dry=True)
                return RetentionLine(
                    chat_id=chat_id, days=0, is_held=True, before="", hot=kept.hot, cold=kept.cold
                )
            await self._writer.erase(found, choice)
        return RetentionLine(chat_id=chat_id, days=0, is_held=False, before="")

    def _add(self, report: RetentionReport, line: RetentionLine, why: str, *, is_done: bool) -> None:
        if line.hot or line.cold:
            report.lines.append(line)
            report.hot += line.hot
            report.cold += line.cold
            if is_done:
                self._metrics.bodies_removed.labels(why).inc(line.hot + line.cold)

    async def _chats(self, chat_ids: Sequence[str] | None) -> AsyncIterator[tuple[str, ChatRetention]]:
        async for page in self._inspection.chats(chat_ids):
            found = await self._retentions.of([chat.chat_id for chat in page])
            for chat_id, retention in found.items():
                yield chat_id, retention
