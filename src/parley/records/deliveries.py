"""What is kept of deliveries to others: the queue is the engine's own, the rest are records."""

from __future__ import annotations

from parley.clock import Clock
from parley.records.dead_letters import DeadLetters
from parley.records.webhooks import Webhooks
from parley.store.ports import Engine


class DeliveryRecords:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self.queues = engine.queues
        self.dead_letters = DeadLetters(engine.records, clock)
        self.webhooks = Webhooks(engine.records)
