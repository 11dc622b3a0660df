"""How topics are declared, and how the configuration shapes them."""

import pytest

from parley.app.kafka import TOPICS
from parley.bus.kafka.admin import check_topics, ensure_topics
from parley.bus.topics import DAY_MS, Topic, check_topic_settings
from parley.config import KafkaConfig
from parley.errors import ConfigError
from tests.tidy.repository import ROOT

DEAD_LETTERS = Topic("messages.dlq", key="chat_id", retention_days=30, partitions_max=3)


def test_only_topics_in_use_are_required() -> None:
    """A node requires the topic of events and no other, as no worker uses another yet."""
    found = {topic.name: topic.key for topic in TOPICS}
    assert found == {"messages.persisted": "chat_id"}


def test_every_declared_topic_is_listed() -> None:
    """A topic that some module of the server declares is among those that are made."""
    declared = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "src").rglob("*.py")
        if " = Topic(" in path.read_text(encoding="utf-8")
    ]
    assert len(declared) == len(TOPICS), declared


def test_the_configuration_gives_prefix_and_partitions() -> None:
    """A topic has the configured prefix and partitions; one with few records has fewer partitions."""
    kafka = KafkaConfig(prefix="p.", partitions=12)
    (persisted,) = TOPICS
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
    assert {topic.settings_in(KafkaConfig())["retention.ms"] for topic in TOPICS} == {str(7 * DAY_MS)}
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
