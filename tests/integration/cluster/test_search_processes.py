"""Search over real Kafka, DynamoDB and Redis: a gateway, and two nodes that have the index between them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.clusters import ATOMIC, shared_environment
from tests.harness.clients import HttpClient
from tests.harness.cluster import ClusterProcess
from tests.integration.cluster.processes import SLOW_SECONDS_MAX, metric
from tests.integration.gateway.serving import message
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(240)  # Kafka and DynamoDB may have to be started first

ROLES = {"front": "gateway,ingest,delivery", "s1": "search", "s2": "search"}
CHATS = 8
INDEXED = "parley_search_entries_indexed_total"


async def test_nodes_of_the_role_index_by_the_bus_and_take_over(tmp_path: Path) -> None:
    """Both index their share before anybody searches; when one is killed, the other has all of it, and
    meanwhile a search is complete or refused."""
    settings = {name: {"PARLEY_CLUSTER_ROLES": roles} for name, roles in ROLES.items()}
    with ClusterProcess(tmp_path, {**shared_environment(), **ATOMIC}, list(ROLES), settings) as cluster:
        async with ClientSession() as session:
            http = HttpClient(session, cluster["front"].url)
            ann = http.of(await http.newcomer("ann"))
            chats = [await ann.create_group() for _ in range(CHATS)]
            for number, chat in enumerate(chats):
                answer = await ann.post(f"/v1/chats/{chat}/messages", message(f"needle {number}"))
                assert answer.status == 201
            wanted = sorted(f"needle {number}" for number in range(CHATS))

            async def are_indexed() -> bool:
                counts = [await metric(session, cluster[name], INDEXED) for name in ("s1", "s2")]
                return min(counts) >= 1 and sum(counts) >= CHATS

            await eventually(are_indexed, SLOW_SECONDS_MAX)
            assert await searched(ann) == wanted
            await asyncio.to_thread(cluster["s1"].kill)
            seen: list[Any] = []

            async def is_found_again() -> bool:
                seen.append(await searched(ann))
                return bool(seen[-1] == wanted)

            await eventually(is_found_again, SLOW_SECONDS_MAX)
            assert all(told in (wanted, "search_behind") for told in seen)


async def searched(http: HttpClient) -> Any:
    """The contents of all hits, or the code of a refusal."""
    answer = await http.get("/v1/search", q="needle", limit=50)
    if answer.status != 200:
        return answer.body["code"]
    return sorted(hit["entry"]["content"] for hit in answer.body["hits"])
