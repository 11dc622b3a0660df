"""Push of one node: its providers, the worker that notifies, and what people and operators do."""

from __future__ import annotations

import asyncio
import secrets

from parley.app.deliveries import SHARED_REPLAY_LOOK_SECONDS
from parley.clock import MS_PER_DAY, Clock
from parley.config import Config
from parley.core.client_address import parse_networks
from parley.core.fanout import FanoutSizes
from parley.core.jobs import Job
from parley.core.push_devices import OUTCOME_DAYS, Provider
from parley.core.retry import RetryPolicy
from parley.delivery.attempts import LogSource
from parley.delivery.guarded_http import GuardedHttp
from parley.delivery.ports import PUSH_DELIVERIES, DeliveryTopics
from parley.delivery.replays import LOOK_SECONDS as REPLAY_LOOK_SECONDS
from parley.delivery.replays import Replays
from parley.delivery.worker import DeliveryWorker
from parley.ephemeral.ports import Registry
from parley.errors import ConfigError
from parley.extras import how_to_install
from parley.model import JobScope
from parley.push import webpush
from parley.push.channel import PushChannel
from parley.push.ports import PushProvider, VapidKeys
from parley.push.registrations import FOR_PUSH, PushRegistrations
from parley.push.webhook import WebhookPush
from parley.records.kinds import Kinds
from parley.records.server_keys import ServerKeys
from parley.sending.amended_log import amended_log
from parley.store.ports import Engine, Feed
from parley.telemetry import Metrics

EXPIRE_SECONDS = 3_600.0
HOLDER_BYTES = 8
NEEDS_EXTRA = "push.{} needs more packages: {}"


class Push:
    """`feed`: what happens in all chats; None: nothing can notify. `topics`: for workers on several nodes."""

    def __init__(
        self,
        *,
        config: Config,
        store: Engine,
        kinds: Kinds,
        registry: Registry,
        feed: Feed | None,
        topics: DeliveryTopics | None,
        node_id: str,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        allowed = parse_networks(tuple(config.push.allowed_networks))
        policy = RetryPolicy(config.delivery.max_retries, config.delivery.too_old_seconds)
        holder = f"{node_id}.{secrets.token_hex(HOLDER_BYTES)}"
        self.sizes = sizes = FanoutSizes(config.delivery.write_below, config.delivery.read_above)
        http = GuardedHttp(allowed, setting=FOR_PUSH)
        vapid, providers = _make_providers(config, kinds.server_keys, http, clock)
        self._store = kinds.push
        self._feed = feed
        self._clock = clock
        self.channel = channel = PushChannel(
            store=store,
            kinds=kinds,
            registry=registry,
            providers=providers,
            sizes=sizes,
            too_old_seconds=config.delivery.too_old_seconds,
            clock=clock,
            metrics=metrics,
        )
        kind, source, kept = PUSH_DELIVERIES, LogSource(amended_log(store)), kinds.deliveries
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
        )
        look = REPLAY_LOOK_SECONDS if topics is None else SHARED_REPLAY_LOOK_SECONDS
        self._replays = Replays(
            kind=kind,
            source=source,
            store=kept,
            channel=channel,
            policy=policy,
            clock=clock,
            metrics=metrics,
            holder=holder,
            look_seconds=look,
        )
        self.registrations = PushRegistrations(
            kinds.push.devices,
            kinds.accounts,
            kinds.sessions,
            providers=frozenset(providers),
            vapid=vapid,
            allowed=allowed,
            clock=clock,
            has_feed=feed is not None,
        )

    @property
    def jobs(self) -> list[Job]:
        """Every node with the role notifies; one node replays dead letters and forgets what is old."""
        notify = Job(
            name="push",
            does="notifies the devices of people who are not connected",
            run=self._notify,
            interval_seconds=None,
            timeout_seconds=None,
        )
        replay = Job(
            name="push_replays",
            does="replays dead letters of push",
            run=self._replays.run,
            interval_seconds=None,
            timeout_seconds=None,
            scope=JobScope.CLUSTER,
            overlaps=False,
        )
        expiry = Job(
            name="push_outcomes",
            does="deletes old outcomes of push",
            run=self._expire,
            interval_seconds=EXPIRE_SECONDS,
            timeout_seconds=EXPIRE_SECONDS,
            scope=JobScope.CLUSTER,
        )
        return [] if self._feed is None else [notify, replay, expiry]

    async def _notify(self) -> None:
        assert self._feed is not None
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._worker.run_if_needed(self._feed, self._store.devices.are_there))
            tasks.create_task(self.channel.unconfirmed.run(self._worker.owe))

    async def _expire(self) -> None:
        await self._store.outcomes.expire(self._clock() - OUTCOME_DAYS * MS_PER_DAY)

    async def close(self) -> None:
        await self.channel.close()


def _make_providers(
    config: Config, server_keys: ServerKeys, http: GuardedHttp, clock: Clock
) -> tuple[VapidKeys | None, dict[Provider, PushProvider]]:
    """Those that are configured. Web Push needs no setting, but packages that may be missing."""
    push = config.push
    vapid: VapidKeys | None = None
    providers: dict[Provider, PushProvider] = {Provider.WEBHOOK: WebhookPush(http, clock)}
    if webpush.is_installed():
        vapid = keys = webpush.StoredVapidKeys(push.vapid_private_key, server_keys)
        providers[Provider.WEBPUSH] = webpush.WebPush(http, keys.get, push.vapid_subject, clock)
    elif push.vapid_private_key:
        raise ConfigError(NEEDS_EXTRA.format("vapid_private_key", how_to_install("push")))
    if push.apns_key:
        providers[Provider.APNS] = _make_apns(config, clock)
    if push.fcm_credentials:
        providers[Provider.FCM] = _make_fcm(config, clock)
    return vapid, providers


def _make_apns(config: Config, clock: Clock) -> PushProvider:
    try:
        from parley.push.apns import ApnsKey, ApnsPush
    except ImportError:
        raise ConfigError(NEEDS_EXTRA.format("apns_key", how_to_install("push"))) from None
    push = config.push
    key = ApnsKey(push.apns_key, push.apns_key_id, push.apns_team_id)
    key.token(clock())  # a key that cannot sign is found now
    return ApnsPush(push.apns_endpoint, key, push.apns_topic, clock)


def _make_fcm(config: Config, clock: Clock) -> PushProvider:
    try:
        from parley.push.fcm import FcmPush, read_account
    except ImportError:
        raise ConfigError(NEEDS_EXTRA.format("fcm_credentials", how_to_install("push"))) from None
    return FcmPush(config.push.fcm_endpoint, read_account(config.push.fcm_credentials), clock)
