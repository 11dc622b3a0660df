"""The gateway of a node: the use cases behind the HTTP API, and what every connection works with."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from typing import TYPE_CHECKING

from parley.accounts.links import LinkService
from parley.accounts.user_admin import UserAdmin
from parley.app.backups import configured_backups
from parley.app.deliveries import make_delivery_admin
from parley.app.engines import make_engine
from parley.app.timeline import make_timeline
from parley.chats.operated_chats import OperatedChats
from parley.core.rates import FRAMES_PER_CONNECTION, RateLimiter
from parley.gateway.chat_check import ChatChecker
from parley.gateway.chat_finder import ChatFinder
from parley.gateway.client_ids import ClientIds, ServerSecret
from parley.gateway.connection import Connection
from parley.gateway.engine_beside import EngineBeside
from parley.gateway.operated_nodes import NoOtherNodes, OperatedNodes
from parley.gateway.operated_people import OperatedPeople
from parley.gateway.operator_view import OperatorView
from parley.gateway.outbox import Flusher
from parley.gateway.repeated_requests import RepeatedRequests
from parley.gateway.server import Gateway
from parley.gateway.services import ApiServices, ConnectionServices
from parley.gateway.socket_groups import SocketGroups
from parley.gateway.turns import LoopTurns
from parley.push.fanout_admin import FanoutAdmin
from parley.search.service import SearchService
from parley.store.ports import Engine
from parley.telemetry import Metrics
from parley.traces.timeline import LocalTraces, TraceSource

if TYPE_CHECKING:
    from parley.app.node import App


def make_gateway(app: App) -> tuple[Gateway, OperatorView]:
    """The gateway, and what it shows operators of the node."""
    connections: set[Connection] = set()
    view = _make_operator_view(app, connections)
    gateway = Gateway(
        app.config,
        api=_make_api(app, view),
        live=_make_live(app),
        devices=app.devices,
        rates=app.rates,
        is_ready=lambda: app.store.available,
        clock=app.clock,
        metrics=app.metrics,
        make_ids=app.ids,
        connections=connections,
    )
    return gateway, view


def _make_api(app: App, view: OperatorView) -> ApiServices:
    store, kinds, social, user_admin = app.store, app.kinds, app.social, _make_user_admin(app)
    secret = ServerSecret(kinds.server_keys, app.clock, secrets.token_bytes)
    beside = EngineBeside(lambda: _make_engine_beside(app))
    return ApiServices(
        config=app.config,
        clock=app.clock,
        random_bytes=secrets.token_bytes,
        accounts=app.accounts,
        sign_in=app.identities.sign_in,
        pages=app.identities.pages,
        api_tokens=app.identities.api_tokens,
        external_people=app.identities.external_people,
        user_admin=user_admin,
        chat_admin=app.chat_admin,
        deliveries=make_delivery_admin(app.config, store, kinds, user_admin.audited, app.clock, app.ids),
        push=app.push.registrations,
        fanouts=FanoutAdmin(store.directory, kinds.push.fanouts, app.push.sizes, user_admin.audited),
        operated_chats=_make_operated_chats(app, beside),
        operated_people=OperatedPeople(
            accounts=kinds.accounts,
            sessions=kinds.sessions,
            directory=store.directory,
            member_states=store.member_states,
            log=app.log,
            device_lists=kinds.device_lists,
            push=app.push.registrations,
        ),
        chat_finder=ChatFinder(beside, store.directory, app.clock),
        beside=beside,
        membership=app.membership,
        invitations=app.invitations,
        sending=app.sending,
        repeated=RepeatedRequests(app.answered_requests, secret),
        client_ids=ClientIds(secret, store.log, app.clock),
        reader=app.reader,
        message_actions=app.message_actions,
        search=SearchService(app.search.searches, store.directory, kinds.relations),
        presence=social.presence,
        receipts=social.receipts,
        contacts=social.contacts,
        chat_list=social.chat_list,
        rates=app.rates,
        operator_view=view,
        nodes=_make_nodes(app, view),
        timeline=make_timeline(app.config, store, kinds, _traces(app), app.clock),
        body_admin=app.body_admin,
        backups=lambda: configured_backups(app.config, app.environment),
        check_chat=ChatChecker(lambda: _make_engine_beside(app)).check,
        links=LinkService(kinds.links, app.accounts, user_admin, app.clock, app.ids, secrets.token_bytes),
        reports=app.reports,
        files=app.files,
    )


def _make_operated_chats(app: App, beside: EngineBeside) -> OperatedChats:
    async def counter_of(chat_id: str) -> int | None:
        return (await beside.ask(lambda engine: engine.repairs.remains(chat_id))).counter

    store = app.store
    return OperatedChats(
        log=app.log,
        directory=store.directory,
        member_states=store.member_states,
        relations=app.kinds.relations,
        cursors=store.cursors,
        device_lists=app.kinds.device_lists,
        retentions=app.kinds.retentions,
        hasher=app.log_hasher,
        counter_of=counter_of,
    )


def _make_live(app: App) -> ConnectionServices:
    social = app.social
    return ConnectionServices(
        clock=app.clock,
        metrics=app.metrics,
        sign_in=app.identities.sign_in,
        sending=app.sending,
        reader=app.reader,
        hub=app.hub,
        devices=app.devices,
        known_devices=app.known_devices,
        presence=social.presence,
        typing=social.typing,
        chat_list=social.chat_list,
        arrived=social.note_arrival,
        message_rate=app.rates.messages,
        frame_rate=RateLimiter(FRAMES_PER_CONNECTION),
        work_rate=app.rates.work,
        flusher=Flusher(),
        turns=LoopTurns(app.metrics.turn_waits),
        users=SocketGroups(),
        connections_per_user=app.config.limits.connections_per_user,
    )


def _make_user_admin(app: App) -> UserAdmin:
    return UserAdmin(
        manager=app.accounts,
        accounts=app.kinds.accounts,
        admin=app.kinds.account_admin,
        audit=app.kinds.audit,
        deletions=app.deletions,
        close_tokens=app.identities.api_tokens.close_sockets,
        clock=app.clock,
        make_ids=app.ids,
        changed=app.social.person_changed,
    )


def _make_operator_view(app: App, connections: Collection[Connection]) -> OperatorView:
    return OperatorView(
        app.node_id,
        app.config.cluster.roles,
        supervisor=app.supervisor,
        ephemeral=app.ephemeral,
        admin=app.kinds.account_admin,
        topics=app.bus_engine.topics,
        connections=connections,
        store_available=lambda: app.store.available,
        drain=lambda: app.on_drain(),
        webhooks_reached=lambda: app.deliveries.arrived_ms if app.deliveries is not None else {},
        metrics=app.metrics,
        clock=app.clock,
    )


def _make_nodes(app: App, view: OperatorView) -> OperatedNodes:
    """This node, and the others by it."""
    if app.cluster is None:
        return OperatedNodes(view, NoOtherNodes())
    nodes = OperatedNodes(view, app.cluster.operations)
    app.cluster.answer_operators(nodes.answer)
    return nodes


def _make_engine_beside(app: App) -> Engine:
    return make_engine(
        app.config,
        clock=app.clock,
        ids=app.ids,
        metrics=Metrics(app.clock),
        environment=app.environment,
        beside=True,
    )


def _traces(app: App) -> list[TraceSource]:
    """What this node remembers, and what the others do."""
    local = LocalTraces(app.recorder.trace)
    return [local] if app.cluster is None else [local, app.cluster.traces]
