"""What the records of a topic tell; what they must not tell is passed over, counted and logged."""

from __future__ import annotations

import asyncio

import msgspec
import structlog
from aiokafka import ConsumerRecord

from parley.bus import events
from parley.core.cluster_keys import EVENTS, ClusterKeys
from parley.telemetry import Metrics

UNPROVEN = "it is not signed with this cluster's secret"

log = structlog.get_logger("parley.kafka")


class RecordReader:
    """Believes only what a node of this cluster has signed: anybody may be able to write to a topic."""

    def __init__(self, topic: str, keys: ClusterKeys, metrics: Metrics) -> None:
        self._ring = keys.ring(EVENTS, topic)
        self._metrics = metrics

    def read(self, record: ConsumerRecord) -> events.PositionEvent | None:
        """None for what is no event, or was published by no node of this cluster."""
        if not events.is_proven(self._ring, record.value, record.headers):
            self._metrics.unproven.labels("event").inc()
            self._pass_over(record, UNPROVEN)
            return None
        try:
            return events.decode(record.value, record.headers)
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
            self._pass_over(record, str(error))
            return None

    def _pass_over(self, record: ConsumerRecord, reason: str) -> None:
        now = asyncio.get_running_loop().time()
        cause = UNPROVEN if reason is UNPROVEN else "an event that makes no sense"
        if (more := self._metrics.lines.admit(cause, now)) is not None:
            log.error(
                "record is not an event",
                partition=record.partition,
                offset=record.offset,
                reason=reason,
                **more,
            )
