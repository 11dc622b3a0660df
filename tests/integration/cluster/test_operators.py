"""What operators ask of one node is answered by the node that is meant, across processes."""

from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.harness.clients import HttpClient
from tests.integration.cluster.processes import SLOW_SECONDS_MAX, ThreeNodes, a_town
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(180)  # Kafka and DynamoDB may have to be started first


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeNodes]:
    nodes = ThreeNodes(tmp_path_factory.mktemp("nodes"))
    nodes.add_operator("root")
    yield nodes
    nodes.close()


async def operator(nodes: ThreeNodes, session: ClientSession) -> HttpClient:
    http = HttpClient(session, nodes.front.url)
    return http.of(await http.login("root", "console"))


async def by_id(root: HttpClient) -> dict[str, Any]:
    listed = (await root.get("/v1/admin/nodes")).body["nodes"]
    return {node["node_id"]: node for node in listed}


async def test_each_node_says_how_it_is_to_any_other(nodes: ThreeNodes) -> None:
    """Its connections, memory and clock; and its numbers, jobs and connections are seen from the front."""
    async with a_town(nodes) as town:
        root = await operator(nodes, town.session)
        async with town.at(nodes.both, town.ben) as ben:
            found = await by_id(root)
            assert {name: node["silent"] for name, node in found.items()} == {
                "front": None,
                "both": None,
                "back": None,
            }
            assert (found["front"]["connections"], found["both"]["connections"]) == (0, 1)
            assert all(abs(node["clock_offset_ms"]) < 2_000 for node in found.values())
            series = (await root.get("/v1/admin/series", names="connections", node="both")).body
            assert series["node_id"] == "both"
            (mine,) = (await root.get("/v1/admin/connections", node="both")).body["connections"]
            assert mine["user_id"] == town.ben.user_id
            closed = await root.delete(f"/v1/admin/connections/{mine['connection_id']}?node=both")
            assert closed.status == 204
            await ben.until_ended()
        jobs = (await root.get("/v1/admin/jobs")).body["jobs"]
        assert {job["node"] for job in jobs if job["last_runs"]} == {"front", "both", "back"}


async def test_a_node_is_drained_by_another(nodes: ThreeNodes) -> None:
    """It ends as if it were told itself; one that is not there is refused."""
    async with a_town(nodes) as town:
        root = await operator(nodes, town.session)
        assert (await root.post("/v1/admin/nodes/nobody/drain", None)).status == 404
        assert (await root.post("/v1/admin/nodes/back/drain", None)).status == 202
        await eventually(lambda: not nodes.back.is_running, SLOW_SECONDS_MAX)

        async def is_gone() -> bool:
            return set(await by_id(root)) == {"front", "both"}

        await eventually(is_gone, SLOW_SECONDS_MAX)
