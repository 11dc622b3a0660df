"""One node: every room, wired. The embedded server is a node that needs no other."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

import structlog

from parley.accounts.accounts import AccountManager
from parley.accounts.deletions import AccountDeletions
from parley.accounts.known_devices import KnownDevices
from parley.app.buses import BusEngine, EmbeddedBusEngine
from parley.app.deliveries import Deliveries
from parley.app.engines import expired_sessions, make_engine, sealing
from parley.app.files import make_attaching, make_files
from parley.app.gateway import make_gateway
from parley.app.identities import Identities
from parley.app.memory import NodeMemory
from parley.app.push import Push
from parley.app.search import Search
from parley.audit import AuditTrail
from parley.bodies.erasures import BodyAdmin
from parley.chats.chat_admin import ChatAdmin
from parley.chats.invitations import InvitationService
from parley.chats.log_hasher import LogHasher
from parley.chats.membership import Membership
from parley.chats.reader import ChatReader
from parley.chats.reports import ReportService
from parley.clock import Clock, wall_clock
from parley.config import Config
from parley.core.cluster_keys import KEY_BYTES, ClusterKeys
from parley.core.jobs import Job
from parley.delivery.events import EventOutbox, nobody
from parley.ephemeral.local import LocalEphemeral
from parley.ephemeral.ports import Ephemeral
from parley.errors import NOT_FOUND, ConfigError, Refused
from parley.gateway.answered_requests import AnsweredRequests
from parley.gateway.device_leases import DeviceLeases
from parley.gateway.hub import Hub
from parley.gateway.interests import UNROUTED, HeadsWatch, InterestKeeper, NoInterest
from parley.gateway.server import CLEANUP_SECONDS_MAX, CLOSE_SECONDS_MAX
from parley.gateway.shared_rates import SharedRates
from parley.gateway.subscribers import Subscribers
from parley.gateway.tls import Certificate
from parley.ids import NODE, Ids
from parley.jobs.supervisor import RELEASE_SECONDS_MAX, Supervisor
from parley.people.social import Social
from parley.push.registrations import forget_devices
from parley.records.kinds import Kinds
from parley.sending.amended_log import amended_log
from parley.sending.message_actions import MessageActions
from parley.sending.pending import PendingSends
from parley.sending.sender import LocalSender, Sender
from parley.sending.service import SendService
from parley.store.folder import lock_folder
from parley.store.ports import Engine, Log
from parley.telemetry import Metrics
from parley.testing import faults
from parley.traces.flight_recorder import FlightRecorder
from parley.wire.limits import DRAIN_SECONDS_MAX

if TYPE_CHECKING:
    from parley.app.cluster import ClusterNode
    from parley.app.ingest import BufferedIngest
    from parley.bodies.retention import Retention
    from parley.cluster.forget_calls import PeerForgets
    from parley.cluster.routing import RoutingWorker
    from parley.files.service import FileService

HOLDER_BYTES = 8
TENURE_BYTES = 8
FINISH_SECONDS_MAX = 4.0
PART_CLOSE_SECONDS_MAX = 1.5
WITHDRAW_SECONDS_MAX = 0.5
assert (
    WITHDRAW_SECONDS_MAX
    + FINISH_SECONDS_MAX
    + CLOSE_SECONDS_MAX
    + CLEANUP_SECONDS_MAX
    + RELEASE_SECONDS_MAX
    + PART_CLOSE_SECONDS_MAX
    < DRAIN_SECONDS_MAX - 0.5
), "every step of a drain may take its longest; only services that do not answer a goodbye add to it"

NOT_ITS_OWN = NOT_FOUND.because("this server is part of another program, which ends it")

log = structlog.get_logger("parley.app")


class App:
    """`gateway` serves clients, `ingest` appends, `delivery` publishes what was left behind,
    `push` notifies the devices of people who are away, `archiver` moves old entries to the cold tier,
    `search` keeps the index behind searches."""

    def __init__(
        self,
        config: Config,
        *,
        clock: Clock = wall_clock,
        random_bits: Callable[[int], int] = secrets.randbits,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self.config = config
        self.environment = environment
        self.clock = clock
        self.metrics = metrics = Metrics(clock)
        self.ids = make_ids = Ids(random_bits)
        self.node_id = config.cluster.node or make_ids.next(NODE, clock())
        self.certificate = Certificate(config.tls) if config.tls.certificate else None
        self._keys = keys = _make_keys(config)

        # Engines: where things are kept, and what may be lost
        self.store = store = make_engine(
            config, clock=clock, ids=make_ids, metrics=metrics, environment=environment
        )
        self.kinds = kinds = Kinds(store, clock)
        self.ephemeral = ephemeral = _make_ephemeral(config, keys, clock, metrics)
        self.supervisor = self._make_supervisor()
        self._watch_engines()

        # From a commit to the clients: each part knows only those above it
        self.pending = pending = PendingSends()
        self.subscribers = subscribers = Subscribers()
        self.recorder = recorder = FlightRecorder(self.node_id, clock, subscribers.devices_of)
        self.bus_engine = _make_bus_engine(config, self.node_id, keys, store, metrics, clock, recorder)
        self.bus = bus = self.bus_engine.bus
        self.deliveries = self._make_deliveries()
        self.events = self._make_events()
        self.social = self._make_social()
        self.interest = self._make_interest()
        self.hub = self._make_hub(faults.fault_point_from(environment))

        # From a client to the log
        self.local_sender = LocalSender(
            store.log, bus, pending, metrics, store.batching, self.bus_engine.confirm
        )
        self.cluster = self._make_cluster()
        self.routing = self._make_routing()
        self.ingest = self._make_ingest()
        self.sender = self._make_sender()
        self.log_hasher = LogHasher(store.log, kinds.log_hashes, metrics)
        self.reader = ChatReader(self.log, store.directory, store.cursors, self.log_hasher, clock)
        self.accounts = self._make_accounts()
        self.identities = self._make_identities()
        self.search = self._make_search()
        self.memory = NodeMemory(store, self.hub, self.search.indexer)
        self.forgets = self._make_forgets()
        self.files = self._make_files()
        self.message_actions = self._make_message_actions()
        self.sending = self._make_sending()
        self.answered_requests = AnsweredRequests(store.records, clock, secrets.token_bytes)
        self.known_devices = KnownDevices(kinds.device_lists, store.cursors, clock)
        self.membership = Membership(store.directory, self.sender, bus, clock, make_ids)
        self.deletions = self._make_deletions()
        self.invitations = self._make_invitations()
        self.reports = self._make_reports()
        self.chat_admin = self._make_chat_admin()
        self.body_admin = self._make_body_admin()
        self.push = self._make_push()
        self.rates = SharedRates(ephemeral, clock)
        self.devices = DeviceLeases(ephemeral.registry, self.node_id, self.social.note_gone)
        self.gateway, self._view = make_gateway(self)
        self.on_drain: Callable[[], None] = not_a_process
        """What ends the process, as SIGTERM does."""
        self._lock: IO[str] | None = None
        """The folder belongs to this process, also where only its address is kept there."""

    @property
    def log(self) -> Log:
        """The log for those who read what people wrote."""
        return amended_log(self.store)

    def _make_identities(self) -> Identities:
        return Identities(
            config=self.config,
            store=self.store,
            kinds=self.kinds,
            manager=self.accounts,
            bus=self.bus,
            clock=self.clock,
            make_ids=self.ids,
        )

    def _make_invitations(self) -> InvitationService:
        kinds, signals, directory = self.kinds, self.ephemeral.signals, self.store.directory
        return InvitationService(
            self.membership, directory, kinds.invitations, kinds.relations, signals, self.clock
        )

    def _make_files(self) -> FileService | None:
        return make_files(
            engine=self.store,
            kinds=self.kinds,
            config=self.config,
            clock=self.clock,
            make_ids=self.ids,
            metrics=self.metrics,
            environment=self.environment,
            sessions=self.identities.sign_in,
        )

    def _make_deletions(self) -> AccountDeletions:
        store = self.store
        return AccountDeletions(
            admin=self.kinds.account_admin,
            directory=store.directory,
            relations=self.kinds.relations,
            invitations=self.kinds.invitations,
            membership=self.membership,
            clock=self.clock,
            forget_devices=partial(forget_devices, self.kinds.push.devices),
            forget_tokens=self.identities.api_tokens.forget_person,
            device_lists=self.kinds.device_lists,
            forget_answers=self.answered_requests.forget_person,
        )

    def _watch_engines(self) -> None:
        store, ephemeral, metrics = self.store, self.ephemeral, self.metrics
        metrics.store_available.register(lambda: store.available)
        metrics.ephemeral_available.register(lambda: ephemeral.available)
        metrics.signals_dropped.register(lambda: ephemeral.signals.dropped)

    def _make_interest(self) -> InterestKeeper | NoInterest:
        """Of a gateway whose nodes route entries to each other: what its clients hear is registered."""
        if not self.config.is_routed:
            return NoInterest(UNROUTED)
        if "gateway" not in self.config.cluster.roles:
            return NoInterest()
        return InterestKeeper(
            self.ephemeral.interests,
            self.subscribers,
            lambda: f"{self.node_id}.{secrets.token_hex(TENURE_BYTES)}",
            self.metrics,
        )

    def _make_events(self) -> EventOutbox:
        """An event that is in no log waits for a worker."""
        nudge = self.deliveries.nudge if self.deliveries is not None else nobody
        return EventOutbox(self.kinds.deliveries, self.clock, self.ids, nudge)

    def _make_social(self) -> Social:
        store, subscribers = self.store, self.subscribers
        return Social(
            log=self.log,
            directory=store.directory,
            accounts=self.kinds.accounts,
            cursors=store.cursors,
            overviews=store.overviews,
            relations=self.kinds.relations,
            member_states=store.member_states,
            ephemeral=self.ephemeral,
            audience=subscribers,
            tell_some=subscribers.tell_some,
            clock=self.clock,
            metrics=self.metrics,
            receipt_told=self.events.receipt,
        )

    def _make_hub(self, fault_point: Callable[[str], None]) -> Hub:
        return Hub(
            log=self.log,
            directory=self.store.directory,
            subscribers=self.subscribers,
            pending_sends=self.pending,
            chat_changed=self.social.chat_changed,
            metrics=self.metrics,
            fault_point=fault_point,
            recorder=self.recorder,
            interest=self.interest,
        )

    def _make_supervisor(self) -> Supervisor:
        """Servers with stores of their own may share a Redis: each has its jobs for itself."""
        holder = f"{self.node_id}.{secrets.token_hex(HOLDER_BYTES)}"
        shared = self.ephemeral if self.config.store.is_shared else LocalEphemeral(self.clock)
        return Supervisor(
            node_id=self.node_id,
            holder=holder,
            leases=shared.leases,
            records=shared.job_records,
            metrics=self.metrics,
            clock=self.clock,
        )

    def _make_deliveries(self) -> Deliveries | None:
        """None: there is no feed of all chats."""
        feed = self.bus_engine.feed
        if feed is None:
            return None
        topics = self.bus_engine.delivery_topics
        return Deliveries(
            config=self.config,
            store=self.store,
            kinds=self.kinds,
            feed=feed,
            topics=topics,
            node_id=self.node_id,
            clock=self.clock,
            make_ids=self.ids,
            metrics=self.metrics,
        )

    def _make_push(self) -> Push:
        bus = self.bus_engine
        return Push(
            config=self.config,
            store=self.store,
            kinds=self.kinds,
            registry=self.ephemeral.registry,
            feed=bus.feed,
            topics=bus.delivery_topics,
            node_id=self.node_id,
            clock=self.clock,
            metrics=self.metrics,
        )

    def _make_accounts(self) -> AccountManager:
        return AccountManager(
            accounts=self.kinds.accounts,
            sessions=self.kinds.sessions,
            cursors=self.store.cursors,
            bus=self.bus,
            clock=self.clock,
            make_ids=self.ids,
            random_bytes=secrets.token_bytes,
            password_chars_min=self.config.password_chars_min,
            changed=self.social.person_changed,
            refuses_common=self.config.refuses_common_passwords,
            events=self.events,
        )

    def _make_cluster(self) -> ClusterNode | None:
        """Only nodes that share a store can work together."""
        if not self.config.store.is_shared:
            return None
        from parley.app.cluster import ClusterNode, sequencer_routes
        from parley.cluster.traces import trace_routes

        store = self.store
        return ClusterNode(
            self.config,
            self.node_id,
            self._keys,
            clock=self.clock,
            make_ids=self.ids,
            metrics=self.metrics,
            ephemeral=self.ephemeral,
            local=self.local_sender if "ingest" in self.config.cluster.roles else None,
            pending=self.pending,
            listener=self.hub,
            hear=self.hub.persisted_elsewhere,
            is_ready=lambda: store.available,
            routes=[
                *sequencer_routes(self.config, store, self._keys, self.clock, self.metrics),
                *trace_routes(self.recorder.trace),
            ],
        )

    def _make_search(self) -> Search:
        feed = self.bus_engine.feed if self.cluster is not None else None
        return Search(
            config=self.config,
            store=self.store,
            metrics=self.metrics,
            node_id=self.node_id,
            cluster=self.cluster,
            feed=feed,
            environment=self.environment,
        )

    def _make_forgets(self) -> NodeMemory | PeerForgets:
        """Who forgets bodies that were removed: this node, or every node that shares its store."""
        if self.cluster is None:
            return self.memory
        if self.memory.archive is not None:
            self.memory.archive.may_keep = self.cluster.is_told
        return self.cluster.make_forgets(self.memory.forget)

    def _make_ingest(self) -> BufferedIngest | None:
        """Only where drafts go through a topic."""
        if self.config.bus.ingest != "bus" or self.cluster is None:
            return None
        from parley.app.ingest import BufferedIngest

        ingest = BufferedIngest(
            config=self.config,
            keys=self._keys,
            cluster=self.cluster,
            local=self.local_sender,
            engine=self.store,
            pending=self.pending,
            metrics=self.metrics,
            clock=self.clock,
        )
        self.cluster.add_routes(ingest.routes)
        return ingest

    def _make_sender(self) -> Sender:
        if self.ingest is not None:
            return self.ingest.sender
        return self.cluster.forwarder if self.cluster is not None else self.local_sender

    def _make_sending(self) -> SendService:
        attaching = None
        if self.files is not None:
            attaching = make_attaching(self.store, self.clock, self.metrics, self.environment)
        return SendService(self.sender, self.message_actions, attaching)

    def _make_reports(self) -> ReportService:
        store = self.store
        trail = AuditTrail(self.kinds.audit, self.clock, self.ids)
        return ReportService(self.kinds.reports, self.log, store.directory, trail, self.clock)

    # Life

    async def start(self) -> int:
        """Open the store, then the doors. Returns the port. Nothing is left half started."""
        try:
            return await self._start()
        except BaseException:
            await self._abandon()
            raise

    async def _start(self) -> int:
        self._lock = lock_folder(self.folder)
        await self.store.open()
        await self.search.start(self.bus)
        if self.cluster is None:
            await self.message_actions.finish_all()
        await self.bus_engine.start()
        await self._check_ephemeral()
        await self.ephemeral.start()
        self.local_sender.start()
        self.social.start()
        self.supervisor.start(self.jobs())
        self.bus.subscribe(self.hub)
        self.bus.subscribe(self.recorder)
        self.bus.subscribe(self.log_hasher)
        if self.cluster is not None:
            await self.cluster.start(self.bus, self.memory.forget_all)
        if self.ingest is not None:
            await self.ingest.start()
        if self.cluster is not None:
            await self.interest.start(self.hub.catch_up, self.cluster.has_router)
        server, tls = self.config.server, self.certificate.context if self.certificate is not None else None
        return await self.gateway.start(server.host, server.port, tls)

    def jobs(self) -> list[Job]:
        """The background jobs of a node with these roles."""
        jobs = [sealing(self.store.log, self.bus.publish), self.gateway.job, self._view.job]
        jobs += [self.log_hasher.job, *self.search.jobs]
        jobs += [*self.store.jobs(self.hub), *self.bus_engine.jobs()]
        if self.config.store.is_shared:
            jobs.append(HeadsWatch(self.hub, lambda: self.interest.doubt).job)
        if self.routing is not None:
            jobs += self.routing.jobs
        if self.ingest is not None:
            jobs += self.ingest.jobs()
        if not {"gateway", "delivery"}.isdisjoint(self.config.cluster.roles):
            jobs += [self.deletions.job, self.message_actions.job]
            if self.files is not None:
                jobs.append(self.files.removal.job)
        if "delivery" in self.config.cluster.roles:
            jobs += [
                expired_sessions(self.kinds.sessions, self.store.records, self.clock),
                self.answered_requests.job,
            ]
            if self.deliveries is not None:
                jobs += self.deliveries.jobs
        if "push" in self.config.cluster.roles:
            jobs += self.push.jobs
        if "archiver" in self.config.cluster.roles:
            jobs += [self.body_admin.job, *self._archive_jobs()]
        if self.certificate is not None:
            jobs.append(self.certificate.job)
        return jobs

    def _make_chat_admin(self) -> ChatAdmin:
        store = self.store
        return ChatAdmin(
            membership=self.membership,
            invitations=self.invitations,
            directory=store.directory,
            accounts=self.kinds.accounts,
            waiting=self.kinds.invitations,
            actions=self.message_actions,
            random_bytes=secrets.token_bytes,
        )

    def _make_body_admin(self) -> BodyAdmin:
        def retention() -> Retention:
            from parley.app.archive import make_retention

            return make_retention(
                self.store, self.config, self.clock, self.metrics, self.environment, self.forgets.compare
            )

        store = self.store
        return BodyAdmin(
            make_retention=retention,
            directory=store.directory,
            retentions=self.kinds.retentions,
            erasures=self.kinds.erasures,
            reports=self.kinds.erasure_reports,
            clock=self.clock,
            forget_cursors=store.member_states.forget_cursors,
            empty_chat=self.chat_admin.empty,
            forget_devices=partial(forget_devices, self.kinds.push.devices),
            forget_reasons=self.reports.forget_reasons,
            fault_point=faults.fault_point_from(self.environment),
        )

    def _make_message_actions(self) -> MessageActions:
        from parley.app.archive import make_entry_writer

        return MessageActions(
            log=self.store.log,
            directory=self.store.directory,
            sender=self.sender,
            amendments=self.kinds.amendments,
            settings=self.kinds.chat_settings,
            bodies=make_entry_writer(self.store, self.config, self.clock, self.metrics, self.environment),
            clock=self.clock,
            window_seconds=self.config.messages.edit_window_seconds,
            forget=self.forgets.forget,
            fault_point=faults.fault_point_from(self.environment),
        )

    def _archive_jobs(self) -> list[Job]:
        if not self.config.archive.target and not self.config.retention.is_automatic:
            return []
        from parley.app.archive import archive_jobs

        trail = AuditTrail(self.kinds.audit, self.clock, self.ids)
        return archive_jobs(
            self.store, self.config, self.clock, self.metrics, self.environment, trail, self.forgets.compare
        )

    def _make_routing(self) -> RoutingWorker | None:
        """None: the nodes of this configuration cannot route entries to each other."""
        if not self.config.is_routed or self.cluster is None:
            return None
        from parley.app.kafka import KafkaBusEngine
        from parley.cluster.routing import RoutingWorker

        bus, roles, router = self.bus_engine, self.config.cluster.roles, None
        assert isinstance(bus, KafkaBusEngine)
        if "delivery" in roles:
            deliver = self.hub.persisted_elsewhere if "gateway" in roles else None
            router = self.cluster.make_router(
                self.node_id, self.ephemeral.interests, self.store.directory, deliver, self.metrics
            )
        return RoutingWorker(
            bus.feed,
            self.ephemeral.interests,
            self.clock,
            router=router,
            stalled_seconds=bus.publisher.stalled_seconds,
            is_cut_off=self.cluster.is_cut_off,
        )

    async def _check_ephemeral(self) -> None:
        """A Redis that is away may come back; one that can never be used is reported now."""
        if not self.config.redis.url:
            return
        from parley.ephemeral.redis.check import check_redis, is_away

        try:
            await check_redis(self.config.redis.url)
        except ConfigError as error:
            if not is_away(error):
                raise
            log.warning("starting without Redis", reason=str(error))

    async def _abandon(self) -> None:
        leave = [self.cluster.withdraw, self.cluster.stop] if self.cluster is not None else []
        leave += [self.ingest.stop] if self.ingest is not None else []
        for part in (
            *leave,
            self.supervisor.stop,
            self.search.close,
            self._close_routing,
            self.bus_engine.stop,
            self.ephemeral.close,
            self.kinds.close,
            self.store.close,
        ):
            with contextlib.suppress(Exception):  # the first failure is the one to tell of
                await part()
        self.accounts.close()
        self._unlock()

    async def stop(self) -> None:
        """Take nothing new, finish what was taken, tell everybody to come back."""
        if self.cluster is not None:
            await _within(WITHDRAW_SECONDS_MAX, self.cluster.withdraw())
        await self.gateway.stop_accepting()
        if self.files is not None:
            self.files.close()
        await _within(FINISH_SECONDS_MAX, self._finish())
        await self.gateway.close()
        await self.supervisor.stop()
        await self._close_routing()
        await self.social.close()
        await self.events.close()
        await self.hub.close()
        self.accounts.close()
        await self._close()
        self._unlock()

    def reload(self) -> None:
        """Take what the files of the certificate hold now."""
        if self.certificate is not None:
            self.certificate.reload()

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()

    async def _finish(self) -> None:
        """What was taken to forward may still come back to be appended here."""
        leaving = asyncio.ensure_future(self.routing.leave()) if self.routing is not None else None
        if self.ingest is not None:
            await self.ingest.sender.stop()
        if self.cluster is not None:
            await self.cluster.forwarder.stop()
        await self.local_sender.stop()
        if leaving is not None:
            await leaving

    async def _close_routing(self) -> None:
        if self.routing is not None:
            await self.routing.close()
        await self.interest.close()

    async def _close(self) -> None:
        """A part that takes too long is left; the others are closed all the same."""
        parts = [
            self.known_devices.close,
            self.identities.close,
            self.search.close,
            self.push.close,
            self.bus_engine.stop,
            self.ephemeral.close,
            self.kinds.close,
            self.store.close,
        ]
        if self.deliveries is not None:
            parts.insert(0, self.deliveries.close)
        if self.cluster is not None:
            parts.insert(0, self.cluster.stop)
        if self.ingest is not None:
            parts.insert(0, self.ingest.stop)
        for close in parts:
            await _within(PART_CLOSE_SECONDS_MAX, close())

    @property
    def folder(self) -> Path:
        return Path(self.config.server.data)


def not_a_process() -> None:
    """Of an app that somebody else starts and stops."""
    raise Refused(NOT_ITS_OWN)


# Engines that the configuration does not name are not even imported


def _make_keys(config: Config) -> ClusterKeys:
    """On a store that no other node shares, a node trusts only itself."""
    if not config.store.is_shared:
        return ClusterKeys(secrets.token_hex(KEY_BYTES))
    from parley.cluster.trust import cluster_keys

    return cluster_keys(config.cluster, config.cluster.host)


def _make_ephemeral(config: Config, keys: ClusterKeys, clock: Clock, metrics: Metrics) -> Ephemeral:
    if not config.redis.url:
        return LocalEphemeral(clock)
    from parley.ephemeral.redis.engine import RedisEphemeral

    return RedisEphemeral(
        config.redis.url,
        keys,
        clock,
        prefix=config.redis.prefix,
        passed_over=lambda what: metrics.unproven.labels(what).inc(),
    )


def _make_bus_engine(
    config: Config,
    node_id: str,
    keys: ClusterKeys,
    store: Engine,
    metrics: Metrics,
    clock: Clock,
    recorder: FlightRecorder,
) -> BusEngine:
    if not config.kafka.brokers:
        return EmbeddedBusEngine(store.feed)
    from parley.app.kafka import KafkaBusEngine

    return KafkaBusEngine(
        config=config,
        node_id=node_id,
        keys=keys,
        engine=store,
        metrics=metrics,
        clock=clock,
        recorder=recorder,
    )


async def _within(seconds: float, work: Awaitable[None]) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await work
