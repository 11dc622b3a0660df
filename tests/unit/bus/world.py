"""The engine in memory and a topic, with faults at will, for the publisher and the sweeper."""

import asyncio
import zlib

from parley.bus import events
from parley.bus.events import Record
from parley.bus.publisher import NotPublished, Publisher
from parley.telemetry import Metrics
from tests.harness.clock import VirtualClock
from tests.harness.scripted_log import ScriptedLog, ScriptedOutbox

PARTITIONS = 3
NODE = "here"


class FakeSink:
    """A topic in memory. `failures`: what the next sends do: True is stored and not acknowledged."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.failures: list[bool] = []
        self.go = asyncio.Event()
        self.go.set()
        self.batches: list[int] = []

    def partition_of(self, key: bytes) -> int:
        return zlib.crc32(key) % PARTITIONS

    async def send(self, partition: int, records: list[Record]) -> None:
        assert {self.partition_of(record.key) for record in records} == {partition}
        await self.go.wait()
        await asyncio.sleep(0.002)
        self.batches.append(len(records))
        failure = self.failures.pop(0) if self.failures else None
        if failure is not False:
            self.records += records
        if failure is not None:
            raise NotPublished("on purpose")

    def sequences(self, chat_id: str) -> list[int]:
        """What is on the topic of one chat, in its order."""
        told = [events.decode(record.value) for record in self.records if record.key == chat_id.encode()]
        return [position.stored.sequence for position in told if position is not None]

    def nodes(self, chat_id: str) -> list[bytes | None]:
        """Who claims to have told its own listeners of each record of a chat."""
        mine = [record for record in self.records if record.key == chat_id.encode()]
        return [dict(record.headers).get(events.NODE) for record in mine]


class World:
    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.metrics = Metrics(clock)
        self.log = ScriptedLog()
        self.outbox = ScriptedOutbox(self.log)
        self.sink = FakeSink()
        self.publisher = self.another()

    def another(self) -> Publisher:
        """A publisher of another process over the same store and bus."""
        return Publisher(
            log=self.log,
            outbox=self.outbox,
            sink=self.sink,
            metrics=self.metrics,
            node=NODE,
            clock=self.clock,
            chance=lambda: 0.5,
        )

    def told(self, name: str) -> float:
        """A metric as an operator sees it."""
        return self.metrics.registry.get_sample_value(name) or 0.0
