"""The `Feed` port on Kafka: a consumer group over `messages.persisted`.

A handler gets one chat's news at a time, and is called again until it returns. It skips records that no node
of this cluster has signed.

A router takes whole chunks and may return before they are done: it takes the next chunk while others confirm
what it passed on. The offset moves over a chunk once that one and all before it are confirmed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from parley.bus import events
from parley.bus.kafka.admin import topic_states
from parley.bus.kafka.client import options
from parley.bus.kafka.group import GroupMember, PartitionShare, belong
from parley.bus.kafka.records import RecordReader
from parley.clock import Clock
from parley.config import KafkaConfig
from parley.core.cluster_keys import ClusterKeys
from parley.errors import ConfigError, StoreUnavailable
from parley.model import Persisted
from parley.store.ports import Handle
from parley.telemetry import Metrics

FINISH_SECONDS_MAX = 5.0
"""How long a handler may still run when its partition is revoked."""
ROUTE_FINISH_SECONDS_MAX = 1.0
"""The same for what nodes have not confirmed yet: another member forwards it again."""
TOUCH_SECONDS_MAX = 3.0
SEEN_CHATS_MAX = 10_000
HANDLE_RETRY_SECONDS_MAX = 60.0
ROUTE_RETRY_SECONDS_MAX = 5.0
"""People wait for what is routed."""

BEGIN_MS_AGO = 600_000
"""Where a group begins that has no offset yet, if it needs no older events."""

Confirmed = asyncio.Future[None]
Route = Callable[[list[Persisted]], Awaitable[Confirmed]]
"""Takes a chunk of one partition, in order. What it returns is done when the chunk may be forgotten."""

SESSION_MS = 10_000
REBALANCE_MS_MAX = 30_000
FETCH_BYTES_MAX = 256 * 1024
ROUTING = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 1_000, "rebalance_timeout_ms": 8_000}
"""People wait: the partitions of a member that died, or left, soon go to another one."""


class NewsShare(PartitionShare):
    """One partition of events. It remembers what was handled: an event may be published twice."""

    def __init__(self, offset: int, reader: RecordReader) -> None:
        super().__init__(offset)
        self._reader = reader
        self._seen: dict[str, tuple[int, int]] = {}

    def news_in(self, records: list[ConsumerRecord]) -> list[Persisted]:
        """The news in records, without what was handled before."""
        last: dict[str, tuple[int, int]] = {}
        new = []
        for told in filter(None, map(self._reader.read, records)):
            place = told.epoch, told.stored.sequence
            if place > (last.get(told.chat_id) or self._seen.get(told.chat_id, (0, 0))):
                last[told.chat_id] = place
                new.append(told)
        return events.gather(new)

    def note(self, news: Persisted) -> None:
        if len(self._seen) >= SEEN_CHATS_MAX:
            self._seen.clear()
        self._seen[news.chat_id] = news.epoch, news.positions[-1].sequence


class RoutedShare(NewsShare):
    """One partition of a router, several of whose chunks are under way at once."""

    def __init__(self, offset: int, reader: RecordReader) -> None:
        super().__init__(offset, reader)
        self.under_way: deque[tuple[int, Confirmed]] = deque()
        """The offset after each chunk that was taken and is not settled, and what it waits for."""

    @property
    def unconfirmed(self) -> Sequence[Confirmed]:
        return [confirmed for _, confirmed in self.under_way]

    def expect(self, next_offset: int, confirmed: Confirmed) -> None:
        """A chunk is under way; those that wait for the same thing are one."""
        if self.under_way and self.under_way[-1][1] is confirmed:
            self.under_way[-1] = next_offset, confirmed
        else:
            self.under_way.append((next_offset, confirmed))
            confirmed.add_done_callback(lambda _: self._settle())

    def _settle(self) -> None:
        while self.under_way and _is_confirmed(self.under_way[0][1]):
            self.done_through = self.under_way.popleft()[0]


def _is_confirmed(confirmed: Confirmed) -> bool:
    return confirmed.done() and not confirmed.cancelled() and confirmed.exception() is None


class HandlingMember(GroupMember[NewsShare]):
    """Calls a handler with the news of each chat."""

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        topic: str,
        group: str,
        handle: Handle,
        chance: Callable[[], float],
        reader: RecordReader,
    ) -> None:
        super().__init__(consumer, topic, group, chance, FINISH_SECONDS_MAX)
        self._handle_news = handle
        self._reader = reader

    def make_share(self, offset: int) -> NewsShare:
        return NewsShare(offset, self._reader)

    async def handle(self, share: NewsShare, records: list[ConsumerRecord]) -> None:
        for news in share.news_in(records):
            call = partial(self._handle_news, news)
            await self.until_done(call, HANDLE_RETRY_SECONDS_MAX, chat_id=news.chat_id)
            share.note(news)
        share.done_through = records[-1].offset + 1


class RoutingMember(GroupMember[RoutedShare]):
    """Passes whole chunks on. `begin_ms`: when what a new group must read began."""

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        topic: str,
        group: str,
        route: Route,
        chance: Callable[[], float],
        *,
        reader: RecordReader,
        begin_ms: Callable[[], int],
    ) -> None:
        super().__init__(consumer, topic, group, chance, ROUTE_FINISH_SECONDS_MAX)
        self._route = route
        self._reader = reader
        self._begin_ms = begin_ms
        self._question: asyncio.Future[list[object]] | None = None

    def make_share(self, offset: int) -> RoutedShare:
        return RoutedShare(offset, self._reader)

    async def handle(self, share: RoutedShare, records: list[ConsumerRecord]) -> None:
        found = share.news_in(records)
        confirmed = await self.until_done(partial(self._route, found), ROUTE_RETRY_SECONDS_MAX)
        share.expect(records[-1].offset + 1, confirmed)
        for news in found:
            share.note(news)

    async def is_in_touch(self) -> bool:
        """Whether the brokers of its partitions answer. A question that is late is not cancelled: aiokafka
        would leave a connection open that it was making.
        """
        if self._question is None or self._question.done():
            asking = self.consumer.end_offsets(self.consumer.assignment())
            self._question = asyncio.ensure_future(asyncio.gather(asking, return_exceptions=True))
        await asyncio.wait([self._question], timeout=TOUCH_SECONDS_MAX)
        return self._question.done() and not isinstance(self._question.result()[0], BaseException)

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        await super().on_partitions_assigned(assigned)
        for partition in assigned:
            await self._find_beginning(partition, self._begin_ms())

    async def _find_beginning(self, partition: TopicPartition, begin_ms: int) -> None:
        """A partition that this group has never read is read from a time on, not from its oldest event."""
        if await self.consumer.committed(partition) is None:
            # The end is asked for first: what is published between the two questions is after it.
            end = (await self.consumer.end_offsets([partition]))[partition]
            found = (await self.consumer.offsets_for_times({partition: begin_ms}))[partition]
            self.consumer.seek(partition, end if found is None else found.offset)


class KafkaFeed:
    """`settings` are passed to the consumer and override its defaults."""

    def __init__(
        self,
        kafka: KafkaConfig,
        topic: str,
        keys: ClusterKeys,
        metrics: Metrics,
        chance: Callable[[], float],
        **settings: Any,
    ) -> None:
        self._reader = RecordReader(topic, keys, metrics)
        self._kafka = kafka
        self._topic = topic
        self._metrics = metrics
        self._chance = chance
        self._settings = settings
        self._router: RoutingMember | None = None

    async def consume(self, group: str, handle: Handle) -> None:
        def make_member() -> HandlingMember:
            consumer = self._consumer(group)
            return HandlingMember(consumer, self._topic, group, handle, self._chance, self._reader)

        await belong(make_member, self._metrics, self._chance)

    async def route(self, group: str, route: Route, clock: Clock) -> None:
        """As `consume`, by chunks, some of which are under way at once. Old events are not its business."""

        def make_member() -> RoutingMember:
            consumer = self._consumer(group, **ROUTING)
            self._router = RoutingMember(
                consumer,
                self._topic,
                group,
                route,
                self._chance,
                reader=self._reader,
                begin_ms=lambda: clock() - BEGIN_MS_AGO,
            )
            return self._router

        await belong(make_member, self._metrics, self._chance)

    async def is_in_touch(self) -> bool:
        """Whether the brokers answer the member that routes, if there is one."""
        return self._router is None or await self._router.is_in_touch()

    async def lags(self) -> dict[str, int]:
        try:
            (state,) = await topic_states(self._kafka, [self._topic])
        except ConfigError as error:
            raise StoreUnavailable(str(error)) from error
        return state.groups

    def _consumer(self, group: str, **special: Any) -> AIOKafkaConsumer:
        settings: dict[str, Any] = {
            "group_id": self._kafka.prefix + group,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS_MAX,
            "max_partition_fetch_bytes": FETCH_BYTES_MAX,
        }
        return AIOKafkaConsumer(**options(self._kafka) | settings | special | self._settings)
