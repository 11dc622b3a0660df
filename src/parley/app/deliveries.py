"""Deliveries of one node: the workers over the feed, the replays, and what operators do."""

from __future__ import annotations

import asyncio
import math
import secrets

from msgspec.structs import replace

from parley.clock import MS_PER_HOUR, Clock
from parley.config import Config
from parley.core.client_address import parse_networks
from parley.core.deliveries import DeliveryQueue
from parley.core.jobs import Job
from parley.core.retry import RetryPolicy
from parley.delivery.admin import Audited, DeliveryAdmin
from parley.delivery.attempts import LogSource
from parley.delivery.events import EventSource
from parley.delivery.ports import WEBHOOK_DELIVERIES, DeliveryTopics, Source
from parley.delivery.recipients import FailingRecipients
from parley.delivery.replays import LOOK_SECONDS as REPLAY_LOOK_SECONDS
from parley.delivery.replays import Replays
from parley.delivery.upkeep import DeadLetterUpkeep
from parley.delivery.webhooks import WebhookChannel
from parley.delivery.worker import SHARED_LOOK_SECONDS, DeliveryWorker
from parley.ids import Ids
from parley.model import JobScope
from parley.records.kinds import Kinds
from parley.sending.amended_log import amended_log
from parley.store.ports import Engine, Feed
from parley.telemetry import Metrics

SHARED_REPLAY_LOOK_SECONDS = 5.0
"""On a store where each look costs."""
HOLDER_BYTES = 8


class Deliveries:
    """`feed`: what happens in all chats. `topics`: None on a store that no other node shares."""

    def __init__(
        self,
        *,
        config: Config,
        store: Engine,
        kinds: Kinds,
        feed: Feed,
        topics: DeliveryTopics | None,
        node_id: str,
        clock: Clock,
        make_ids: Ids,
        metrics: Metrics,
    ) -> None:
        allowed = parse_networks(tuple(config.webhooks.allowed_networks))
        for_replays = RetryPolicy(config.delivery.max_retries, config.delivery.too_old_seconds)
        policy = replace(for_replays, give_up_ms=config.webhooks.give_up_hours * MS_PER_HOUR)
        holder = f"{node_id}.{secrets.token_hex(HOLDER_BYTES)}"
        kind, source, kept = WEBHOOK_DELIVERIES, make_source(store, kinds, clock), kinds.deliveries
        self._feed = feed
        self._topics = topics
        self._webhooks = kept.webhooks
        self._channel = channel = WebhookChannel(kept.webhooks, allowed, clock)
        recipients = FailingRecipients(
            kinds.failing_recipients,
            policy,
            clock,
            metrics,
            refresh_seconds=math.inf if topics is None else SHARED_LOOK_SECONDS,
        )
        self._worker = DeliveryWorker(
            kind=kind,
            source=source,
            store=kept,
            channel=channel,
            policy=policy,
            clock=clock,
            metrics=metrics,
            holder=holder,
            topics=topics,
            recipients=recipients,
        )
        replay_look = REPLAY_LOOK_SECONDS if topics is None else SHARED_REPLAY_LOOK_SECONDS
        self._replays = Replays(
            kind=kind,
            source=source,
            store=kept,
            channel=channel,
            policy=for_replays,
            clock=clock,
            metrics=metrics,
            holder=holder,
            look_seconds=replay_look,
        )
        self._upkeep = DeadLetterUpkeep(kept.dead_letters, kinds.audit, clock, make_ids, metrics)

    @property
    def arrived_ms(self) -> dict[str, int]:
        """When each webhook was last reached from here."""
        return self._worker.arrived_ms

    @property
    def jobs(self) -> list[Job]:
        """Queues are claimed one by one, so every node works on them; one node replays and counts."""
        deliver = Job(
            name="deliveries",
            does="delivers events to webhooks",
            run=self._work,
            interval_seconds=None,
            timeout_seconds=None,
        )
        replay = Job(
            name="dead_letters",
            does="replays dead letters of webhooks, counts them, and deletes old ones",
            run=self._keep_dead_letters,
            interval_seconds=None,
            timeout_seconds=None,
            scope=JobScope.CLUSTER,
            overlaps=False,
        )
        return [deliver, replay]

    async def nudge(self, queue: DeliveryQueue) -> None:
        """A queue was opened beside the feed, for any worker of the cluster."""
        if self._topics is None:
            self._worker.opened(queue)
        else:
            await self._topics.tell_retry(queue)

    async def close(self) -> None:
        await self._channel.close()

    async def _work(self) -> None:
        await self._worker.run_if_needed(self._feed, self._has_webhooks)

    async def _keep_dead_letters(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._replays.run())
            tasks.create_task(self._upkeep.run())

    async def _has_webhooks(self) -> bool:
        return bool(await self._webhooks.all())


def make_source(store: Engine, kinds: Kinds, clock: Clock) -> Source:
    return EventSource(LogSource(amended_log(store)), kinds.accounts, clock)


def make_delivery_admin(
    config: Config, store: Engine, kinds: Kinds, audited: Audited, clock: Clock, make_ids: Ids
) -> DeliveryAdmin:
    allowed = parse_networks(tuple(config.webhooks.allowed_networks))
    has_feed = store.feed is not None or bool(config.kafka.brokers)
    source = make_source(store, kinds, clock)
    return DeliveryAdmin(
        store=kinds.deliveries,
        failing=kinds.failing_recipients,
        source=source,
        audited=audited,
        allowed=allowed,
        clock=clock,
        make_ids=make_ids,
        has_feed=has_feed,
    )
