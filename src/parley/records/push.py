"""What is kept so that people's devices ring. See docs/push.md."""

from __future__ import annotations

from parley.store.ports import Engine
from parley.store.push.ports import ChatFanouts, PushDevices, PushOutcomes


class PushRecords:
    def __init__(self, engine: Engine) -> None:
        self.devices: PushDevices = engine.push.devices
        self.outcomes: PushOutcomes = engine.push.outcomes
        self.fanouts: ChatFanouts = engine.push.fanouts
