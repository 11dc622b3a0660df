"""What operators see of the servers themselves. All of it needs an operator's token."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from parley import __version__
from parley.clock import iso
from parley.core.jobs import JobRecord
from parley.core.node_questions import (
    CloseOrder,
    ConnectionsQuestion,
    DrainOrder,
    RunOrder,
    RunsQuestion,
    SeriesQuestion,
    StateQuestion,
)
from parley.ephemeral.ports import Node
from parley.errors import BUSY, FORBIDDEN, NODE_SILENT, NOT_FOUND, Refused, StoreError
from parley.gateway import fields
from parley.gateway.calls import Call
from parley.gateway.known_operators import STORE_SECONDS_MAX
from parley.gateway.routes import Answer, Parameter, Routes, limit_parameter
from parley.wire import bodies, limits, operator_bodies
from parley.wire.operator_bodies import JobRuns

CONNECTIONS = "/v1/admin/connections"
NODES = "/v1/admin/nodes"
SERIES_SECONDS_MAX = 3_600
NODE = Parameter("node", str, "Which node; the one that answers without it.")

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
    listed. `last_runs` is empty where the node does not answer.
    """
    view = call.services.operator_view
    now_ms, records = view.clock(), await view.jobs()
    said = await call.services.nodes.ask_all(RunsQuestion(), JobRuns)
    runs = {node_id: found.runs for node_id, found in said.items() if isinstance(found, JobRuns)}
    return 200, bodies.JobList(
        [_job(record, now_ms, runs.get(record.node_id, {}).get(record.name, [])) for record in records]
    )


@routes.route(
    "POST",
    "/v1/admin/jobs/{job}/run",
    "Run a background job now",
    {202: operator_bodies.JobWanted},
    path_parameters=(Parameter("job", str, "The job.", "log_hashes", is_required=True),),
    query=(NODE,),
    refusals=(FORBIDDEN, NOT_FOUND, NODE_SILENT, BUSY),
    needs="operator",
)
async def run_job(call: Call) -> Answer:
    """Not later, when it is due. A job of the cluster runs on the node that has it, a job of a node on the
    node that is named; jobs that run all the time are refused as `bad_request`.
    """
    view, name, node_id = call.services.operator_view, call.path("job"), call.text("node")
    async with call.services.user_admin.audited(call.acting, "job.run", name, node_id):
        if not node_id:
            having = {record.node_id for record in await view.jobs() if record.name == name}
            node_id = view.node_id if view.node_id in having or not having else min(having)
        await call.services.nodes.order(node_id, RunOrder(name))
    return 202, operator_bodies.JobWanted(name, node_id)


@routes.route(
    "GET",
    "/v1/admin/nodes",
    "The nodes that are alive, and how each is",
    {200: operator_bodies.NodeList},
    refusals=(FORBIDDEN,),
    needs="operator",
)
async def list_nodes(call: Call) -> Answer:
    """By id. A node that died is listed until its lease has run out, some seconds later. Each is asked, for
    2 seconds at most; one that does not say is `silent`.
    """
    view = call.services.operator_view
    began_ms, listed = view.clock(), await view.nodes()
    said = await call.services.nodes.ask_all(StateQuestion(), operator_bodies.NodeState)
    half_ms = (view.clock() - began_ms) // 2
    return 200, operator_bodies.NodeList(
        [_node(node, view.node_id, said.get(node.node_id), began_ms + half_ms) for node in listed]
    )


@routes.route(
    "POST",
    f"{NODES}/{{node_id}}/drain",
    "Drain a node",
    {202: operator_bodies.NodeDrained},
    path_parameters=(Parameter("node_id", str, "The node.", "node-1", is_required=True),),
    refusals=(FORBIDDEN, NOT_FOUND, NODE_SILENT),
    needs="operator",
)
async def drain_node(call: Call) -> Answer:
    """As SIGTERM does: it takes nothing new, finishes what it took, tells its clients to come back, and ends.
    Whatever runs it starts it again, or does not. Any node: the one that answers tells it.
    """
    node_id = call.path("node_id")
    async with call.services.user_admin.audited(call.acting, "node.drain", node_id):
        await call.services.nodes.order(node_id, DrainOrder())
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
        NODE,
    ),
    refusals=(FORBIDDEN, NOT_FOUND, NODE_SILENT),
    needs="operator",
    without_store=True,
)
async def show_series(call: Call) -> Answer:
    """Of one node, each 5 seconds, since its start. They are in its memory alone."""
    seconds = min(call.number("seconds", SERIES_SECONDS_MAX), SERIES_SECONDS_MAX)
    question = SeriesQuestion(call.listed("names"), seconds)
    return 200, await call.services.nodes.ask(call.text("node"), question, operator_bodies.Series)


@routes.route(
    "GET",
    CONNECTIONS,
    "The connections of a node",
    {200: operator_bodies.ConnectionList},
    query=(
        Parameter("user_id", str, "Only of this person.", fields.OTHER_ID),
        Parameter("after", str, "The `next` of the page before; the first ones without it."),
        limit_parameter(limits.PAGE_ENTRIES_DEFAULT, limits.PAGE_ENTRIES_MAX),
        NODE,
    ),
    refusals=(FORBIDDEN, NOT_FOUND, NODE_SILENT),
    needs="operator",
)
async def list_connections(call: Call) -> Answer:
    """Of one node, by their ids."""
    limit = call.limit(limits.PAGE_ENTRIES_DEFAULT, limits.PAGE_ENTRIES_MAX)
    question = ConnectionsQuestion(call.text("user_id"), call.text("after"), limit)
    return 200, await call.services.nodes.ask(call.text("node"), question, operator_bodies.ConnectionList)


@routes.route(
    "DELETE",
    f"{CONNECTIONS}/{{connection_id}}",
    "Close a connection",
    {204: None},
    path_parameters=(
        Parameter("connection_id", str, "The connection.", f"{fields.SESSION_ID}.7f0a", is_required=True),
    ),
    query=(NODE,),
    refusals=(FORBIDDEN, NOT_FOUND, NODE_SILENT),
    needs="operator",
)
async def close_connection(call: Call) -> Answer:
    """The client comes back and goes on where it was: to keep it out, revoke the session."""
    node_id, connection_id = call.text("node"), call.path("connection_id")
    async with call.services.user_admin.audited(call.acting, "connection.close", connection_id, node_id):
        await call.services.nodes.order(node_id, CloseOrder(connection_id))
    return 204, None


@routes.route(
    "GET",
    "/v1/admin/backups",
    "The backups of this server",
    {200: operator_bodies.BackupList},
    refusals=(FORBIDDEN,),
    needs="operator",
)
async def list_backups(call: Call) -> Answer:
    """Those at `backup.target`, as their manifests say; `parley backup` makes them. `damaged` says which
    could not be read. Shared stores have backups of their own, which are not here.
    """
    found, target = await call.services.backups(), call.services.config.backup.target
    return 200, operator_bodies.BackupList(
        target or None,
        [
            operator_bodies.BackupInfo(
                backup_id=one.backup_id,
                made_at=one.made_at,
                version=one.parley,
                chats=one.chats,
                people=one.people,
                entries=one.entries,
                files=one.file_count,
                files_lacking=one.files_lacking,
                size_bytes=one.size_bytes,
                based_on=one.based_on or None,
            )
            for one in reversed(found.backups)
        ],
        found.damaged,
    )


async def while_there(count: Callable[[], Awaitable[int]]) -> int | None:
    """What the store counts; None while it does not answer."""
    try:
        async with asyncio.timeout(STORE_SECONDS_MAX):
            return await count()
    except (StoreError, TimeoutError):
        return None


def _job(record: JobRecord, now_ms: int, last_runs: list[bodies.JobRun]) -> bodies.JobInfo:
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
        last_runs=last_runs,
    )


def _node(
    node: Node, self_id: str, said: operator_bodies.NodeState | Refused | None, asked_ms: int
) -> operator_bodies.NodeInfo:
    info = operator_bodies.NodeInfo(
        node_id=node.node_id,
        url=node.url or None,
        roles=list(node.roles),
        since=_time(node.since_ms or None),
        is_self=node.node_id == self_id,
        version=node.version or None,
    )
    if not isinstance(said, operator_bodies.NodeState):
        info.silent = said.refusal.reason if said is not None else "it has come or gone while it was asked"
        return info
    info.connections, info.memory_bytes = said.connections, said.memory_bytes
    info.loop_delay_ms, info.draining = said.loop_delay_ms, said.draining
    info.store_available, info.lag = said.store_available, said.lag
    info.clock_offset_ms = 0 if info.is_self else said.now_ms - asked_ms
    return info


def _time(at_ms: int | None) -> str | None:
    return None if at_ms is None else iso(at_ms)
