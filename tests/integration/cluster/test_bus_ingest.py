"""Drafts through a real Kafka: a node that takes them, a node that appends them, and what fails between."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import ClientSession
from aiokafka import AIOKafkaConsumer, TopicPartition
from msgspec.structs import replace

from parley.bus.drafts import DRAFT_AGE_MS_MAX, STORE, encode_draft
from parley.bus.events import PROOF
from parley.bus.kafka.client import options
from parley.bus.kafka.drafts import KafkaDraftQueue
from parley.bus.ports import BufferedDraft, ReplyAddress
from parley.clock import wall_clock
from parley.config import KafkaConfig
from parley.core.cluster_keys import EVENTS, ClusterKeys
from parley.errors import StoreUnavailable
from parley.model import Draft
from parley.wire.limits import ANSWER_SECONDS_MAX
from tests.clusters import ATOMIC, nodes_on_shared_services, running
from tests.fakes import KEYS
from tests.harness.clients import Frame, HttpClient, Person, RawClient
from tests.harness.cluster import ClusterProcess
from tests.integration.bus.topics import producer_of
from tests.unit.sending.nodes import message
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(180)  # Kafka and DynamoDB may have to be started first

PARTITIONS = 2
BUS = {**ATOMIC, "PARLEY_BUS_INGEST": "bus", "PARLEY_KAFKA_PARTITIONS": str(PARTITIONS)}
ROLES = {
    "front": {"PARLEY_CLUSTER_ROLES": "gateway"},
    "back": {"PARLEY_CLUSTER_ROLES": "ingest,delivery"},
}
WAIT_SECONDS_MAX = 60.0


class World:
    """Ann at the front, in a group; and the topic, seen from outside."""

    def __init__(self, cluster: ClusterProcess, session: ClientSession, ann: Person, chat_id: str) -> None:
        self.cluster = cluster
        self.session = session
        self.ann = ann
        self.chat_id = chat_id
        environment = cluster.environment
        self.kafka = KafkaConfig(
            brokers=environment["PARLEY_KAFKA_BROKERS"].split(","),
            prefix=environment["PARLEY_KAFKA_PREFIX"],
            partitions=PARTITIONS,
        )
        self.keys = ClusterKeys(environment["PARLEY_CLUSTER_SECRET"])
        self.topic = STORE.name_in(self.kafka)

    def client(self) -> RawClient:
        return RawClient(self.session, self.cluster["front"].url, self.ann)

    async def buffered(self) -> int:
        """How many drafts were ever put into the topic."""
        consumer = AIOKafkaConsumer(**options(self.kafka))
        await consumer.start()
        try:
            ends = await consumer.end_offsets([TopicPartition(self.topic, at) for at in range(PARTITIONS)])
            return sum(ends.values())
        finally:
            await consumer.stop()

    async def until_sent(self, client: RawClient, content: str, client_id: str = "") -> Frame:
        """The ack, asked for again under the same id while the outcome is unknown."""
        client_id = client_id or str(uuid.uuid4())
        acks: list[Frame] = []

        async def is_acknowledged() -> bool:
            answer = await client.send_message(self.chat_id, content, client_id)
            assert answer["type"] == "ack" or answer["code"] == "outcome_unknown", answer
            acks.extend([answer] if answer["type"] == "ack" else [])
            return bool(acks)

        await eventually(is_acknowledged, WAIT_SECONDS_MAX)
        return acks[0]


@asynccontextmanager
async def a_world(folder: Path) -> AsyncIterator[World]:
    cluster = nodes_on_shared_services(folder, tuple(ROLES), BUS, ROLES)
    async with running(cluster), ClientSession() as session:
        http = HttpClient(session, cluster["front"].url)
        ann = await http.newcomer("ann")
        yield World(cluster, session, ann, await http.of(ann).create_group())


async def test_a_message_goes_through_the_topic_and_a_change_does_not(tmp_path: Path) -> None:
    """Messages are buffered, appended in order and acknowledged by the store; a rename goes directly."""
    async with a_world(tmp_path) as world, world.client() as ann:
        await world.until_sent(ann, "first")
        before = await world.buffered()
        answers = [await ann.post_message(world.chat_id, str(number)) for number in range(50)]
        acks = [await ann.answered(answer) for answer in answers]
        assert [ack["sequence"] for ack in acks] == list(range(2, 52))
        http = HttpClient(world.session, world.cluster["front"].url).of(world.ann)
        renamed = await http.patch(f"/v1/chats/{world.chat_id}", {"title": "new"})
        assert renamed.status == 200, renamed
        assert await world.buffered() == before + 50
        contents = [entry["content"] for entry in await ann.sync_all(world.chat_id)]
        assert contents[1:51] == [str(number) for number in range(50)]


async def test_a_node_that_appends_dies_with_drafts_in_the_topic(tmp_path: Path) -> None:
    """The sender hears in time that the outcome is unknown; the next node appends it, once."""
    async with a_world(tmp_path) as world, world.client() as ann:
        await world.until_sent(ann, "before")
        await asyncio.to_thread(world.cluster["back"].kill)
        client_id = str(uuid.uuid4())
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        answer = await ann.send_message(world.chat_id, "meanwhile", client_id)
        assert (answer["type"], answer["code"]) == ("refused", "outcome_unknown")
        assert loop.time() - asked_at < ANSWER_SECONDS_MAX
        await asyncio.to_thread(world.cluster["back"].start)
        ack = await world.until_sent(ann, "meanwhile", client_id)
        contents = [entry["content"] for entry in await ann.sync_all(world.chat_id)]
        assert (contents, ack["sequence"]) == (["before", "meanwhile"], 2)


async def test_a_record_that_no_node_has_signed_is_not_appended(tmp_path: Path) -> None:
    """Nor one of another cluster, one that may be appended twice, or an old one that is put there again."""
    async with a_world(tmp_path) as world, world.client() as ann:
        await world.until_sent(ann, "before")
        reply = ReplyAddress("http://127.0.0.1:1", "nobody")
        forged = replace(message("forged", world.chat_id), sender_id=world.ann.user_id)
        doubled = Draft(chat_id=world.chat_id, sender_id=world.ann.user_id, content="without an id")
        async with producer_of(world.kafka) as producer:
            now = wall_clock()
            old = now - DRAFT_AGE_MS_MAX - 1
            for draft, keys, at_ms in (
                (forged, None, now),
                (forged, KEYS, now),
                (forged, world.keys, old),
                (doubled, world.keys, now),
            ):
                record = encode_draft(BufferedDraft(draft, 1, reply, at_ms))
                ring = keys.ring(EVENTS, world.topic) if keys is not None else None
                headers = [(PROOF, ring.tag(record.value))] if ring is not None else []
                for partition in range(PARTITIONS):
                    await producer.send_and_wait(
                        world.topic, record.value, key=record.key, headers=headers, partition=partition
                    )
        await world.until_sent(ann, "after")
        contents = [entry["content"] for entry in await ann.sync_all(world.chat_id)]
        assert contents == ["before", "after"]


async def test_brokers_that_cannot_be_reached_have_nothing() -> None:
    """Nothing was written, and that is what the sender is told."""
    queue = KafkaDraftQueue(KafkaConfig(brokers=["127.0.0.1:1"]), "t", KEYS)
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await queue.put(0, [BufferedDraft(message("a"), 1, ReplyAddress("", ""), 0)])
    await queue.stop()
