"""The topics and how the configuration shapes them."""

import pytest

from parley.bus.topics import Topic, topics
from parley.config import Kafka
from parley.errors import ConfigError


def test_every_topic_of_the_documents_is_there() -> None:
    """The names, keys and partitions are those that the documents and the configuration give."""
    found = {topic.name: (topic.key, topic.partitions) for topic in topics(Kafka(prefix="p.", partitions=12))}
    assert found == {
        "p.messages.persisted": ("chat_id", 12),
        "p.messages.outbound": ("recipient_user_id", 12),
        "p.messages.notifications": ("user_id", 12),
        "p.messages.retry.1s": ("chat_id", 3),
        "p.messages.retry.5s": ("chat_id", 3),
        "p.messages.retry.30s": ("chat_id", 3),
        "p.messages.retry.5m": ("chat_id", 3),
        "p.messages.dlq": ("chat_id", 3),
        "p.messages.store": ("chat_id", 12),
    }


@pytest.mark.parametrize(("replication", "insync"), [(1, None), (2, None), (3, "2"), (5, "2")])
def test_a_quorum_is_asked_for_where_there_can_be_one(replication: int, insync: str | None) -> None:
    """With three replicas or more, a write must be on two before it counts."""
    found = {topic.settings.get("min.insync.replicas") for topic in topics(Kafka(replication=replication))}
    assert found == {insync}


def test_dead_letters_are_kept_longer() -> None:
    """The DLQ keeps its records for 30 days, everything else for a week."""
    day_ms = 86_400_000

    def days(topic: Topic) -> int:
        return int(topic.settings["retention.ms"]) // day_ms

    found = {topic.name: days(topic) for topic in topics(Kafka())}
    assert found.pop("messages.dlq") == 30
    assert set(found.values()) == {7}


@pytest.mark.parametrize(
    "kafka",
    [
        Kafka(prefix="a b"),
        Kafka(prefix="x" * 201),
        Kafka(prefix="é"),
        Kafka(partitions=0),
        Kafka(replication=0),
    ],
)
def test_what_no_broker_can_make_is_refused(kafka: Kafka) -> None:
    """A bad prefix or number is one sentence for the operator."""
    with pytest.raises(ConfigError):
        topics(kafka)
