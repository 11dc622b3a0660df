"""Real nodes for tests: where their services are, and what can be seen of them from outside.

    with nodes_on_shared_services(folder, ["n1", "n2"], ATOMIC) as cluster:
        ...cluster["n1"].url...

Tables, topics and keys have a fresh prefix on the services that all tests share.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import ClientSession

from ops.local_services.ports import free_ports
from parley.clock import wall_clock
from parley.core.cluster_keys import ClusterKeys
from parley.ephemeral.redis.engine import RedisEphemeral
from tests.harness.clients import HttpClient
from tests.harness.cluster import ClusterProcess
from tests.harness.server import HOST, ServerProcess
from tests.services import fresh_prefix, service_environment
from tests.waiting import eventually

ATOMIC = {"PARLEY_STORE_SEQUENCING": "atomic"}
TWO_PHASE = {"PARLEY_STORE_SEQUENCING": "two_phase"}
MODES = {
    "atomic": ATOMIC,
    "dynamodb": {**TWO_PHASE, "PARLEY_STORE_ALLOCATOR": "dynamodb"},
    "store": {**TWO_PHASE, "PARLEY_STORE_ALLOCATOR": "store"},
    "redis": {**TWO_PHASE, "PARLEY_STORE_ALLOCATOR": "redis"},
}
"""Atomic, and two_phase by who gives the numbers."""
SEQUENCERS = ("s1", "s2")
ACQUAINTED_SECONDS_MAX = 20.0


def own_names() -> dict[str, str]:
    """Tables, topics and keys of one cluster alone."""
    prefix = fresh_prefix()
    prefixes = {f"PARLEY_{service}_PREFIX": prefix for service in ("DYNAMODB", "KAFKA", "REDIS")}
    return {**prefixes, "PARLEY_CASSANDRA_KEYSPACE": prefix.rstrip("-")}


def on_cassandra(replicas: int = 1) -> dict[str, str]:
    """Settings of nodes whose store is Cassandra; they need its address, and `own_names`."""
    return {"PARLEY_STORE_ENGINE": "cassandra", "PARLEY_CASSANDRA_REPLICAS": str(replicas)}


def shared_environment() -> dict[str, str]:
    """What nodes need to find the services that all tests share."""
    found = [service_environment(name) for name in ("dynamodb", "kafka", "redis")]
    return {name: value for variables in found for name, value in variables.items()} | own_names()


def nodes_on_shared_services(
    folder: Path,
    names: Sequence[str],
    settings: Mapping[str, str],
    settings_of: Mapping[str, Mapping[str, str]] | None = None,
) -> ClusterProcess:
    """Enter it to start them. `settings_of`: what one node has beside the others, by its name."""
    return cluster_of(folder, {**shared_environment(), **settings}, names, settings_of)


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


def asking_sequencers() -> dict[str, str]:
    """Settings of nodes whose numbers come from Sequence Services; see `sequencers_of`."""
    urls = [f"http://{HOST}:{port}" for port in free_ports(len(SEQUENCERS))]
    asking = {"PARLEY_STORE_ALLOCATOR": "sequencer", "PARLEY_CLUSTER_SEQUENCERS": ",".join(urls)}
    return {**TWO_PHASE, **asking}


@asynccontextmanager
async def sequencers_of(cluster: ClusterProcess, folder: Path) -> AsyncIterator[dict[str, ServerProcess]]:
    """The Sequence Services that these nodes will ask, by name; none where they ask for none."""
    urls = cluster.environment.get("PARLEY_CLUSTER_SEQUENCERS", "")
    giving = {**cluster.environment, "PARLEY_STORE_ALLOCATOR": "store"}
    found: dict[str, ServerProcess] = {}
    for name, url in zip(SEQUENCERS, filter(None, urls.split(",")), strict=False):
        found[name] = ServerProcess(folder / name, giving, ["--roles", "sequencer"])
        found[name].port = int(url.rpartition(":")[2])
    try:
        if found:
            await asyncio.to_thread(cluster.init)
        for service in found.values():
            await asyncio.to_thread(service.start)
        yield found
    finally:
        for service in found.values():
            await asyncio.to_thread(service.kill)


@asynccontextmanager
async def running(cluster: ClusterProcess) -> AsyncIterator[ClusterProcess]:
    """Tables, topics and nodes, for a block of a coroutine."""
    try:
        await asyncio.to_thread(cluster.__enter__)
        yield cluster
    finally:
        await asyncio.to_thread(cluster.kill)


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
    url, prefix = (cluster.environment[f"PARLEY_REDIS_{name}"] for name in ("URL", "PREFIX"))
    keys = ClusterKeys(cluster.environment["PARLEY_CLUSTER_SECRET"])
    ephemeral = RedisEphemeral(url, keys, wall_clock, prefix=prefix)
    try:
        yield ephemeral
    finally:
        await ephemeral.close()
