"""A log, an outbox and a bus in memory, with faults at will, for the publisher and the sweeper."""

import asyncio
import zlib
from collections.abc import Sequence

import msgspec

from parley import ids
from parley.bus import events
from parley.bus.events import Record
from parley.bus.publisher import NotPublished, Publisher
from parley.errors import StoreUnavailable
from parley.model import Head, Page, Persisted, Stored
from parley.telemetry import Metrics
from parley.testing.clock import VirtualClock
from parley.wire.frames import Entry
from parley.wire.limits import PAGE_BYTES_MAX
from tests.fakes import UnaskedLog

PARTITIONS = 3
NODE = "here"


def wire_of(chat_id: str, sequence: int, content: str = "hi") -> bytes:
    entry = Entry(
        chat_id=chat_id,
        sequence=sequence,
        epoch=1,
        kind="message",
        message_id="msg_" + ids.ulid(1, zlib.crc32(chat_id.encode()) << 40 | sequence),
        sender_id="user_1",
        client_message_id=None,
        content=content,
        content_type="text/plain",
        created_at="2026-01-01T00:00:00.000Z",
        server_timestamp="2026-01-01T00:00:00.000Z",
    )
    return msgspec.json.encode(entry)


class FakeLog(UnaskedLog):
    """Every chat's positions; one that is missing is not resolved yet."""

    def __init__(self) -> None:
        self.chats: dict[str, dict[int, Stored]] = {}
        self.is_down = False
        self.reads = 0

    def store(self, chat_id: str, *sequences: int, content: str = "hi", void: bool = False) -> Persisted:
        """Positions become durable; the news of it."""
        positions = [
            Stored(sequence, None if void else wire_of(chat_id, sequence, content)) for sequence in sequences
        ]
        self.chats.setdefault(chat_id, {}).update({stored.sequence: stored for stored in positions})
        return Persisted(chat_id, 1, positions)

    def head(self, chat_id: str) -> int:
        head = 0
        while head + 1 in self.chats.get(chat_id, {}):
            head += 1
        return head

    async def read(self, chat_id: str, after: int, limit: int) -> Page:
        await asyncio.sleep(0.001)
        if self.is_down:
            raise StoreUnavailable("on purpose")
        self.reads += 1
        head, size, found = self.head(chat_id), 0, list[Stored]()
        for sequence in range(after + 1, min(after + limit, head) + 1):
            found.append(self.chats[chat_id][sequence])
            size += len(found[-1].wire or b"")
            if size > PAGE_BYTES_MAX:
                break
        entries = [stored.wire for stored in found if stored.wire is not None]
        voids = [stored.sequence for stored in found if stored.wire is None]
        return Page(chat_id, 1, entries, voids, after + 1, after + len(found), head)

    async def heads(self, chat_ids: Sequence[str]) -> dict[str, Head]:
        return {chat_id: Head(1, self.head(chat_id)) for chat_id in chat_ids}


class FakeOutbox:
    """Marks; `stale`: the next lists are as they were at some earlier time."""

    def __init__(self, log: FakeLog) -> None:
        self._log = log
        self.marks: dict[str, int] = {}
        self.stale: list[dict[str, int]] = []
        self.is_down = False
        self.lists = 0
        self.flushes = 0

    def note_published(self, chat_id: str, through: int) -> None:
        self.marks[chat_id] = max(through, self.marks.get(chat_id, 0))

    async def unpublished(self) -> dict[str, int]:
        await asyncio.sleep(0.001)
        if self.is_down:
            raise StoreUnavailable("on purpose")
        self.lists += 1
        if self.stale:
            return self.stale.pop(0)
        marks = {chat_id: self.marks.get(chat_id, 0) for chat_id in self._log.chats}
        return {chat_id: mark for chat_id, mark in marks.items() if mark < self._log.head(chat_id)}

    async def flush(self) -> None:
        self.flushes += 1


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
        self.log = FakeLog()
        self.outbox = FakeOutbox(self.log)
        self.sink = FakeSink()
        self.publisher = self.another()

    def another(self) -> Publisher:
        """A publisher of another process over the same store and bus."""
        return Publisher(self.log, self.outbox, self.sink, self.metrics, NODE, self.clock, lambda: 0.5)

    def told(self, name: str) -> float:
        """A metric as an operator sees it."""
        return self.metrics.registry.get_sample_value(name) or 0.0
