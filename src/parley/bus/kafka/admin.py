"""Creates missing topics on the brokers, and checks topics before a node starts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, UnknownTopicOrPartitionError, for_code

from parley.bus.kafka.client import close_admin, close_consumer, options, start_client
from parley.bus.ports import TopicState
from parley.bus.topics import BATCH_BYTES_MAX, INSYNC_REPLICAS_MIN, Topic, check_topic_settings
from parley.config import KafkaConfig, is_loopback
from parley.errors import ConfigError

INSYNC = "min.insync.replicas"
LARGEST = "max.message.bytes"
VISIBLE_SECONDS_MAX = 10.0
VISIBLE_POLL_SECONDS = 0.05


@asynccontextmanager
async def admin_of(kafka: KafkaConfig) -> AsyncIterator[AIOKafkaAdminClient]:
    """A connection to the brokers. Their errors become a ConfigError in one sentence."""
    admin = AIOKafkaAdminClient(**options(kafka))
    brokers = ", ".join(kafka.brokers)
    try:
        await start_client(admin)
        yield admin
    except (KafkaError, TimeoutError, OSError) as error:
        reason = str(error) or type(error).__name__
        raise ConfigError(f"Kafka at {brokers} cannot be used: {reason}") from error
    finally:
        await close_admin(admin)


async def ensure_topics(kafka: KafkaConfig, topics: Sequence[Topic]) -> list[str]:
    """Create the missing topics and leave the others unchanged. Returns the names of the new ones."""
    check_topic_settings(kafka)
    wanted = [
        NewTopic(
            topic.name_in(kafka),
            topic.partitions_in(kafka),
            kafka.replication,
            topic_configs=topic.settings_in(kafka),
        )
        for topic in topics
    ]
    async with admin_of(kafka) as admin:
        created = _created(await admin.create_topics(wanted))
        async with asyncio.timeout(VISIBLE_SECONDS_MAX):
            while created and not all(map(_is_usable, await admin.describe_topics(created))):  # noqa: ASYNC110
                await asyncio.sleep(VISIBLE_POLL_SECONDS)
    return created


def _created(response: Any) -> list[str]:
    created = []
    for name, code, reason in response.topic_errors:
        error = for_code(code)
        if code == 0:
            created.append(name)
        elif error is not TopicAlreadyExistsError:
            raise ConfigError(f"Kafka cannot create the topic {name}: {reason or error.__name__}")
    return created


def _is_usable(found: dict[str, Any]) -> bool:
    """Whether the broker knows the topic and the leaders of its partitions, which takes a moment."""
    partitions = found["partitions"]
    return found["error_code"] == 0 and all(partition["leader"] >= 0 for partition in partitions)


async def check_topics(kafka: KafkaConfig, topics: Sequence[Topic]) -> list[str]:
    """Warnings about these topics for the operator; ConfigError when one of them cannot be used."""
    check_topic_settings(kafka)
    names = [topic.name_in(kafka) for topic in topics]
    async with admin_of(kafka) as admin:
        found = {topic["topic"]: topic for topic in await admin.describe_topics(names)}
        for topic in topics:
            _check_shape(kafka, topic, found.get(topic.name_in(kafka)))
        settings = await _settings(admin, names)
    warnings = []
    for name in names:
        warnings += _check_settings(kafka, name, settings[name])
    return warnings


def _check_shape(kafka: KafkaConfig, topic: Topic, found: dict[str, Any] | None) -> None:
    name, partitions_min = topic.name_in(kafka), topic.partitions_in(kafka)
    if found is None or for_code(found["error_code"]) is UnknownTopicOrPartitionError:
        raise ConfigError(f"Kafka has no topic {name}: create it with: parley store init")
    if found["error_code"]:
        raise ConfigError(f"Kafka does not show the topic {name}: {for_code(found['error_code']).__name__}")
    partitions = found["partitions"]
    if len(partitions) < partitions_min:
        raise ConfigError(
            f"the topic {name} has {len(partitions)} partitions, fewer than kafka.partitions asks for"
            f" ({partitions_min}): lower kafka.partitions or recreate the topic"
        )
    replicas = min(len(partition["replicas"]) for partition in partitions)
    if replicas < kafka.replication:
        raise ConfigError(
            f"the topic {name} has {replicas} replicas, fewer than kafka.replication asks for"
            f" ({kafka.replication}): lower kafka.replication or add replicas"
        )


async def _settings(admin: AIOKafkaAdminClient, names: Sequence[str]) -> dict[str, dict[str, int]]:
    wanted = dict.fromkeys((INSYNC, LARGEST), "")
    resources = [ConfigResource(ConfigResourceType.TOPIC, name, configs=wanted) for name in names]
    found: dict[str, dict[str, int]] = {}
    for response in await admin.describe_configs(resources):
        for code, reason, _, name, entries in response.resources:
            if code:
                raise ConfigError(
                    f"Kafka does not show the settings of {name}: {reason or for_code(code).__name__}"
                )
            found[name] = {entry[0]: int(entry[1]) for entry in entries}
    return found


def _check_settings(kafka: KafkaConfig, topic: str, settings: dict[str, int]) -> list[str]:
    if settings[LARGEST] < BATCH_BYTES_MAX:
        raise ConfigError(
            f"the topic {topic} accepts batches of up to {settings[LARGEST]} bytes: raise its {LARGEST}"
            f" to {BATCH_BYTES_MAX}"
        )
    is_local = all(is_loopback(broker.rpartition(":")[0]) for broker in kafka.brokers)
    if settings[INSYNC] < INSYNC_REPLICAS_MIN and not is_local:
        problem = f"the topic {topic} acknowledges a write that is on {settings[INSYNC]} broker"
        return [f"{problem}: set {INSYNC} to {INSYNC_REPLICAS_MIN}, or one broken disk can lose events"]
    return []


async def topic_states(kafka: KafkaConfig, names: Sequence[str]) -> list[TopicState]:
    """These topics and the lag of each group of this installation; ConfigError if Kafka cannot be asked."""
    async with admin_of(kafka) as admin:
        found = await admin.describe_topics(list(names))
        partitions = {one["topic"]: [p["partition"] for p in one["partitions"]] for one in found}
        listed = [group for group, *_ in await admin.list_consumer_groups()]
        groups = [group for group in listed if group.startswith(kafka.prefix)]
        done = {group: await admin.list_consumer_group_offsets(group) for group in groups}
        places = [TopicPartition(name, number) for name in names for number in partitions.get(name, ())]
        first, last = await _ends(kafka, places)
    states = []
    for name in names:
        lags = {}
        for group, offsets in done.items():
            own = [place for place in places if place.topic == name]
            if any(place in offsets for place in own):
                # Where a group has no offset yet, it will begin with the oldest record.
                lag = sum(last[p] - (offsets[p].offset if p in offsets else first[p]) for p in own)
                lags[group.removeprefix(kafka.prefix)] = max(lag, 0)
        states.append(TopicState(name, len(partitions.get(name, ())), lags))
    return states


async def _ends(
    kafka: KafkaConfig, places: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """The first and the next offset of each partition."""
    consumer = AIOKafkaConsumer(**options(kafka))
    try:
        await start_client(consumer)
        return await consumer.beginning_offsets(places), await consumer.end_offsets(places)
    finally:
        await close_consumer(consumer)
