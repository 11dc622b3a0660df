"""The cost of encoding the event of a message and producing it to Kafka."""

from __future__ import annotations

import asyncio
import random
import time

from bench.dynamodb.services import SECRET
from bench.dynamodb.stage import SharedStage
from bench.dynamodb.transactions import FULL, draft_for
from bench.measuring import until
from bench.rows import Row
from parley import ids
from parley.bus import events
from parley.bus.events import PERSISTED
from parley.bus.kafka.bus import KafkaSink
from parley.bus.publisher import Publisher
from parley.clock import iso, wall_clock
from parley.config import KafkaConfig
from parley.core.cluster_keys import ClusterKeys
from parley.model import Persisted, StoredEntry
from parley.store.entries import entry_of, message_id, tag_of
from parley.telemetry import Metrics
from parley.wire.codec import encode_entry

MESSAGES = 20_000
CHATS = 20
PUBLISH_SECONDS_MAX = 60
NODE = "bench-publisher"


async def publishing(stage: SharedStage) -> list[Row]:
    """Real Kafka, acknowledged by all replicas; the CPU is that of this process, which does nothing else."""
    kafka = KafkaConfig(brokers=stage.services.brokers)
    async with stage.store() as store:
        sink = KafkaSink(kafka, PERSISTED.name_in(kafka), ClusterKeys(SECRET))
        await sink.start()
        metrics = Metrics(wall_clock)
        publisher = Publisher(
            log=store.log,
            outbox=store.outbox,
            sink=sink,
            metrics=metrics,
            node=NODE,
            clock=wall_clock,
            chance=random.random,
        )
        try:
            await _publish(publisher, MESSAGES // 10, FULL)
            count = stage.pick(MESSAGES, MESSAGES // 5)
            return [await _publish(publisher, count, size) for size in (FULL, 1)]
        finally:
            await publisher.stop()
            await sink.stop()


async def _publish(publisher: Publisher, messages: int, size: int) -> Row:
    news = [item for number in range(CHATS) for item in _news(f"{time.time_ns()}{number}", messages, size)]
    record = events.encode(news[0].chat_id, 1, news[0].positions[0], NODE, wall_clock())
    published = sum(len(item.positions) for item in news)
    cpu = time.process_time()
    for item in news:
        publisher.publish([item])
        await asyncio.sleep(0)
    await until(lambda: publisher.backlog() == 0, PUBLISH_SECONDS_MAX)
    return Row(
        name=f"shared_publish_{size}",
        label=f"publish to Kafka alone, {size} per append",
        unit="µs/message",
        value=1e6 * (time.process_time() - cpu) / published,
        batch=size,
        notes=[f"the record of a message of 128 letters has {len(record.key) + len(record.value)} bytes"],
    )


def _news(tag: str, messages: int, size: int) -> list[Persisted]:
    """The news of a chat's appends of one size."""
    chat_id = f"{ids.CHAT}{tag}".ljust(len(ids.CHAT) + 26, "0")
    count = messages // CHATS
    stored = [_stored(chat_id, sequence) for sequence in range(1, count + 1)]
    return [Persisted(chat_id, 1, stored[start : start + size]) for start in range(0, count, size)]


def _stored(chat_id: str, sequence: int) -> StoredEntry:
    now_ms = wall_clock()
    name = message_id(now_ms, tag_of(chat_id), sequence, 0)
    return StoredEntry(sequence, encode_entry(entry_of(draft_for(chat_id), sequence, 1, name, iso(now_ms))))
