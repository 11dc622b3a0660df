"""Erasures of people that operators asked for: noted durably, then done by a job, again if it died."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import structlog
from msgspec.structs import replace

from parley.clock import Clock, iso
from parley.core.jobs import Job
from parley.errors import BAD_REQUEST, NOT_FOUND, Refused
from parley.model import ErasedChat, ErasureReport, JobScope
from parley.store.books import Book
from parley.store.cold.ports import ColdTier, Erasures
from parley.store.rows import ChatRetention

if TYPE_CHECKING:
    from parley.archive.retention import Retention, RetentionReport

LOOK_SECONDS = 60.0
FIRST_LOOK_SECONDS = 2.0
LOOK_SECONDS_MAX = 6 * 3600.0
"""An erasure reads every log; what it has removed is not there for the next look."""
JOB = "erasures"
CHATS_LISTED_MAX = 1_000
"""Chats that a report lists; of those beyond, it says how many."""
NO_ERASURE = BAD_REQUEST.because("this engine cannot remove bodies; leave erase out, and the messages stay")
NO_SUCH_CHAT = NOT_FOUND.because("there is no such chat")

log = structlog.get_logger("parley.archive")


Forget = Callable[[str], Awaitable[int]]
"""Forgets something of a person, and returns how much it was."""


async def forget_nothing(user_id: str) -> int:
    return 0


async def note_erasure(
    erasures: Erasures | None, reports: Book[ErasureReport], user_id: str, now_ms: int
) -> None:
    """A person's bodies go, whatever happens to this process: the job finds it."""
    if erasures is None:
        raise Refused(NO_ERASURE)
    await erasures.add(user_id, now_ms)
    await reports.add(ErasureReport(user_id=user_id, begun_at=iso(now_ms)))


class BodyAdmin:
    """What operators decide about bodies. `tier` and `erasures` are None where none can be removed.

    `make_retention` is called for the first erasure. `forget_devices`: a person's devices are not rung any
    more. `forget_reasons`: what they wrote in reports goes.
    """

    def __init__(
        self,
        make_retention: Callable[[], Retention],
        tier: ColdTier | None,
        erasures: Erasures | None,
        reports: Book[ErasureReport],
        clock: Clock,
        forget_devices: Forget = forget_nothing,
        forget_reasons: Forget = forget_nothing,
    ) -> None:
        self._make_retention = make_retention
        self._tier = tier
        self._erasures = erasures
        self._reports = reports
        self._clock = clock
        self._forget_devices = forget_devices
        self._forget_reasons = forget_reasons
        self._woken = asyncio.Event()

    def check(self) -> None:
        """Refused where bodies cannot be erased."""
        if self._tier is None or self._erasures is None:
            raise Refused(NO_ERASURE)

    async def begin(self, user_id: str) -> str:
        """Erase a person's bodies, whatever happens to this process. Returns the name of the job."""
        await note_erasure(self._erasures, self._reports, user_id, self._clock())
        self._woken.set()
        return JOB

    async def retention_of(self, chat_id: str) -> ChatRetention:
        if self._tier is None:
            raise Refused(NO_ERASURE)
        found = (await self._tier.retentions([chat_id])).get(chat_id)
        if found is None:
            raise Refused(NO_SUCH_CHAT)
        return found

    async def decide(self, chat_id: str, retention: ChatRetention) -> None:
        if self._tier is None:
            raise Refused(NO_ERASURE)
        if not await self._tier.set_retention(chat_id, retention):
            raise Refused(NO_SUCH_CHAT)

    @property
    def job(self) -> Job:
        return Job(
            name=JOB,
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
        if self._erasures is None or self._tier is None:
            return
        for user_id in await self._erasures.pending():
            report = await self._erase(self._erasures, user_id)
            await self._erasures.finish(user_id)
            held = [chat.chat_id for chat in report.chats if chat.is_held]
            log.warning("bodies erased", user_id=user_id, hot=report.hot, cold=report.cold, held=held)

    async def report_of(self, user_id: str) -> ErasureReport | None:
        """What the erasure of a person has removed so far; None if there was none."""
        return await self._reports.get(user_id)

    async def _erase(self, erasures: Erasures, user_id: str) -> ErasureReport:
        """The bodies last: with them the engine's files are written anew, without anything that went before.

        If it fails in the middle, what it did is reported, and the next look adds the rest.
        """
        cursors = await erasures.forget_cursors(user_id)
        devices = await self._forget_devices(user_id)
        reasons = await self._forget_reasons(user_id)
        await self._add(user_id, lambda r: forgotten(r, cursors, devices, reasons))
        latest: RetentionReport | None = None

        def keep(report: RetentionReport) -> None:
            nonlocal latest
            latest = report

        try:
            latest = await self._make_retention().erase_person(user_id, keep)
        except BaseException:
            await self._add(user_id, lambda report: with_bodies(report, latest))
            raise
        now = iso(self._clock())
        return await self._add(user_id, lambda r: replace(with_bodies(r, latest), finished_at=now))

    async def _add(self, user_id: str, change: Callable[[ErasureReport], ErasureReport]) -> ErasureReport:
        """The job runs on one node, so nobody else changes the report."""
        report = await self._reports.add(ErasureReport(user_id=user_id, begun_at=iso(self._clock())))
        changed = change(report)
        await self._reports.swap(report, changed)
        return changed


def forgotten(report: ErasureReport, cursors: int, devices: int, reasons: int) -> ErasureReport:
    return replace(
        report,
        cursors=report.cursors + cursors,
        devices=report.devices + devices,
        reports=report.reports + reasons,
        finished_at="",
    )


def with_bodies(report: ErasureReport, removed: RetentionReport | None) -> ErasureReport:
    """A report with what one more look has removed."""
    if removed is None:
        return report
    by_chat = {chat.chat_id: chat for chat in report.chats}
    left_out = report.chats_left_out
    for line in removed.lines:
        before = by_chat.get(line.chat_id, ErasedChat(chat_id=line.chat_id))
        if line.chat_id not in by_chat and len(by_chat) >= CHATS_LISTED_MAX:
            left_out += 1
            continue
        by_chat[line.chat_id] = ErasedChat(
            chat_id=line.chat_id,
            hot=before.hot + line.hot,
            cold=before.cold + line.cold,
            is_held=line.is_held,
        )
    return replace(
        report,
        hot=report.hot + removed.hot,
        cold=report.cold + removed.cold,
        chats=tuple(by_chat.values()),
        chats_left_out=left_out,
    )
