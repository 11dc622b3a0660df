"""Topics of Kafka: the module that uses one declares it, and the configuration sets its size. Pure.

`parley.app.kafka.TOPICS` lists the topics in use: `parley store init` creates them, and a node requires them.
"""

from __future__ import annotations

import re

from msgspec import Struct

from parley.config import KafkaConfig
from parley.errors import ConfigError
from parley.wire.limits import KIB, MESSAGE_BYTES_MAX, MIB

DAY_MS = 24 * 60 * 60 * 1000
RETENTION_DAYS = 7
REPLICAS_FOR_QUORUM = 3
INSYNC_REPLICAS_MIN = 2

JSON_BYTES_PER_BYTE_MAX = 6
RECORD_BYTES_BESIDE_CONTENT_MAX = 4 * KIB
RECORD_BYTES_MAX = MESSAGE_BYTES_MAX * JSON_BYTES_PER_BYTE_MAX + RECORD_BYTES_BESIDE_CONTENT_MAX
BATCH_BYTES_MAX = 1 * MIB
"""A broker's default limit. A node refuses to start with a broker whose limit is lower."""
assert RECORD_BYTES_MAX < BATCH_BYTES_MAX

PREFIX = re.compile(r"[A-Za-z0-9._-]*", re.ASCII)
PREFIX_CHARS_MAX = 200


class Topic(Struct, frozen=True):
    """`key`: the kind of id that its records have as key. `partitions_max`: for a topic with few records.

    `holds`: what one record of it is, in words.
    """

    name: str
    key: str
    retention_days: int = RETENTION_DAYS
    partitions_max: int | None = None
    holds: str = ""

    def name_in(self, kafka: KafkaConfig) -> str:
        return kafka.prefix + self.name

    def partitions_in(self, kafka: KafkaConfig) -> int:
        return min(kafka.partitions, self.partitions_max or kafka.partitions)

    def settings_in(self, kafka: KafkaConfig) -> dict[str, str]:
        settings = {
            "retention.ms": str(self.retention_days * DAY_MS),
            "max.message.bytes": str(BATCH_BYTES_MAX),
        }
        if kafka.replication >= REPLICAS_FOR_QUORUM:
            settings["min.insync.replicas"] = str(INSYNC_REPLICAS_MIN)
        return settings


def check_topic_settings(kafka: KafkaConfig) -> None:
    """ConfigError when no broker could create topics with these settings."""
    if not PREFIX.fullmatch(kafka.prefix) or len(kafka.prefix) > PREFIX_CHARS_MAX:
        raise ConfigError(
            f"kafka.prefix may have up to {PREFIX_CHARS_MAX} letters, digits, dots, dashes and underscores"
        )
    if kafka.partitions < 1 or kafka.replication < 1:
        raise ConfigError("kafka.partitions and kafka.replication must be at least 1")
