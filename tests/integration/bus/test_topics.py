"""Topics on a real broker: made, checked, and every fault told in one sentence."""

import re

import pytest
from aiokafka.admin import NewPartitions, NewTopic

from parley.app.kafka import TOPICS
from parley.bus.events import PERSISTED
from parley.bus.kafka import admin
from parley.bus.kafka.admin import admin_of, check_topics, ensure_topics
from parley.config import KafkaConfig
from parley.errors import ConfigError
from tests.contracts.buses import fresh_topics
from tests.services import fresh_prefix, kafka_brokers

SENTENCE = re.compile(r"[^\n]+")


async def refusal_of(kafka: KafkaConfig) -> str:
    with pytest.raises(ConfigError) as refused:
        await check_topics(kafka, TOPICS)
    assert SENTENCE.fullmatch(str(refused.value))
    return str(refused.value)


async def test_topics_are_made_once() -> None:
    """Making them again changes nothing, and the check then has nothing to say on loopback."""
    kafka = KafkaConfig(brokers=kafka_brokers(), prefix=fresh_prefix(), partitions=4)
    assert await ensure_topics(kafka, TOPICS) == [topic.name_in(kafka) for topic in TOPICS]
    assert await ensure_topics(kafka, TOPICS) == []
    assert await check_topics(kafka, TOPICS) == []
    async with admin_of(kafka) as client:
        (found,) = await client.describe_topics([PERSISTED.name_in(kafka)])
    assert len(found["partitions"]) == 4


async def test_a_missing_topic_is_named_with_its_remedy() -> None:
    """Without topics a node does not start, and says how they are made."""
    kafka = KafkaConfig(brokers=kafka_brokers(), prefix=fresh_prefix())
    assert await refusal_of(kafka) == (
        f"Kafka has no topic {kafka.prefix}messages.persisted: create it with: parley store init"
    )


async def test_too_few_partitions_or_replicas_are_refused() -> None:
    """What the configuration asks for and the topics do not have is no surprise later."""
    kafka = await fresh_topics(partitions=2)
    kafka.partitions = 3
    assert "has 2 partitions, fewer than kafka.partitions asks for (3)" in await refusal_of(kafka)
    kafka.partitions, kafka.replication = 2, 3
    assert "has 1 replicas, fewer than kafka.replication asks for (3)" in await refusal_of(kafka)


async def test_more_partitions_than_asked_for_are_fine() -> None:
    """An operator may have added some."""
    kafka = await fresh_topics(partitions=2)
    async with admin_of(kafka) as client:
        await client.create_partitions({PERSISTED.name_in(kafka): NewPartitions(5)})
    assert await check_topics(kafka, TOPICS) == []


async def test_a_topic_that_takes_too_little_is_refused() -> None:
    """A message of the largest size must fit."""
    kafka = KafkaConfig(brokers=kafka_brokers(), prefix=fresh_prefix(), partitions=1)
    async with admin_of(kafka) as client:
        small = {"max.message.bytes": "100000"}
        await client.create_topics([NewTopic(PERSISTED.name_in(kafka), 1, 1, topic_configs=small)])
    await ensure_topics(kafka, TOPICS)
    assert "accepts batches of up to 100000 bytes: raise its max.message.bytes" in await refusal_of(kafka)


async def test_a_replication_that_no_broker_can_give_is_refused() -> None:
    """One broker cannot hold three replicas."""
    kafka = KafkaConfig(brokers=kafka_brokers(), prefix=fresh_prefix(), replication=3)
    with pytest.raises(ConfigError, match="Kafka cannot create the topic"):
        await ensure_topics(kafka, TOPICS)


@pytest.mark.parametrize("broker", ["127.0.0.1:1", "no-such-host.invalid:9092", "nonsense"])
async def test_a_broker_that_cannot_be_reached_is_named(broker: str) -> None:
    """A wrong address is one sentence with the address in it."""
    said = await refusal_of(KafkaConfig(brokers=[broker]))
    assert said.startswith(f"Kafka at {broker} cannot be used: ")


async def test_authorities_that_cannot_be_read_are_refused() -> None:
    """A certificate file that is not there is told before anybody connects."""
    kafka = KafkaConfig(brokers=["127.0.0.1:1"], security="tls", ca="/no/such/file")
    assert "kafka.ca cannot be used: /no/such/file" in await refusal_of(kafka)


@pytest.mark.parametrize(
    ("broker", "insync", "warned"),
    [("kafka.example:9092", 1, True), ("kafka.example:9092", 2, False), ("127.0.0.1:9092", 1, False)],
)
def test_writes_on_one_broker_alone_are_warned_of(broker: str, insync: int, warned: bool) -> None:
    """Outside of one machine, a write that counts on one broker is worth a word."""
    kafka = KafkaConfig(brokers=[broker])
    settings = {admin.INSYNC: insync, admin.LARGEST: 1_048_588}
    warnings = admin._check_settings(kafka, PERSISTED.name, settings)
    assert [("min.insync.replicas" in warning) for warning in warnings] == [True] * warned
