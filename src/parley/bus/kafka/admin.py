"""Topics on a broker: made where they are missing, and checked before anybody relies on them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, UnknownTopicOrPartitionError, for_code

from parley.bus.kafka.connecting import options
from parley.bus.topics import BATCH_BYTES_MAX, INSYNC_REPLICAS_MIN, Topic, topics
from parley.config import Kafka, is_loopback
from parley.errors import ConfigError

INSYNC = "min.insync.replicas"
LARGEST = "max.message.bytes"
VISIBLE_SECONDS_MAX = 10.0
VISIBLE_LOOK_SECONDS = 0.05
MAKE_THEM = "make it with: parley store init"


@asynccontextmanager
async def admin_of(kafka: Kafka) -> AsyncIterator[AIOKafkaAdminClient]:
    """A connection to the brokers; whatever goes wrong with them inside is a ConfigError in one sentence."""
    admin = AIOKafkaAdminClient(**options(kafka))
    brokers = ", ".join(kafka.brokers)
    try:
        await admin.start()
        yield admin
    except (KafkaError, TimeoutError, OSError) as error:
        says = str(error) or type(error).__name__
        raise ConfigError(f"Kafka at {brokers} cannot be used: {says}") from error
    finally:
        await admin.close()


async def ensure_topics(kafka: Kafka) -> list[str]:
    """Make the topics that are missing, and leave the others as they are; returns the names of the new."""
    wanted = [
        NewTopic(topic.name, topic.partitions, topic.replication, topic_configs=topic.settings)
        for topic in topics(kafka)
    ]
    async with admin_of(kafka) as admin:
        made = _made(await admin.create_topics(wanted))
        async with asyncio.timeout(VISIBLE_SECONDS_MAX):
            while made and not all(map(_is_usable, await admin.describe_topics(made))):  # noqa: ASYNC110
                await asyncio.sleep(VISIBLE_LOOK_SECONDS)
    return made


def _made(answer: Any) -> list[str]:
    made = []
    for name, code, says in answer.topic_errors:
        error = for_code(code)
        if code == 0:
            made.append(name)
        elif error is not TopicAlreadyExistsError:
            raise ConfigError(f"Kafka cannot make the topic {name}: {says or error.__name__}")
    return made


def _is_usable(found: dict[str, Any]) -> bool:
    """A broker hears a moment later that a topic was made, and who leads its partitions."""
    partitions = found["partitions"]
    return found["error_code"] == 0 and all(partition["leader"] >= 0 for partition in partitions)


async def check_topics(kafka: Kafka) -> list[str]:
    """What an operator should know of topics that can be used; ConfigError when one of them cannot be."""
    wanted = topics(kafka)
    async with admin_of(kafka) as admin:
        found = {topic["topic"]: topic for topic in await admin.describe_topics([t.name for t in wanted])}
        for topic in wanted:
            _check_shape(topic, found.get(topic.name))
        settings = await _settings(admin, wanted)
    warnings = []
    for topic in wanted:
        warnings += _check_settings(kafka, topic, settings[topic.name])
    return warnings


def _check_shape(topic: Topic, found: dict[str, Any] | None) -> None:
    if found is None or for_code(found["error_code"]) is UnknownTopicOrPartitionError:
        raise ConfigError(f"Kafka has no topic {topic.name}: {MAKE_THEM}")
    if found["error_code"]:
        raise ConfigError(
            f"Kafka will not show the topic {topic.name}: {for_code(found['error_code']).__name__}"
        )
    partitions = found["partitions"]
    if len(partitions) < topic.partitions:
        raise ConfigError(
            f"the topic {topic.name} has {len(partitions)} partitions, fewer than kafka.partitions asks for"
            f" ({topic.partitions}): lower the one or make the topic anew"
        )
    replicas = min(len(partition["replicas"]) for partition in partitions)
    if replicas < topic.replication:
        raise ConfigError(
            f"the topic {topic.name} has {replicas} replicas, fewer than kafka.replication asks for"
            f" ({topic.replication}): lower the one or reassign the other"
        )


async def _settings(admin: AIOKafkaAdminClient, wanted: Sequence[Topic]) -> dict[str, dict[str, int]]:
    asked = dict.fromkeys((INSYNC, LARGEST), "")
    resources = [ConfigResource(ConfigResourceType.TOPIC, topic.name, configs=asked) for topic in wanted]
    found: dict[str, dict[str, int]] = {}
    for answer in await admin.describe_configs(resources):
        for code, says, _, name, entries in answer.resources:
            if code:
                raise ConfigError(
                    f"Kafka will not show the settings of {name}: {says or for_code(code).__name__}"
                )
            found[name] = {entry[0]: int(entry[1]) for entry in entries}
    return found


def _check_settings(kafka: Kafka, topic: Topic, settings: dict[str, int]) -> list[str]:
    if settings[LARGEST] < BATCH_BYTES_MAX:
        raise ConfigError(
            f"the topic {topic.name} takes batches of {settings[LARGEST]} bytes: raise its {LARGEST}"
            f" to {BATCH_BYTES_MAX}"
        )
    is_local = all(is_loopback(broker.rpartition(":")[0]) for broker in kafka.brokers)
    if settings[INSYNC] < INSYNC_REPLICAS_MIN and not is_local:
        says = f"{topic.name} counts a write as done when it is on {settings[INSYNC]} broker: set {INSYNC}"
        return [f"{says} to {INSYNC_REPLICAS_MIN}, or one broken disk can take events away"]
    return []
