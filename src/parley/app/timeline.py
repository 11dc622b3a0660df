"""The timeline of messages, with every source that this version has."""

from __future__ import annotations

from collections.abc import Iterable

from parley.clock import Clock
from parley.config import Config
from parley.delivery.ports import KINDS
from parley.delivery.timeline import DeliverySteps
from parley.push.timeline import PushSteps
from parley.records.kinds import Kinds
from parley.store.ports import Engine
from parley.traces.timeline import StepSource, TimelineService, TraceSource


def make_timeline(
    config: Config, store: Engine, kinds: Kinds, traces: Iterable[TraceSource], clock: Clock
) -> TimelineService:
    """A part of the server that knows what happens to messages adds its `StepSource` here."""
    sources: list[StepSource] = [DeliverySteps(kinds.deliveries, KINDS), PushSteps(kinds.push.outcomes)]
    outbox = store.outbox if config.kafka.brokers else None
    return TimelineService(
        store, kinds.relations, kinds.sessions, outbox=outbox, traces=traces, sources=sources, clock=clock
    )
