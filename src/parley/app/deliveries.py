"""Deliveries of one node: the worker over the engine's feed, the replays, and what operators do."""

from __future__ import annotations

import asyncio

from parley.clock import Clock
from parley.config import Config
from parley.core.client_address import parse_networks
from parley.core.jobs import Job
from parley.core.retry import RetryPolicy
from parley.delivery.admin import Audited, DeliveryAdmin
from parley.delivery.replays import Replays
from parley.delivery.webhooks import WebhookChannel
from parley.delivery.worker import DeliveryWorker
from parley.errors import StoreError
from parley.ids import Ids
from parley.store.ports import Engine
from parley.telemetry import Metrics

LOOK_SECONDS = 0.5


class Deliveries:
    """Only for engines that have what it needs: a feed, and room for lanes and dead letters."""

    def __init__(self, config: Config, store: Engine, clock: Clock, make_ids: Ids, metrics: Metrics) -> None:
        assert store.deliveries is not None
        assert store.feed is not None
        allowed = parse_networks(tuple(config.webhooks.allowed_networks))
        policy = RetryPolicy(config.delivery.max_retries, config.delivery.too_old_seconds)
        self._feed = store.feed
        self._webhooks = store.deliveries.webhooks
        self._channel = channel = WebhookChannel(store.deliveries.webhooks, allowed, clock)
        self._worker = DeliveryWorker(store.log, store.deliveries, channel, policy, clock, metrics)
        self._replays = Replays(
            store.log, store.deliveries, channel, policy, clock, metrics, store.audit, make_ids
        )

    @property
    def job(self) -> Job:
        return Job(name="deliveries", run=self.run, interval_seconds=None, timeout_seconds=None)

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._work())
                tasks.create_task(self._replays.run())
        finally:
            await self._channel.close()

    async def _work(self) -> None:
        """A server without webhooks spends nothing on the feed; its offset stays, so nothing is missed."""
        while not await self._has_webhooks():  # noqa: ASYNC110 - a command in another process may add one
            await asyncio.sleep(LOOK_SECONDS)
        await self._worker.run(self._feed)

    async def _has_webhooks(self) -> bool:
        try:
            return bool(await self._webhooks.all())
        except StoreError:
            return False  # it is asked again


def make_delivery_admin(
    config: Config, store: Engine, audited: Audited, clock: Clock, make_ids: Ids
) -> DeliveryAdmin:
    allowed = parse_networks(tuple(config.webhooks.allowed_networks))
    return DeliveryAdmin(store.deliveries, store.log, audited, allowed, clock, make_ids)
