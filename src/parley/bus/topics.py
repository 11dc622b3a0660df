"""The topics of the source documents: what each is keyed by, and how it is made. Pure."""

from __future__ import annotations

import re

from msgspec import Struct

from parley.config import Kafka
from parley.errors import ConfigError
from parley.wire.limits import KIB, MESSAGE_BYTES_MAX, MIB

PERSISTED = "messages.persisted"
OUTBOUND = "messages.outbound"
NOTIFICATIONS = "messages.notifications"
RETRY_DELAYS_MS = {"1s": 1_000, "5s": 5_000, "30s": 30_000, "5m": 300_000}
RETRY = {delay: f"messages.retry.{delay}" for delay in RETRY_DELAYS_MS}
DLQ = "messages.dlq"
STORE = "messages.store"

DAY_MS = 24 * 60 * 60 * 1000
RETENTION_DAYS = 7
DLQ_RETENTION_DAYS = 30
SIDE_PARTITIONS_MAX = 3
"""Retries and dead letters are few."""
REPLICAS_FOR_QUORUM = 3
INSYNC_REPLICAS_MIN = 2

JSON_BYTES_PER_BYTE_MAX = 6
RECORD_BYTES_BESIDE_CONTENT_MAX = 4 * KIB
RECORD_BYTES_MAX = MESSAGE_BYTES_MAX * JSON_BYTES_PER_BYTE_MAX + RECORD_BYTES_BESIDE_CONTENT_MAX
BATCH_BYTES_MAX = 1 * MIB
"""What a broker takes at once, by its own default; one that takes less is refused at start."""
assert RECORD_BYTES_MAX < BATCH_BYTES_MAX

NAME = re.compile(r"[A-Za-z0-9._-]*", re.ASCII)
PREFIX_LETTERS_MAX = 200


class Topic(Struct, frozen=True):
    """One topic as a broker should have it. `key`: what the records' keys are."""

    name: str
    key: str
    partitions: int
    replication: int
    retention_days: int

    @property
    def settings(self) -> dict[str, str]:
        settings = {
            "retention.ms": str(self.retention_days * DAY_MS),
            "max.message.bytes": str(BATCH_BYTES_MAX),
        }
        if self.replication >= REPLICAS_FOR_QUORUM:
            settings["min.insync.replicas"] = str(INSYNC_REPLICAS_MIN)
        return settings


def topic_name(kafka: Kafka, name: str) -> str:
    return kafka.prefix + name


def topics(kafka: Kafka) -> list[Topic]:
    """Every topic, as the configuration wants it; ConfigError when no broker could make it so."""
    if not NAME.fullmatch(kafka.prefix) or len(kafka.prefix) > PREFIX_LETTERS_MAX:
        raise ConfigError(
            f"kafka.prefix may have up to {PREFIX_LETTERS_MAX} letters, digits, dots, dashes and underscores"
        )
    if kafka.partitions < 1 or kafka.replication < 1:
        raise ConfigError("kafka.partitions and kafka.replication must be at least 1")
    many, few = kafka.partitions, min(kafka.partitions, SIDE_PARTITIONS_MAX)
    made = [
        (PERSISTED, "chat_id", many, RETENTION_DAYS),
        (OUTBOUND, "recipient_user_id", many, RETENTION_DAYS),
        (NOTIFICATIONS, "user_id", many, RETENTION_DAYS),
        *((name, "chat_id", few, RETENTION_DAYS) for name in RETRY.values()),
        (DLQ, "chat_id", few, DLQ_RETENTION_DAYS),
        (STORE, "chat_id", many, RETENTION_DAYS),
    ]
    return [
        Topic(topic_name(kafka, name), key, partitions, kafka.replication, days)
        for name, key, partitions, days in made
    ]
