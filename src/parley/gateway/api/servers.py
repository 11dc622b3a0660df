"""What operators see of the servers themselves. All of it needs an operator's token."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from parley import __version__
from parley.clock import iso
from parley.core.jobs import EndedRun, JobRecord
from parley.ephemeral.ports import Node
from parley.errors import BAD_REQUEST, FORBIDDEN, NOT_FOUND, Refused, StoreError
from parley.gateway import fields
from parley.gateway.calls import Call
from parley.gateway.known_operators import STORE_SECONDS_MAX
from parley.gateway.routes import Answer, Parameter, Routes, limit_parameter
from parley.gateway.series import STEP_SECONDS
from parley.wire import bodies, codes, limits, operator_bodies

if TYPE_CHECKING:
    from parley.gateway.connection import Connection

CONNECTIONS = "/v1/admin/connections"
NODES = "/v1/admin/nodes"
NOT_THIS_NODE = NOT_FOUND.because("this is another node: ask it at its own address")
SERIES_SECONDS_MAX = 3_600
NO_SUCH_CONNECTION = NOT_FOUND.because("this node has no such connection")

routes = Routes("Operators")


@routes.route(
    "GET",
    "/v1/admin/overview",
    "What a console shows first",
    {200: bodies.ServerOverview},
    refusals=(FORBIDDEN,),
    needs="operator",
    without_store=True,
)
async def show_overview(call: Call) -> Answer:
    """Connections, messages per second, lag and availability are those of the node that answers. People and
    chats are those of the store; on DynamoDB they may be some hours old. It also answers while the store does
    not, to a token that the store has confirmed within the last 15 minutes: people and chats are the last
    known ones then. `store_available` is also false while writes meet damage.
    """
    services, view = call.services, call.services.operator_view
    jobs, nodes, counts = await view.jobs(), await view.nodes(), await view.counts()
    now_ms = view.clock()
    reports = await while_there(services.reports.open_count)
    dead_letters = await while_there(services.deliveries.pending_count)
    return 200, bodies.ServerOverview(
        node_id=view.node_id,
        version=__version__,
        people=counts.people,
        chats=counts.chats,
        connections=len(view.connections),
        nodes=len(nodes),
        messages_per_second=round(view.rate.per_second, 3),
        lag=view.lag,
        jobs_failing=sum(job.is_failing for job in jobs),
        jobs_overdue=sum(job.is_overdue(now_ms) for job in jobs),
        store_available=view.store_available(),
        ephemeral_available=view.ephemeral_available,
        bus_available=view.bus_available,
        open_reports=reports,
        dead_letters=dead_letters,
    )


@routes.route(
    "GET",
    "/v1/admin/jobs",
    "Background jobs: last run, outcome, next run",
    {200: bodies.JobList},
    refusals=(FORBIDDEN,),
    needs="operator",
)
async def list_jobs(call: Call) -> Answer:
    """By name. A job of scope `node` has an entry for each node, a job of scope `cluster` one: that of the
    node that runs it. What other nodes say is some seconds old; while Redis is away only this node's jobs are
    listed.
    """
    view = call.services.operator_view
    now_ms = view.clock()
    return 200, bodies.JobList(
        [
            _job(record, now_ms, view.last_runs(record.name) if record.node_id == view.node_id else [])
            for record in await view.jobs()
        ]
    )


@routes.route(
    "GET",
    "/v1/admin/nodes",
    "The nodes that are alive",
    {200: bodies.NodeList},
    refusals=(FORBIDDEN,),
    needs="operator",
)
async def list_nodes(call: Call) -> Answer:
    """By id. A node that died is listed until its lease has run out, some seconds later."""
    view = call.services.operator_view
    return 200, bodies.NodeList([_node(node, view.node_id) for node in await view.nodes()])


@routes.route(
    "POST",
    f"{NODES}/{{node_id}}/drain",
    "Drain a node",
    {202: operator_bodies.NodeDrained},
    path_parameters=(Parameter("node_id", str, "The node that answers.", "node-1", is_required=True),),
    refusals=(FORBIDDEN, NOT_FOUND),
    needs="operator",
)
async def drain_node(call: Call) -> Answer:
    """As SIGTERM does: it takes nothing new, finishes what it took, tells its clients to come back, and ends.
    Whatever runs it starts it again, or does not. Only the node that answers: ask another one at its own
    address.
    """
    view, node_id = call.services.operator_view, call.path("node_id")
    async with call.services.user_admin.audited(call.acting, "node.drain", node_id):
        if node_id != view.node_id:
            raise Refused(NOT_THIS_NODE)
        view.drain()
    return 202, operator_bodies.NodeDrained(node_id)


@routes.route(
    "GET",
    "/v1/admin/topics",
    "Topics, and how far their consumers are",
    {200: bodies.TopicList},
    refusals=(FORBIDDEN,),
    needs="operator",
)
async def list_topics(call: Call) -> Answer:
    """The topics of Kafka with each group of consumers that has stored an offset. On one machine: the log of
    all chats, which is the topic there.
    """
    states = await call.services.operator_view.topics()
    return 200, bodies.TopicList(
        [
            bodies.TopicInfo(
                name=state.name,
                partitions=state.partitions,
                groups=[bodies.GroupLag(group, lag) for group, lag in sorted(state.groups.items())],
            )
            for state in states
        ]
    )


@routes.route(
    "GET",
    "/v1/admin/series",
    "The last hour of a few numbers",
    {200: operator_bodies.Series},
    query=(
        Parameter("names", list[str], "Which, separated by commas; all without it.", ["connections"]),
        Parameter("seconds", int, "How far back: up to 3,600, which is the default.", 60),
    ),
    refusals=(FORBIDDEN,),
    needs="operator",
    without_store=True,
)
async def show_series(call: Call) -> Answer:
    """Of the node that answers, each 5 seconds, since its start. They are in its memory alone."""
    view = call.services.operator_view
    names = [name for name in call.text("names").split(",") if name] or view.series.names
    if unknown := sorted(set(names) - set(view.series.names)):
        raise Refused(BAD_REQUEST.because(f"there is no {unknown[0][:64]}; choose of {view.series.names}"))
    seconds = call.number("seconds", SERIES_SECONDS_MAX)
    return 200, operator_bodies.Series(
        view.node_id,
        iso(view.clock()),
        STEP_SECONDS,
        {name: view.series.last(name, min(seconds, SERIES_SECONDS_MAX)) for name in names},
    )


@routes.route(
    "GET",
    CONNECTIONS,
    "The connections of a node",
    {200: operator_bodies.ConnectionList},
    query=(
        Parameter("user_id", str, "Only of this person.", fields.OTHER_ID),
        Parameter("after", str, "The `next` of the page before; the first ones without it."),
        limit_parameter(limits.PAGE_ENTRIES_DEFAULT, limits.PAGE_ENTRIES_MAX),
    ),
    refusals=(FORBIDDEN,),
    needs="operator",
)
async def list_connections(call: Call) -> Answer:
    """Of the node that answers, by their ids."""
    limit = call.limit(limits.PAGE_ENTRIES_DEFAULT, limits.PAGE_ENTRIES_MAX)
    view, after, user_id = call.services.operator_view, call.text("after"), call.text("user_id")
    found = {_id_of(one): one for one in view.connections if one.user_id}
    wanted = [name for name, one in found.items() if name > after and user_id in ("", one.user_id)]
    some = heapq.nsmallest(limit + 1, wanted)
    shown = [_connection(name, found[name]) for name in some[:limit]]
    following = some[limit - 1] if len(some) > limit else None
    return 200, operator_bodies.ConnectionList(view.node_id, shown, following)


@routes.route(
    "DELETE",
    f"{CONNECTIONS}/{{connection_id}}",
    "Close a connection",
    {204: None},
    path_parameters=(
        Parameter("connection_id", str, "The connection.", f"{fields.SESSION_ID}.7f0a", is_required=True),
    ),
    refusals=(FORBIDDEN, NOT_FOUND),
    needs="operator",
)
async def close_connection(call: Call) -> Answer:
    """Of the node that answers. The client comes back and goes on where it was: to keep it out, revoke the
    session.
    """
    view, connection_id = call.services.operator_view, call.path("connection_id")
    async with call.services.user_admin.audited(call.acting, "connection.close", connection_id):
        found = next((one for one in view.connections if _id_of(one) == connection_id), None)
        if found is None:
            raise Refused(NO_SUCH_CONNECTION)
        found.close(codes.GOING_AWAY)
    return 204, None


def _id_of(one: Connection) -> str:
    """Nobody but the server chooses it, and no two that are open have the same."""
    return f"{one.session_id}.{id(one):x}"


def _connection(name: str, one: Connection) -> operator_bodies.ConnectionInfo:
    return operator_bodies.ConnectionInfo(
        connection_id=name,
        user_id=one.user_id,
        device_id=one.device_id,
        session_id=one.session_id,
        codec="msgpack" if one.codec.binary else "json",
        live=one.live,
        chats=len(one.chats),
        heard_from_at=iso(one.heard_from_ms),
        waiting_bytes=one.waiting_bytes,
    )


async def while_there(count: Callable[[], Awaitable[int]]) -> int | None:
    """What the store counts; None while it does not answer."""
    try:
        async with asyncio.timeout(STORE_SECONDS_MAX):
            return await count()
    except (StoreError, TimeoutError):
        return None


def _job(record: JobRecord, now_ms: int, last_runs: list[EndedRun]) -> bodies.JobInfo:
    return bodies.JobInfo(
        name=record.name,
        scope=record.scope,
        node=record.node_id,
        interval_seconds=record.interval_seconds,
        last_started_at=_time(record.last_started_ms),
        last_finished_at=_time(record.last_finished_ms),
        last_outcome=record.last_outcome,
        last_error=record.last_error,
        next_run_at=_time(record.next_run_ms),
        runs=record.runs,
        failures=record.failures,
        is_overdue=record.is_overdue(now_ms),
        last_runs=[
            bodies.JobRun(_time(run.started_ms), iso(run.finished_ms), run.outcome, run.error)
            for run in last_runs
        ],
    )


def _node(node: Node, self_id: str) -> bodies.NodeInfo:
    return bodies.NodeInfo(
        node_id=node.node_id,
        url=node.url or None,
        roles=list(node.roles),
        since=_time(node.since_ms or None),
        is_self=node.node_id == self_id,
        version=node.version or None,
    )


def _time(at_ms: int | None) -> str | None:
    return None if at_ms is None else iso(at_ms)
