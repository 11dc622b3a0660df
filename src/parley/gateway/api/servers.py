"""What operators see of the servers themselves. All of it needs an operator's token."""

from __future__ import annotations

from parley import __version__
from parley.clock import iso
from parley.core.jobs import JobRecord
from parley.ephemeral.ports import Node
from parley.errors import FORBIDDEN
from parley.gateway.calls import Call
from parley.gateway.routes import Answer, Routes
from parley.wire import bodies

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
    view = call.services.operator_view
    jobs, nodes, counts = await view.jobs(), await view.nodes(), await view.counts()
    now_ms = view.clock()
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
    return 200, bodies.JobList([_job(record, now_ms) for record in await view.jobs()])


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


def _job(record: JobRecord, now_ms: int) -> bodies.JobInfo:
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
