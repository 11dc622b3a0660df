"""What is kept of deliveries to others: the queue is the engine's own, the rest are records."""

from __future__ import annotations

from parley.records.webhooks import Webhooks
from parley.store.delivery.ports import DeadLetters, Lanes
from parley.store.ports import Engine


class DeliveryRecords:
    def __init__(self, engine: Engine) -> None:
        self.lanes: Lanes = engine.deliveries.lanes
        self.dead_letters: DeadLetters = engine.deliveries.dead_letters
        self.webhooks = Webhooks(engine.records)
