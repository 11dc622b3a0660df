"""A broker that is killed: nothing is lost, doubled or reordered, and who cannot wait is told so."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import structlog

from parley.app.kafka import TOPICS
from parley.bus.events import PERSISTED
from parley.bus.kafka.admin import ensure_topics
from parley.bus.kafka.feed import KafkaFeed
from parley.bus.publisher import CONFIRM_SECONDS_MAX, FANOUT_BLOCKED
from parley.bus.sweeper import SWEEP_AFTER_MS, Sweeper
from parley.clock import wall_clock
from parley.config import KafkaConfig
from parley.errors import SERVICE_UNAVAILABLE, ConfigError
from parley.telemetry import Metrics
from tests.contracts.buses import Node, node, sequences
from tests.contracts.feeds import Worker, working
from tests.fakes import KEYS
from tests.harness.scripted_log import ScriptedLog
from tests.integration.bus.test_kafka import Ear
from tests.integration.bus.topics import sequences_on
from tests.services import ADDRESSES, OwnServices, fresh_prefix
from tests.waiting import eventually, stretched

pytestmark = pytest.mark.timeout(240)

CHATS = [f"chat {number}" for number in range(8)]
LOAD_PAUSE_SECONDS = 0.005
BACK_SECONDS_MAX = 90.0


class Broker:
    """A broker of a test's own."""

    def __init__(self, services: OwnServices, kafka: KafkaConfig) -> None:
        self._services = services
        self.kafka = kafka

    async def kill(self) -> None:
        await asyncio.to_thread(self._services.kill, "kafka")

    async def start(self) -> None:
        await asyncio.to_thread(self._services.start, "kafka")


@asynccontextmanager
async def own_broker(folder: Path) -> AsyncIterator[Broker]:
    with OwnServices(folder) as services:
        await asyncio.to_thread(services.up, "kafka")
        brokers = services.environment("kafka")[ADDRESSES["kafka"]].split(",")
        kafka = KafkaConfig(brokers=brokers, prefix=fresh_prefix(), partitions=3)
        await ensure_topics(kafka, TOPICS)
        yield Broker(services, kafka)


async def talk(sender: Node, log: ScriptedLog) -> None:
    """Every chat says something, again and again."""
    while True:
        for chat_id in CHATS:
            sender.bus.publish([log.store(chat_id, log.head(chat_id) + 1)])
        await asyncio.sleep(LOAD_PAUSE_SECONDS)


async def more(log: ScriptedLog, count: int) -> None:
    """Until every chat has said so much more."""
    goal = log.head(CHATS[-1]) + count
    await eventually(lambda: log.head(CHATS[-1]) >= goal, BACK_SECONDS_MAX)


def firsts(numbers: list[int]) -> list[int]:
    return list(dict.fromkeys(numbers))


async def test_a_broker_killed_under_load_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Sending goes on; afterwards topic, listeners and workers have each chat whole and in order."""
    log, ear, worker = ScriptedLog(), Ear(), Worker()
    async with own_broker(tmp_path) as broker:
        topic = PERSISTED.name_in(broker.kafka)
        feed = KafkaFeed(broker.kafka, topic, KEYS, Metrics(wall_clock), random.Random(7).random)
        async with node(broker.kafka, "one", log) as one, node(broker.kafka, "two", log) as two:
            two.bus.subscribe(ear)
            async with working(feed, worker):
                talking = asyncio.create_task(talk(one, log))
                await eventually(lambda: len(worker.handled) > 100 and len(ear.heard) > 100, 30)
                await broker.kill()
                await more(log, 100)
                assert one.publisher.backlog() > 100
                await broker.start()
                await more(log, 20)
                talking.cancel()
                await asyncio.wait([talking])
                await eventually(lambda: one.publisher.backlog() == 0, BACK_SECONDS_MAX)
                total = sum(log.head(chat_id) for chat_id in CHATS)
                await eventually(lambda: len(set(worker.handled)) == total, BACK_SECONDS_MAX)
                await eventually(
                    lambda: sum(len(sequences(ear.heard, c)) for c in CHATS) >= total, BACK_SECONDS_MAX
                )
            assert one.outbox.marks == {chat_id: log.head(chat_id) for chat_id in CHATS}
        whole = {chat_id: list(range(1, log.head(chat_id) + 1)) for chat_id in CHATS}
        assert await sequences_on(broker.kafka) == whole
        assert {chat_id: sequences(ear.heard, chat_id) for chat_id in CHATS} == whole
        assert {chat_id: firsts(worker.of(chat_id)) for chat_id in CHATS} == whole


async def test_without_a_broker_everybody_is_told_and_nobody_hangs(tmp_path: Path) -> None:
    """Confirmations are refused in time, a node stops soon and none starts; a sweeper does the rest later."""
    log = ScriptedLog()
    async with own_broker(tmp_path) as broker:
        async with node(broker.kafka, "one", log) as one:
            assert await one.publisher.confirm([log.store("a", 1)], {"a": 1}) == {}
            await broker.kill()
            loop = asyncio.get_running_loop()
            started = loop.time()
            with structlog.testing.capture_logs() as lines:
                late = await one.publisher.confirm([log.store("a", 2)], {"a": 2})
            assert late == {"a": SERVICE_UNAVAILABLE}
            assert loop.time() - started < CONFIRM_SECONDS_MAX + stretched(2)
            assert FANOUT_BLOCKED in [line["event"] for line in lines]
            with pytest.raises(ConfigError, match="Kafka cannot be used"):
                async with node(broker.kafka, "too late", log):
                    raise AssertionError("it cannot have started")
            started = loop.time()
        assert loop.time() - started < stretched(15)
        assert [t.get_coro() for t in asyncio.all_tasks() if "aiokafka" in repr(t)] == []
        await broker.start()
        async with node(broker.kafka, "another", log) as another:
            another.outbox.marks = dict(one.outbox.marks)
            await sweep_now(another, log)
            await eventually(lambda: another.outbox.marks == {"a": 2}, 30)
        assert await sequences_on(broker.kafka) == {"a": [1, 2]}


async def sweep_now(on: Node, log: ScriptedLog) -> None:
    sweeper = Sweeper(on.outbox, log, on.publisher, on.metrics, wall_clock)
    assert await sweeper.sweep(wall_clock()) == []
    assert await sweeper.sweep(wall_clock() + SWEEP_AFTER_MS) == ["a"]
