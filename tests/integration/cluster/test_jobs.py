"""Jobs of a cluster of processes: one node runs each, any node tells of it, and another one takes over."""

import asyncio
from collections.abc import Iterator

import pytest
from aiohttp import ClientSession

from parley import __version__
from parley.app.kafka import TOPICS
from tests.harness.clients import Frame, HttpClient
from tests.integration.cluster.processes import SLOW_SECONDS_MAX, ThreeNodes, metric, stop, wake
from tests.waiting import eventually

SWEEP = "outbox_sweep"
LAST_SUCCESS = f'parley_job_last_success_timestamp_seconds{{job="{SWEEP}"}}'

pytestmark = pytest.mark.timeout(180)  # Kafka and DynamoDB may have to be started first


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeNodes]:
    nodes = ThreeNodes(tmp_path_factory.mktemp("nodes"))
    nodes.add_operator("root")
    yield nodes
    nodes.close()


async def operator_at_the_front(nodes: ThreeNodes, session: ClientSession) -> HttpClient:
    await nodes.be_well(session)
    http = HttpClient(session, nodes.front.url)
    return http.of(await http.login("root", "console"))


async def jobs(http: HttpClient, name: str) -> list[Frame]:
    listed = (await http.get("/v1/admin/jobs")).body["jobs"]
    return [job for job in listed if job["name"] == name]


async def runner(http: HttpClient, *not_by: str) -> str:
    """The node that has swept, once it is another one than these."""
    found: list[Frame] = []

    async def is_known() -> bool:
        found[:] = await jobs(http, SWEEP)
        return len(found) == 1 and found[0]["node"] not in not_by and found[0]["last_outcome"] == "ok"

    await eventually(is_known, SLOW_SECONDS_MAX)
    return str(found[0]["node"])


async def test_a_node_tells_of_jobs_that_others_run(nodes: ThreeNodes) -> None:
    """The front runs no sweeper: it knows who does, and has the sealing of each node in its list."""
    async with ClientSession() as session:
        http = await operator_at_the_front(nodes, session)
        assert await runner(http) in {"both", "back"}

        async def all_seal() -> bool:
            return {job["node"] for job in await jobs(http, "sealing")} == {"front", "both", "back"}

        await eventually(all_seal)


async def test_a_node_tells_of_nodes_and_topics(nodes: ThreeNodes) -> None:
    """Each node with its roles and version; the topics of Kafka with their partitions."""
    async with ClientSession() as session:
        http = await operator_at_the_front(nodes, session)
        listed = (await http.get("/v1/admin/nodes")).body["nodes"]
        assert {node["node_id"]: node["is_self"] for node in listed} == {
            "back": False,
            "both": False,
            "front": True,
        }
        assert {node["version"] for node in listed} == {__version__}
        assert all(node["since"] and node["url"] for node in listed)
        topics = (await http.get("/v1/admin/topics")).body["topics"]
        assert topics[0]["name"].endswith("messages.persisted")
        assert len(topics) == len(TOPICS)
        assert all((topic["partitions"], topic["groups"]) == (3, []) for topic in topics)
        assert (await http.get("/v1/admin/overview")).body["nodes"] == 3


@pytest.mark.parametrize("ending", ["killed", "paused"])
async def test_another_node_takes_over(nodes: ThreeNodes, ending: str) -> None:
    """From a node that is gone, or does nothing for longer than its lease; then the job stays where it is."""
    async with ClientSession() as session:
        http = await operator_at_the_front(nodes, session)
        first = await runner(http)
        gone = nodes.both if first == "both" else nodes.back
        if ending == "killed":
            await asyncio.to_thread(gone.kill)
        else:
            stop(gone)
        try:
            second = await runner(http, first)
        finally:
            if ending == "paused":
                wake(gone)
        await nodes.be_well(session)

        async def only_one_has_it() -> bool:
            return await metric(session, gone, LAST_SUCCESS) == 0

        await eventually(only_one_has_it)
        assert await runner(http) == second
