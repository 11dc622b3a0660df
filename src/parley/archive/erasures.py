"""Erasures of people that operators asked for: noted durably, then done by a job, again if it died."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from parley.clock import Clock
from parley.core.jobs import Job
from parley.errors import BAD_REQUEST, NOT_FOUND, Refused
from parley.model import JobScope
from parley.store.cold.ports import ColdTier, Erasures
from parley.store.rows import ChatRetention

if TYPE_CHECKING:
    from parley.archive.retention import Retention

LOOK_SECONDS = 60.0
FIRST_LOOK_SECONDS = 2.0
LOOK_SECONDS_MAX = 6 * 3600.0
"""An erasure reads every log; what it has removed is not there for the next look."""
JOB = "erasures"
NO_ERASURE = BAD_REQUEST.because("this engine cannot remove bodies; leave erase out, and the messages stay")
NO_SUCH_CHAT = NOT_FOUND.because("there is no such chat")

log = structlog.get_logger("parley.archive")


class BodyAdmin:
    """What operators decide about bodies. `tier` and `erasures` are None where none can be removed.

    `make_retention` is called for the first erasure.
    """

    def __init__(
        self,
        make_retention: Callable[[], Retention],
        tier: ColdTier | None,
        erasures: Erasures | None,
        clock: Clock,
    ) -> None:
        self._make_retention = make_retention
        self._tier = tier
        self._erasures = erasures
        self._clock = clock
        self._woken = asyncio.Event()

    def check(self) -> None:
        """Refused where bodies cannot be erased."""
        if self._tier is None or self._erasures is None:
            raise Refused(NO_ERASURE)

    async def begin(self, user_id: str) -> str:
        """Erase a person's bodies, whatever happens to this process. Returns the name of the job."""
        if self._erasures is None:
            raise Refused(NO_ERASURE)
        await self._erasures.add(user_id, self._clock())
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
            report = await self._make_retention().erase_person(user_id)
            held = [line.chat_id for line in report.lines if line.is_held]
            await self._erasures.finish(user_id)
            log.warning("bodies erased", user_id=user_id, hot=report.hot, cold=report.cold, held=held)
