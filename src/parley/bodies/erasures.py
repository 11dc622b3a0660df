"""Erasures of people, and of whole chats, that operators asked for: noted durably, then done by a job, again
if it died.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

import structlog
from msgspec.structs import replace

from parley.bodies.subjects import is_chat
from parley.clock import Clock, iso
from parley.core.jobs import Job
from parley.errors import NOT_FOUND, UNDER_HOLD, Refused
from parley.model import ErasedChat, ErasureReport, ErasureStep, JobScope
from parley.records.book import Book
from parley.records.chat_settings import Retentions
from parley.records.erasures import Erasures
from parley.store.ports import Directory
from parley.store.rows import ChatRetention

if TYPE_CHECKING:
    from parley.bodies.retention import Retention, RetentionLine, RetentionReport

LOOK_SECONDS = 60.0
FIRST_LOOK_SECONDS = 2.0
LOOK_SECONDS_MAX = 6 * 3600.0
"""An erasure reads every log; what it has removed is not there for the next look."""
JOB = "erasures"
CHATS_LISTED_MAX = 1_000
"""Chats that a report lists; of those beyond, it says how many."""
NO_SUCH_CHAT = NOT_FOUND.because("there is no such chat")

log = structlog.get_logger("parley.archive")


class Forget(Protocol):
    """Forgets something of a person, and returns how much it was. `dry`: only counts it."""

    async def __call__(self, user_id: str, *, dry: bool = False) -> int: ...


async def forget_nothing(user_id: str, *, dry: bool = False) -> int:
    return 0


async def nobody_leaves(chat_id: str) -> None:
    """Where no chat is deleted."""


async def note_erasure(erasures: Erasures, reports: Book[ErasureReport], user_id: str, now_ms: int) -> None:
    """A person's bodies go, whatever happens to this process: the job finds it."""
    await erasures.add(user_id, now_ms)
    await reports.add(ErasureReport(user_id=user_id, begun_at=iso(now_ms)))


class BodyAdmin:
    """What operators decide about bodies.

    `make_retention` is called for the first erasure. `empty_chat` takes everybody out of a group that is
    deleted. `forget_devices`: a person's devices are not notified any
    more. `forget_reasons`: what they wrote in reports goes.
    """

    def __init__(
        self,
        *,
        make_retention: Callable[[], Retention],
        directory: Directory,
        retentions: Retentions,
        erasures: Erasures,
        reports: Book[ErasureReport],
        clock: Clock,
        forget_cursors: Forget,
        empty_chat: Callable[[str], Awaitable[None]] = nobody_leaves,
        forget_devices: Forget = forget_nothing,
        forget_reasons: Forget = forget_nothing,
        fault_point: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._make_retention = make_retention
        self._directory = directory
        self._retentions = retentions
        self._erasures = erasures
        self._reports = reports
        self._clock = clock
        self._forget_cursors = forget_cursors
        self._empty_chat = empty_chat
        self._forget_devices = forget_devices
        self._forget_reasons = forget_reasons
        self._fault_point = fault_point
        self._woken = asyncio.Event()

    async def begin(self, user_id: str) -> str:
        """Erase a person's bodies, whatever happens to this process. Returns the name of the job."""
        await note_erasure(self._erasures, self._reports, user_id, self._clock())
        self._woken.set()
        return JOB

    async def begin_chat(self, chat_id: str) -> str:
        """The same for a chat: everybody is taken out of a group, and every body goes."""
        if (await self.retention_of(chat_id)).is_held:
            raise Refused(UNDER_HOLD)
        return await self.begin(chat_id)

    async def retention_of(self, chat_id: str) -> ChatRetention:
        if await self._directory.chat(chat_id) is None:
            raise Refused(NO_SUCH_CHAT)
        return (await self._retentions.of([chat_id]))[chat_id]

    async def decide(self, chat_id: str, retention: ChatRetention) -> None:
        if await self._directory.chat(chat_id) is None:
            raise Refused(NO_SUCH_CHAT)
        await self._retentions.decide(chat_id, retention)

    @property
    def job(self) -> Job:
        return Job(
            name=JOB,
            does="removes the bodies of people who are erased, and of chats that are deleted",
            run=self.look,
            interval_seconds=LOOK_SECONDS,
            timeout_seconds=LOOK_SECONDS_MAX,
            first_seconds=FIRST_LOOK_SECONDS,
            scope=JobScope.CLUSTER,
            until_woken=self._woken.wait,
        )

    async def look(self) -> None:
        """Do each erasure that is not finished. Chats under a hold keep what they have."""
        self._woken.clear()
        for user_id in await self._erasures.pending():
            report = await self._erase(user_id)
            await self._erasures.finish(user_id)
            held = [chat.chat_id for chat in report.chats if chat.is_held]
            log.warning("bodies erased", user_id=user_id, hot=report.hot, cold=report.cold, held=held)

    async def reports(self, before: str, limit: int) -> list[ErasureReport]:
        """Of people and of chats, by their ids, descending: below `before`, if that is not empty."""
        return await self._reports.page(before, limit)

    async def report_of(self, user_id: str) -> ErasureReport | None:
        """What the erasure of a person has removed so far; None if there was none."""
        return await self._reports.get(user_id)

    async def _erase(self, user_id: str) -> ErasureReport:
        """The bodies last: with them the engine's files are written anew, without anything that went before.

        If it is cut off in the middle, the next look finishes the step that was under way, and does the rest.
        """
        if is_chat(user_id):
            await self._empty_chat(user_id)
        retention = self._make_retention()
        report = await self._change(user_id, lambda report: replace(report, finished_at=""))
        if report.under_way is not None:
            await self._finish_step(retention, user_id, report.under_way)
        counted = await self._forget(user_id, dry=True)
        if counted != ErasureStep():
            await self.begin_step(user_id, counted)
            await self._forget(user_id)
            await self.end_step(user_id)
        done = await retention.erase(user_id, journal=StepJournal(self, user_id))
        now = iso(self._clock())
        return await self._change(user_id, lambda r: replace(with_holds(r, done), finished_at=now))

    async def _finish_step(self, retention: Retention, user_id: str, step: ErasureStep) -> None:
        """What it had counted is gone now, but for what a hold keeps that was set since."""
        if step.chat_id:
            kept = await retention.finish_chat(user_id, step.chat_id)
            step = replace(step, hot=max(0, step.hot - kept.hot), cold=max(0, step.cold - kept.cold))
        else:
            await self._forget(user_id)
        self._fault_point("erasure_after_removal")
        await self._change(user_id, lambda report: with_step(replace(report, under_way=step)))

    async def _forget(self, user_id: str, *, dry: bool = False) -> ErasureStep:
        return ErasureStep(
            cursors=await self._forget_cursors(user_id, dry=dry),
            devices=await self._forget_devices(user_id, dry=dry),
            reports=await self._forget_reasons(user_id, dry=dry),
        )

    async def begin_step(self, user_id: str, step: ErasureStep) -> None:
        """Durable before anything of it is removed."""
        await self._change(user_id, lambda report: replace(report, under_way=step))
        self._fault_point("erasure_after_count")

    async def end_step(self, user_id: str) -> None:
        self._fault_point("erasure_after_removal")
        await self._change(user_id, with_step)

    async def _change(self, user_id: str, change: Callable[[ErasureReport], ErasureReport]) -> ErasureReport:
        """The job runs on one node, so nobody else changes the report."""
        report = await self._reports.add(ErasureReport(user_id=user_id, begun_at=iso(self._clock())))
        changed = change(report)
        await self._reports.swap(report, changed)
        return changed


class StepJournal:
    """Notes each chat in the report of an erasure."""

    def __init__(self, admin: BodyAdmin, user_id: str) -> None:
        self._admin = admin
        self._user_id = user_id

    async def begin(self, line: RetentionLine) -> None:
        step = ErasureStep(chat_id=line.chat_id, hot=line.hot, cold=line.cold)
        await self._admin.begin_step(self._user_id, step)

    async def end(self) -> None:
        await self._admin.end_step(self._user_id)


def with_step(report: ErasureReport) -> ErasureReport:
    """A report with the step that was under way, and is done."""
    step = report.under_way
    if step is None:
        return report
    chats, left_out = report.chats, report.chats_left_out
    if step.chat_id and (step.hot or step.cold):
        before = {chat.chat_id: chat for chat in chats}.get(step.chat_id)
        is_listed = before is not None or len(chats) < CHATS_LISTED_MAX
        chat = before or ErasedChat(chat_id=step.chat_id)
        chat = replace(chat, hot=chat.hot + step.hot, cold=chat.cold + step.cold, is_held=False)
        chats = _listed(chats, chat) if is_listed else chats
        left_out += not is_listed
    return replace(
        report,
        hot=report.hot + step.hot,
        cold=report.cold + step.cold,
        cursors=report.cursors + step.cursors,
        devices=report.devices + step.devices,
        reports=report.reports + step.reports,
        chats=chats,
        chats_left_out=left_out,
        under_way=None,
    )


def with_holds(report: ErasureReport, done: RetentionReport) -> ErasureReport:
    """A report with the chats whose bodies a hold keeps."""
    chats, left_out = report.chats, report.chats_left_out
    known = {chat.chat_id: chat for chat in chats}
    for line in done.lines:
        if line.is_held and (line.chat_id in known or len(chats) < CHATS_LISTED_MAX):
            chat = known.get(line.chat_id, ErasedChat(chat_id=line.chat_id))
            chats = _listed(chats, replace(chat, is_held=True))
        elif line.is_held:
            left_out += 1
    return replace(report, chats=chats, chats_left_out=left_out)


def _listed(chats: tuple[ErasedChat, ...], chat: ErasedChat) -> tuple[ErasedChat, ...]:
    """With this chat in its place, or as the last one."""
    if all(one.chat_id != chat.chat_id for one in chats):
        return (*chats, chat)
    return tuple(chat if one.chat_id == chat.chat_id else one for one in chats)
