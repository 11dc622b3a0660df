"""Real nodes for tests: where their services are, and what can be seen of them from outside.

    with nodes_on_shared_services(folder, ["n1", "n2"]) as cluster:
        ...cluster["n1"].url...

Tables and topics have a fresh prefix on the services that all tests share. Redis is the cluster's own: it is
where nodes find each other, and those of another test must not be found.
"""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from aiohttp import ClientSession

from ops.local_services.ports import free_ports
from parley.clock import wall_clock
from parley.ephemeral.redis.engine import RedisEphemeral
from parley.testing.clients import HttpClient
from parley.testing.cluster import ClusterProcess
from parley.testing.server import ServerProcess
from tests.services import OwnServices, fresh_prefix, service_environment
from tests.waiting import eventually

ATOMIC = {"PARLEY_STORE_SEQUENCING": "atomic"}
TWO_PHASE = {"PARLEY_STORE_SEQUENCING": "two_phase"}
MODES = {
    "atomic": ATOMIC,
    "dynamodb": {**TWO_PHASE, "PARLEY_STORE_ALLOCATOR": "dynamodb"},
    "redis": {**TWO_PHASE, "PARLEY_STORE_ALLOCATOR": "redis"},
}
"""Atomic, and two_phase by who gives the numbers."""
ACQUAINTED_SECONDS_MAX = 20.0


def own_names() -> dict[str, str]:
    """Tables and topics of one cluster alone."""
    prefix = fresh_prefix()
    return {"PARLEY_DYNAMODB_PREFIX": prefix, "PARLEY_KAFKA_PREFIX": prefix}


@contextmanager
def shared_environment(folder: Path) -> Iterator[dict[str, str]]:
    """What nodes need to find the shared DynamoDB and Kafka, and a Redis of their own."""
    shared = {**service_environment("dynamodb"), **service_environment("kafka")}
    with OwnServices(folder / "redis") as own:
        own.up("redis")
        yield {**shared, **own.environment("redis"), **own_names()}


@contextmanager
def nodes_on_shared_services(
    folder: Path,
    names: Sequence[str],
    settings: Mapping[str, str],
    settings_of: Mapping[str, Mapping[str, str]] | None = None,
) -> Iterator[ClusterProcess]:
    """`settings_of`: what one node has beside the others, by its name."""
    with (
        shared_environment(folder) as environment,
        cluster_of(folder, {**environment, **settings}, names, settings_of) as cluster,
    ):
        yield cluster


def cluster_of(
    folder: Path,
    environment: Mapping[str, str],
    names: Sequence[str],
    settings_of: Mapping[str, Mapping[str, str]] | None = None,
) -> ClusterProcess:
    """Nodes that can be started again: nobody connects from the ports that they left meanwhile."""
    cluster = ClusterProcess(folder, environment, names, settings_of)
    for node, port in zip(cluster, free_ports(len(names)), strict=True):
        node.port = port
    return cluster


async def until_acquainted(session: ClientSession, nodes: Sequence[ServerProcess]) -> None:
    """Every one of these nodes knows all of them."""

    async def knows_all(node: ServerProcess) -> bool:
        return await metric(session, node, "parley_nodes") == len(nodes)

    for node in nodes:
        await eventually(lambda node=node: knows_all(node), ACQUAINTED_SECONDS_MAX)  # type: ignore[misc]


async def metric(session: ClientSession, node: ServerProcess, name: str) -> float:
    """The sum of a metric over its labels."""
    text = (await HttpClient(session, node.url).get("/metrics")).body
    lines = [line for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
    assert lines, f"no metric {name}"
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


@asynccontextmanager
async def redis_of(cluster: ClusterProcess) -> AsyncIterator[RedisEphemeral]:
    """What the nodes have told Redis, as another node would see it."""
    ephemeral = RedisEphemeral(cluster.environment["PARLEY_REDIS_URL"], wall_clock)
    try:
        yield ephemeral
    finally:
        await ephemeral.close()
