"""The topic of drafts on Kafka: nodes with clients write to it, nodes that append consume it as one group."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRecord
from aiokafka.errors import KafkaError

from parley.bus.drafts import NotADraft, decode_draft, encode_draft
from parley.bus.events import is_proven
from parley.bus.kafka.bus import KafkaSink
from parley.bus.kafka.client import options
from parley.bus.kafka.group import GroupMember, PartitionShare, belong
from parley.bus.ports import BufferedDraft
from parley.bus.publisher import NotPublished
from parley.clock import Clock
from parley.config import KafkaConfig
from parley.core.cluster_keys import EVENTS, ClusterKeys
from parley.errors import ConfigError, OutcomeUnknown, StoreUnavailable
from parley.telemetry import Metrics

GROUP = "ingest"
FINISH_SECONDS_MAX = 5.0
"""How long appends may still run when their partition goes to another node."""
STOP_SECONDS_MAX = 0.5
"""The same when this node stops: its log takes nothing more by then."""
SESSION_MS = 6_000
"""How soon another node takes over from one that died: senders wait. Brokers allow no less by default."""
HEARTBEAT_MS = 1_500
REBALANCE_MS_MAX = 30_000
APPEND_RETRY_SECONDS_MAX = 8.0

log = structlog.get_logger("parley.kafka")

Append = Callable[[Sequence[BufferedDraft]], Awaitable[None]]


class KafkaDraftQueue:
    """The port `DraftQueue`."""

    def __init__(self, kafka: KafkaConfig, topic: str, keys: ClusterKeys) -> None:
        self._sink = KafkaSink(kafka, topic, keys)

    async def start(self) -> None:
        """ConfigError when no broker can be used."""
        try:
            await self._sink.start()
        except (KafkaError, NotPublished) as error:
            raise ConfigError(f"Kafka cannot be used: {error}") from error

    async def stop(self) -> None:
        await self._sink.stop()

    def partition_of(self, chat_id: str) -> int:
        return self._sink.partition_of(chat_id.encode())

    async def put(self, partition: int, drafts: Sequence[BufferedDraft]) -> None:
        try:
            await self._sink.connect()
        except NotPublished as error:
            raise StoreUnavailable(f"Kafka cannot be reached: {error}") from error
        try:
            await self._sink.send(partition, [encode_draft(one) for one in drafts])
        except NotPublished as error:
            raise OutcomeUnknown(f"Kafka did not confirm: {error}") from error


class DraftConsumer:
    """Passes drafts to `append`, each partition in order; an offset moves only over what it has settled."""

    def __init__(
        self,
        *,
        kafka: KafkaConfig,
        topic: str,
        keys: ClusterKeys,
        append: Append,
        metrics: Metrics,
        clock: Clock,
        chance: Callable[[], float],
    ) -> None:
        self._clock = clock
        self._kafka = kafka
        self._topic = topic
        self._ring = keys.ring(EVENTS, topic)
        self._append = append
        self._metrics = metrics
        self._chance = chance

    async def run(self) -> None:
        """Until cancelled. Without a broker it tries again."""
        await belong(self._make_member, self._metrics, self._chance)

    def _make_member(self) -> DraftMember:
        consumer = AIOKafkaConsumer(
            **options(self._kafka),
            group_id=self._kafka.prefix + GROUP,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            rebalance_timeout_ms=REBALANCE_MS_MAX,
        )
        return DraftMember(consumer, self._topic, self._handle, self._chance)

    async def _handle(self, records: list[ConsumerRecord]) -> None:
        drafts = [draft for record in records if (draft := self._read(record)) is not None]
        if drafts:
            await self._append(drafts)

    def _read(self, record: ConsumerRecord) -> BufferedDraft | None:
        """None for what no node of this cluster has written: anybody may be able to write to a topic."""
        reason = "it is not signed with this cluster's secret"
        if is_proven(self._ring, record.value, record.headers):
            try:
                return decode_draft(record.value, self._clock())
            except NotADraft as error:
                reason = str(error)
        else:
            self._metrics.unproven.labels("draft").inc()
        now = asyncio.get_running_loop().time()
        if (more := self._metrics.lines.admit("record is not a draft", now)) is not None:
            where = {"partition": record.partition, "offset": record.offset}
            log.error("record is not a draft", reason=reason, **where, **more)
        return None


class DraftMember(GroupMember[PartitionShare]):
    """Hands chunks of drafts on, each until it is settled."""

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        topic: str,
        settle: Callable[[list[ConsumerRecord]], Awaitable[None]],
        chance: Callable[[], float],
    ) -> None:
        super().__init__(consumer, topic, GROUP, chance, FINISH_SECONDS_MAX, STOP_SECONDS_MAX)
        self._settle = settle

    def make_share(self, offset: int) -> PartitionShare:
        return PartitionShare(offset)

    async def handle(self, share: PartitionShare, records: list[ConsumerRecord]) -> None:
        await self.until_done(partial(self._settle, records), APPEND_RETRY_SECONDS_MAX, drafts=len(records))
        share.done_through = records[-1].offset + 1
