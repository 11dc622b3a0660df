"""How topics are declared, and how the configuration shapes them."""

import re

import pytest

from parley.app.kafka import TOPICS, topics_in
from parley.bus.kafka.admin import check_topics, ensure_topics
from parley.bus.topics import DAY_MS, check_topic_settings
from parley.config import BusConfig, Config, KafkaConfig
from parley.errors import ConfigError
from tests.tidy.repository import ROOT

DEAD_LETTERS = next(topic for topic in TOPICS if topic.name == "messages.dlq")


def test_only_topics_in_use_are_required() -> None:
    """A node requires the topics that some part of it writes or reads, and no other."""
    found = {topic.name: topic.key for topic in topics_in(Config())}
    retries = [f"messages.retry.{name}" for name in ("1s", "5s", "30s", "5m")]
    always = ["messages.persisted", *retries, "messages.dlq"]
    assert found == dict.fromkeys(always, "chat_id")
    buffered = topics_in(Config(bus=BusConfig(ingest="bus")))
    assert [topic.name for topic in buffered] == [*always, "messages.store"]


def test_every_declared_topic_is_listed() -> None:
    """The modules of the server that declare topics are those whose topics are made."""
    declared = [
        str(path.relative_to(ROOT / "src" / "parley"))
        for path in (ROOT / "src").rglob("*.py")
        if re.search(r"[=:] Topic\(", path.read_text(encoding="utf-8"))
    ]
    assert sorted(declared) == ["bus/drafts.py", "bus/events.py", "bus/kafka/delivery_topics.py"]


def test_the_configuration_gives_prefix_and_partitions() -> None:
    """A topic has the configured prefix and partitions; one with few records has fewer partitions."""
    kafka = KafkaConfig(prefix="p.", partitions=12)
    persisted = TOPICS[0]
    assert (persisted.name_in(kafka), persisted.partitions_in(kafka)) == ("p.messages.persisted", 12)
    assert (DEAD_LETTERS.name_in(kafka), DEAD_LETTERS.partitions_in(kafka)) == ("p.messages.dlq", 3)
    assert DEAD_LETTERS.partitions_in(KafkaConfig(partitions=2)) == 2


@pytest.mark.parametrize(("replication", "insync"), [(1, None), (2, None), (3, "2"), (5, "2")])
def test_a_quorum_is_asked_for_where_there_can_be_one(replication: int, insync: str | None) -> None:
    """With three replicas or more, a write must be on two before it counts."""
    kafka = KafkaConfig(replication=replication)
    assert {topic.settings_in(kafka).get("min.insync.replicas") for topic in TOPICS} == {insync}


def test_a_topic_may_be_kept_longer() -> None:
    """A topic keeps its records for a week, unless its declaration says otherwise."""
    assert TOPICS[0].settings_in(KafkaConfig())["retention.ms"] == str(7 * DAY_MS)
    assert DEAD_LETTERS.settings_in(KafkaConfig())["retention.ms"] == str(30 * DAY_MS)


BAD = [
    KafkaConfig(prefix="a b"),
    KafkaConfig(prefix="x" * 201),
    KafkaConfig(prefix="é"),
    KafkaConfig(partitions=0),
    KafkaConfig(replication=0),
]


@pytest.mark.parametrize("kafka", BAD)
async def test_what_no_broker_can_make_is_refused(kafka: KafkaConfig) -> None:
    """A bad prefix or number is one sentence for the operator, before any broker is asked."""
    with pytest.raises(ConfigError) as refused:
        check_topic_settings(kafka)
    for ask in (ensure_topics, check_topics):
        with pytest.raises(ConfigError, match=str(refused.value)):
            await ask(kafka, TOPICS)
