"""One request id in the lines of every hop: from the node that took a message to the one that delivers it."""

from pathlib import Path

import structlog
from aiokafka import ConsumerRecord

from parley.bus import events
from parley.bus.embedded import EmbeddedBus
from parley.bus.events import PROOF, Record
from parley.bus.kafka.records import RecordReader
from parley.bus.publisher import Publisher
from parley.clock import wall_clock
from parley.cluster import bodies
from parley.core.cluster_keys import EVENTS
from parley.gateway.hub import Hub
from parley.model import Draft, Persisted
from parley.telemetry import Metrics
from tests.contracts.acting import add_group, add_people, message
from tests.contracts.engines import SqliteEngine, SqliteOpenStore
from tests.fakes import KEYS, hub_over
from tests.harness.scripted_log import ScriptedLog, ScriptedOutbox
from tests.integration.cluster.two_nodes import RunningNode, two_nodes
from tests.unit.gateway.test_hub import Ear
from tests.waiting import eventually

REQUEST_ID = "conn_7.42"


class Topic:
    """One partition in memory: what is sent there is routed to the other node at once."""

    def __init__(self, hub: Hub) -> None:
        self._reader = RecordReader("topic", KEYS, Metrics(wall_clock))
        self._hub = hub
        self._offset = 0

    def partition_of(self, key: bytes) -> int:
        return 0

    async def send(self, partition: int, records: list[Record]) -> None:
        told = [self._reader.read(self._read(record)) for record in records]
        body = bodies.pack(events.gather(filter(None, told)))
        self._hub.persisted_elsewhere(bodies.read_news(body))

    def _read(self, record: Record) -> ConsumerRecord:
        self._offset += 1
        proof = (PROOF, KEYS.ring(EVENTS, "topic").tag(record.value))
        return ConsumerRecord(
            "topic", 0, self._offset, 0, 0, record.key, record.value, 0, 0, 0, (*record.headers, proof)
        )


class PublishingBus(EmbeddedBus):
    """The bus of a node that publishes for others."""

    def __init__(self, topic: Topic) -> None:
        super().__init__()
        log = ScriptedLog()
        self._publisher = Publisher(
            log=log,
            outbox=ScriptedOutbox(log),
            sink=topic,
            metrics=Metrics(wall_clock),
            node="two",
            clock=wall_clock,
            chance=lambda: 0.5,
        )

    def publish(self, news: list[Persisted]) -> None:
        self._publisher.publish(news)

    async def stop(self) -> None:
        await self._publisher.stop()


async def draft_for(node: RunningNode, store: SqliteOpenStore, sender: str, owner: str) -> Draft:
    """A message to a chat that another node appends to."""
    while True:
        chat = await add_group(store, sender)
        if node.peers.owner_of(chat) == owner:
            draft = message(chat, sender, "hello")
            draft.request_id = REQUEST_ID
            return draft


async def test_a_request_id_is_in_the_lines_of_every_hop(tmp_path: Path) -> None:
    """A message that one node takes, another stores, and the first delivers has one id all the way."""
    async with SqliteEngine("atomic", tmp_path).opened() as store:
        hub = hub_over(store.log, store.directory, Metrics(wall_clock))
        bus = PublishingBus(Topic(hub))
        (ann,) = await add_people(store, "ann")
        async with two_nodes(log=store.log, bus=bus) as place:
            draft = await draft_for(place.one, store, ann, "two")
            ear = Ear()
            ear.user_id = ann
            await hub.subscribe(ear)
            with structlog.testing.capture_logs() as lines:
                assert await place.one.code(draft) == "stored"
                await eventually(lambda: ear.heard == [1])
                await bus.stop()
            await hub.close()
    assert sorted(line["event"] for line in lines if line.get("request_id") == REQUEST_ID) == [
        "Event published",
        "Message delivered",
        "Message forwarded",
        "Message persisted",
        "Message taken over",
        "Sequence allocated",
    ]
