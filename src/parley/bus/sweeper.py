"""Publishes what a node left unpublished because it died or gave up. Several sweepers may run at once."""

from __future__ import annotations

from typing import NamedTuple

import structlog

from parley.bus.publisher import Publisher
from parley.clock import Clock
from parley.core.jobs import Job
from parley.model import JobScope
from parley.store.ports import Log, Outbox
from parley.telemetry import Metrics

SWEEP_SECONDS = 5.0
SWEEP_SECONDS_MAX = 60.0
SWEEP_AFTER_MS = 15_000
"""Marks are written some seconds late. A mark that has not moved for so long is stalled."""
CHATS_AT_ONCE_MAX = 500

log = structlog.get_logger("parley.bus")


class SeenMark(NamedTuple):
    """A mark, and since when it has not moved."""

    mark: int
    since_ms: int


class Sweeper:
    def __init__(
        self, outbox: Outbox, log: Log, publisher: Publisher, metrics: Metrics, clock: Clock
    ) -> None:
        self._outbox = outbox
        self._log = log
        self._publisher = publisher
        self._metrics = metrics
        self._clock = clock
        self._seen: dict[str, SeenMark] = {}

    @property
    def job(self) -> Job:
        """One node of the cluster sweeps: each look reads every mark."""
        return Job(
            name="outbox_sweep",
            does="publishes the entries that a dead node stored and left behind",
            run=lambda: self.sweep(self._clock()),
            interval_seconds=SWEEP_SECONDS,
            timeout_seconds=SWEEP_SECONDS_MAX,
            scope=JobScope.CLUSTER,
        )

    async def sweep(self, now_ms: int) -> list[str]:
        """Hand the publisher every chat whose mark is stalled; returns those chats."""
        listed = await self._outbox.unpublished()
        self._seen = {chat_id: self._look(chat_id, mark, now_ms) for chat_id, mark in listed.items()}
        due = [c for c, seen in self._seen.items() if now_ms - seen.since_ms >= SWEEP_AFTER_MS]
        due = due[:CHATS_AT_ONCE_MAX]
        heads = await self._log.heads(due)
        for chat_id, head in heads.items():
            mark = self._seen[chat_id].mark
            self._seen[chat_id] = SeenMark(mark, now_ms)
            self._publisher.sweep(chat_id, mark, head.sequence)
        if heads:
            self._metrics.swept.inc(len(heads))
            log.warning("unpublished events found", chats=list(heads)[:10], count=len(heads))
        return list(heads)

    def _look(self, chat_id: str, mark: int, now_ms: int) -> SeenMark:
        seen = self._seen.get(chat_id)
        return seen if seen is not None and seen.mark == mark else SeenMark(mark, now_ms)
