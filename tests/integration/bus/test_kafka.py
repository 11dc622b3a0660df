"""What a real broker brings with it: sizes, strangers on a topic, partitions that are added, slow workers."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial

import pytest
import structlog
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.conn import AIOKafkaConnection

from parley.bus import events
from parley.bus.events import PERSISTED
from parley.bus.kafka import client as kafka_client
from parley.bus.kafka import feed as kafka_feed
from parley.bus.kafka.admin import admin_of, ensure_topics
from parley.bus.kafka.delivery_topics import RETRIES, KafkaDeliveryTopics
from parley.bus.kafka.feed import Confirmed, KafkaFeed
from parley.bus.topics import BATCH_BYTES_MAX
from parley.clock import wall_clock
from parley.config import KafkaConfig
from parley.core.cluster_keys import EVENTS
from parley.model import Head, Persisted
from parley.telemetry import Metrics
from parley.wire.limits import MESSAGE_BYTES_MAX
from tests.contracts.buses import fresh_topics, node, sequences
from tests.contracts.feeds import Worker, done, working
from tests.fakes import KEYS
from tests.harness.scripted_log import ScriptedLog
from tests.integration.bus.topics import producer_of, sequences_on
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(120)


class Ear:
    def __init__(self) -> None:
        self.heard: list[object] = []

    def persisted(self, news: list[Persisted]) -> None:
        self.heard += news

    def joined(self, chat_id: str, head: Head, user_ids: list[str]) -> None:
        raise AssertionError("nobody joins")

    def sessions_ended(self, session_ids: list[str]) -> None:
        raise AssertionError("nothing ends")


def feed_of(kafka: KafkaConfig, **settings: object) -> KafkaFeed:
    topic = PERSISTED.name_in(kafka)
    return KafkaFeed(kafka, topic, KEYS, Metrics(wall_clock), random.Random(7).random, **settings)


async def test_the_largest_messages_pass() -> None:
    """Messages whose JSON is six times as long as they are go through, many at once."""
    kafka, log = await fresh_topics(), ScriptedLog()
    content = "\x00" * MESSAGE_BYTES_MAX
    async with node(kafka, "one", log) as one, node(kafka, "two", log) as two:
        ear = Ear()
        two.bus.subscribe(ear)
        one.bus.publish([log.store("a", *range(1, 9), content=content)])
        one.bus.publish([log.store("a", *range(9, 2000))])
        await eventually(lambda: len(sequences(ear.heard, "a")) == 1999, 30)
        assert sequences(ear.heard, "a") == list(range(1, 2000))
        assert one.told("parley_publish_failures_total") == 0


async def test_a_record_that_is_no_event_is_passed_over() -> None:
    """What a stranger writes to the topic is told in the log and stops nobody."""
    kafka, log = await fresh_topics(partitions=1), ScriptedLog()
    worker = Worker()
    with structlog.testing.capture_logs() as lines:
        async with node(kafka, "one", log) as one, node(kafka, "two", log) as two:
            ear = Ear()
            two.bus.subscribe(ear)
            async with producer_of(kafka) as stranger:
                for value in (b"no JSON", b'{"event_type": "MessagePersisted"}', None, b'"\xff"'):
                    await stranger.send_and_wait(PERSISTED.name_in(kafka), value, key=b"a")
            one.bus.publish([log.store("a", 1)])
            async with working(feed_of(kafka), worker):
                await done(worker, 1)
            await eventually(lambda: sequences(ear.heard, "a") == [1])
            # Each node and the worker count each and say so once: a stranger cannot fill the log.
            await eventually(lambda: one.unproven_events() == two.unproven_events() == 4)
            assert [line["event"] for line in lines].count("record is not an event") == 3


async def test_a_partition_that_is_added_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """A running node notices it and reads it from its start, and misses nothing of the others meanwhile."""
    monkeypatch.setattr(kafka_client, "METADATA_MS_MAX", 300)
    kafka, log = await fresh_topics(partitions=1), ScriptedLog()
    topic = PERSISTED.name_in(kafka)
    async with node(kafka, "one", log) as one, node(kafka, "two", log) as two:
        ear = Ear()
        two.bus.subscribe(ear)
        async with admin_of(kafka) as client:
            await client.create_partitions({topic: NewPartitions(3)})
            await eventually(partial(has_partitions, client, topic, 3))
        one.bus.publish([log.store("a", *range(1, 50))])
        async with producer_of(kafka) as stranger:
            news = log.store("b", 1)
            record = events.encode("b", 1, news.positions[0], None, 0)
            proof = (events.PROOF, KEYS.ring(EVENTS, topic).tag(record.value))
            await stranger.send_and_wait(topic, record.value, key=record.key, partition=2, headers=[proof])
        one.bus.publish([log.store("a", *range(50, 100))])
        await eventually(lambda: sequences(ear.heard, "b") == [1], 30)
        await eventually(lambda: sequences(ear.heard, "a") == list(range(1, 100)), 30)


async def has_partitions(client: AIOKafkaAdminClient, topic: str, count: int) -> bool:
    (found,) = await client.describe_topics([topic])
    return len(found["partitions"]) == count and all(p["leader"] >= 0 for p in found["partitions"])


async def test_a_slow_handler_stays_in_its_group_and_holds_up_its_own_partition_alone() -> None:
    """One that takes longer than Kafka's poll interval is not put out, and others go on meanwhile."""
    kafka, log = await fresh_topics(partitions=3), ScriptedLog()
    async with node(kafka, "one", log) as one:
        chats = [f"chat {number}" for number in range(12)]
        held = chats[0]
        partition = one.sink.partition_of(held.encode())
        free = [chat for chat in chats if one.sink.partition_of(chat.encode()) != partition]
        worker = Worker(hold=(held, 1))
        feed = feed_of(kafka, max_poll_interval_ms=1_000)
        async with working(feed, worker):
            one.bus.publish([log.store(held, 1)])
            await eventually(lambda: (held, 1) in worker.tried, 30)
            deadline = asyncio.get_running_loop().time() + 3
            number = 0
            while asyncio.get_running_loop().time() < deadline:
                number += 1
                one.bus.publish([log.store(chat, number) for chat in free])
                await done(worker, number * len(free))
            worker.go.set()
            await eventually(lambda: worker.of(held) == [1], 30)
        assert worker.tried.count((held, 1)) == 1
        assert all(worker.of(chat) == list(range(1, number + 1)) for chat in free)


async def test_a_flood_waits_outside_while_a_handler_is_slow() -> None:
    """A partition whose worker does not keep up is paused, and goes on when there is room again."""
    kafka, log = await fresh_topics(partitions=1), ScriptedLog()
    worker = Worker(hold=("a", 1))
    async with node(kafka, "one", log) as one, working(feed_of(kafka), worker):
        one.bus.publish([log.store("a", 1)])
        await eventually(lambda: ("a", 1) in worker.tried, 30)
        for start in range(2, 10_002, 500):
            one.bus.publish([log.store("a", *range(start, start + 500))])
        await eventually(lambda: one.publisher.backlog() == 0, 30)
        worker.go.set()
        await done(worker, 10_001)
        assert worker.of("a") == list(range(1, 10_002))


async def test_what_is_published_twice_is_handled_once() -> None:
    """Two nodes that both publish a chat make repeats, which a member drops."""
    kafka, log = await fresh_topics(), ScriptedLog()
    worker = Worker()
    async with node(kafka, "one", log) as one, node(kafka, "two", log) as two:
        async with working(feed_of(kafka), worker):
            for number in range(1, 21):
                news = log.store("a", number)
                one.bus.publish([news])
                two.bus.publish([news])
            await done(worker, 20)
            one.bus.publish([log.store("a", 21)])
            await done(worker, 21)
        assert worker.of("a") == list(range(1, 22))
        assert len((await sequences_on(kafka))["a"]) > 30


async def test_lag_shows_what_a_reader_has_yet_to_handle() -> None:
    """The metric names each reader, rises with what waits and falls to nothing."""
    kafka, log = await fresh_topics(partitions=1), ScriptedLog()
    metrics, worker = Metrics(wall_clock), Worker(hold=("a", 2))
    feed = KafkaFeed(kafka, PERSISTED.name_in(kafka), KEYS, metrics, random.Random(7).random)

    def lag() -> float | None:
        return metrics.registry.get_sample_value("parley_consumer_lag", {"reader": "workers"})

    async with node(kafka, "one", log) as one, working(feed, worker):
        one.bus.publish([log.store("a", 1)])
        await done(worker, 1)
        await eventually(lambda: lag() == 0)
        one.bus.publish([log.store("a", *range(2, 101))])
        await eventually(lambda: lag() == 99)
        worker.go.set()
        await eventually(lambda: lag() == 0)


async def test_what_a_broker_refuses_is_sent_again_by_another_producer() -> None:
    """A topic that takes too little for a while holds its chats up, and then they come whole and in order."""
    kafka, log = await fresh_topics(partitions=2), ScriptedLog()
    topic = PERSISTED.name_in(kafka)
    async with node(kafka, "one", log) as one, admin_of(kafka) as client:
        one.bus.publish([log.store("a", 1), log.store("b", 1)])
        await eventually(lambda: one.publisher.backlog() == 0)
        await set_limit(client, topic, 2_000)
        one.bus.publish([log.store("a", 2, content="x" * 10_000), log.store("b", 2, 3, content="small")])
        await eventually(lambda: one.told("parley_publish_failures_total") >= 1, 30)
        await set_limit(client, topic, BATCH_BYTES_MAX)
        await eventually(lambda: one.publisher.backlog() == 0, 30)
    found = await sequences_on(kafka)
    assert {chat: list(dict.fromkeys(numbers)) for chat, numbers in found.items()} == {
        "a": [1, 2],
        "b": [1, 2, 3],
    }


async def set_limit(client: AIOKafkaAdminClient, topic: str, size: int) -> None:
    """How large a batch the topic takes from now on."""
    resource = partial(ConfigResource, ConfigResourceType.TOPIC, topic)
    await client.alter_configs([resource(configs={"max.message.bytes": str(size)})])

    async def is_set() -> bool:
        (answer,) = await client.describe_configs([resource(configs={"max.message.bytes": ""})])
        return bool(answer.resources[0][4][0][1] == str(size))

    await eventually(is_set)


async def enter_admin(kafka: KafkaConfig) -> None:
    async with admin_of(kafka):
        pass


async def enter_node(kafka: KafkaConfig) -> None:
    async with node(kafka, "one", ScriptedLog()):
        pass


STARTS = {
    "feed": lambda kafka: feed_of(kafka).consume("workers", Worker()),
    "bus": enter_node,
    "admin": enter_admin,
}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
async def test_a_start_that_is_cancelled_leaves_no_connection(
    start: Callable[[KafkaConfig], Coroutine[None, None, None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that ends while its first request is under way closes what it has opened."""
    kafka = await fresh_topics()
    opened: list[AIOKafkaConnection] = []
    asked = asyncio.Event()
    send = AIOKafkaConnection.send

    def watched(connection: AIOKafkaConnection, request: object, **options: object) -> object:
        if connection not in opened:
            opened.append(connection)
        elif not asked.is_set():
            asked.set()  # the first request was for the versions, this one is for the brokers
        return send(connection, request, **options)

    monkeypatch.setattr(AIOKafkaConnection, "send", watched)
    starting = asyncio.create_task(start(kafka))
    await asked.wait()
    starting.cancel()
    await asyncio.wait([starting])
    assert starting.cancelled()
    assert [connection.connected() for connection in opened] == [False] * len(opened)


def routing(kafka: KafkaConfig) -> Coroutine[None, None, None]:
    async def route(found: list[Persisted]) -> Confirmed:
        confirmed: Confirmed = asyncio.get_running_loop().create_future()
        confirmed.set_result(None)
        return confirmed

    return feed_of(kafka).route("routing", route, wall_clock)


ENDLESS: dict[str, Callable[[KafkaConfig], Coroutine[None, None, None]]] = {
    "feed": lambda kafka: feed_of(kafka).consume("workers", Worker()),
    "routing": routing,
    "retries": lambda kafka: KafkaDeliveryTopics(kafka, wall_clock).consume("wh_", wake_nothing),
}


async def wake_nothing(chat_id: str, recipient: str) -> None:
    raise AssertionError("nothing waits for a retry")


@pytest.mark.parametrize("work", ENDLESS.values(), ids=ENDLESS)
async def test_a_consumer_that_is_cancelled_again_while_it_closes_leaves_no_connection(
    work: Callable[[KafkaConfig], Coroutine[None, None, None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A supervisor cancels its jobs until they have ended: what is being closed is closed to the end."""
    kafka = await fresh_topics()
    await ensure_topics(kafka, list(RETRIES.values()))
    opened: list[AIOKafkaConnection] = []
    connect = AIOKafkaConnection.connect

    async def watched(connection: AIOKafkaConnection) -> object:
        opened.append(connection)
        return await connect(connection)

    monkeypatch.setattr(AIOKafkaConnection, "connect", watched)
    working = asyncio.create_task(work(kafka))
    await eventually(lambda: sum(one.connected() for one in opened) >= 2, 30)
    while not working.done():
        working.cancel()
        await asyncio.sleep(0)
    assert working.cancelled()
    assert [connection.connected() for connection in opened] == [False] * len(opened)


class Routing:
    """A member that routes. Chunks that hold one of `unconfirmed` are never confirmed."""

    def __init__(self, *unconfirmed: tuple[str, int]) -> None:
        self._unconfirmed = set(unconfirmed)
        self.routed: list[tuple[str, int]] = []

    async def route(self, news: list[Persisted]) -> Confirmed:
        places = [(item.chat_id, stored.sequence) for item in news for stored in item.positions]
        self.routed += places
        confirmed: Confirmed = asyncio.get_running_loop().create_future()
        if not self._unconfirmed & set(places):
            confirmed.set_result(None)
        return confirmed

    @asynccontextmanager
    async def at_work(self, kafka: KafkaConfig) -> AsyncIterator[None]:
        task = asyncio.create_task(feed_of(kafka).route("routing", self.route, wall_clock))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])


async def test_what_no_node_confirmed_is_routed_again() -> None:
    """A member that ends before a confirmation leaves that chunk, and all after it, to the next one."""
    kafka, log = await fresh_topics(partitions=1), ScriptedLog()
    async with node(kafka, "one", log, hears=False) as one:
        first = Routing(("a", 2))
        async with first.at_work(kafka):
            for sequence in range(1, 5):
                one.bus.publish([log.store("a", sequence)])
                await eventually(lambda sequence=sequence: ("a", sequence) in first.routed, 30)  # type: ignore[misc]
        second = Routing()
        async with second.at_work(kafka):
            await eventually(lambda: ("a", 4) in second.routed, 30)
        assert [sequence for _, sequence in second.routed] == [2, 3, 4]


async def test_a_new_group_that_routes_reads_no_old_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is older was told by whoever routed it then; what is published from now on is read."""
    monkeypatch.setattr(kafka_feed, "BEGIN_MS_AGO", -1_000)
    kafka, log = await fresh_topics(partitions=1), ScriptedLog()
    async with node(kafka, "one", log, hears=False) as one:
        one.bus.publish([log.store("a", 1)])
        await eventually(lambda: one.publisher.backlog() == 0)
        late = Routing()
        async with late.at_work(kafka):
            await eventually(partial(is_assigned, kafka), 30)
            one.bus.publish([log.store("a", 2)])
            await eventually(lambda: ("a", 2) in late.routed, 30)
        assert late.routed == [("a", 2)]


async def is_assigned(kafka: KafkaConfig) -> bool:
    """Whether the group has a member with partitions."""
    async with admin_of(kafka) as client:
        (group,) = await client.describe_consumer_groups([f"{kafka.prefix}routing"])
        return bool(group.groups[0][2] == "Stable")


async def test_a_consumer_is_closed_once_its_connection_is_made() -> None:
    """Cancelled while it connects, the library would leave the connection open: so closing waits for it."""
    happened: list[str] = []
    is_connecting = asyncio.Event()

    class Client:
        _get_conn_lock = asyncio.Lock()

    class Consumer:
        _client = Client()

        async def stop(self) -> None:
            happened.append("stopped")

    async def connect() -> None:
        async with Client._get_conn_lock:
            is_connecting.set()
            await asyncio.sleep(0.05)
            happened.append("connected")

    connecting = asyncio.create_task(connect())
    await is_connecting.wait()
    await kafka_client.close_consumer(Consumer())
    await connecting
    assert happened == ["connected", "stopped"]
