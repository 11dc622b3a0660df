"""What is done for dead letters all the time: they are counted, and end after 30 days."""

from __future__ import annotations

import asyncio

import structlog

from parley import ids
from parley.clock import MS_PER_DAY, Clock, iso
from parley.core.deliveries import DEAD_LETTER_DAYS, DeadLetterStatus, Selection
from parley.errors import StoreError
from parley.model import AuditRecord
from parley.records.audit import AuditLog
from parley.records.dead_letters import DeadLetters
from parley.telemetry import Metrics

COUNT_SECONDS = 5.0
EXPIRE_SECONDS = 3_600.0
SERVER = "server"
"""The actor of what the server does by itself."""

log = structlog.get_logger("parley.delivery")


class DeadLetterUpkeep:
    def __init__(
        self, dead_letters: DeadLetters, audit: AuditLog, clock: Clock, make_ids: ids.Ids, metrics: Metrics
    ) -> None:
        self._dead_letters = dead_letters
        self._audit = audit
        self._clock = clock
        self._ids = make_ids
        self._metrics = metrics

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._count_regularly())
            tasks.create_task(self._expire_regularly())

    async def _count_regularly(self) -> None:
        """Another node counts after this one: what this one knew must not stay."""
        try:
            while True:
                try:
                    counts = await self._dead_letters.count(Selection(status=DeadLetterStatus.PENDING))
                    self._metrics.dlq_size.set(sum(counts.values()))
                except StoreError as error:
                    log.warning("dead letters cannot be counted", error=str(error))
                await asyncio.sleep(COUNT_SECONDS)
        finally:
            self._metrics.dlq_size.set(0)

    async def _expire_regularly(self) -> None:
        while True:
            try:
                await self.expire()
            except StoreError as error:
                log.warning("dead letters cannot be expired", error=str(error))
            await asyncio.sleep(EXPIRE_SECONDS)

    async def expire(self) -> int:
        """Delete dead letters whose status was set 30 days ago; the audit log says how many."""
        now_ms = self._clock()
        expired = await self._dead_letters.expire(now_ms - DEAD_LETTER_DAYS * MS_PER_DAY)
        if expired:
            record = AuditRecord(
                audit_id=self._ids.next(ids.AUDIT, now_ms),
                at=iso(now_ms),
                actor=SERVER,
                action="dlq.expire",
                target_id="",
                detail=f"{expired} after {DEAD_LETTER_DAYS} days",
                outcome="done",
            )
            await self._audit.record(record)
        return expired
