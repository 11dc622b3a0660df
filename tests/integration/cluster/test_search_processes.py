"""Search over real Kafka, DynamoDB and Redis: a gateway, and two nodes that have the index between them."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import ClientSession

from parley.core.rendezvous import owner
from tests.clusters import ATOMIC, shared_environment
from tests.harness.clients import HttpClient
from tests.harness.cluster import ClusterProcess
from tests.integration.cluster.processes import SLOW_SECONDS_MAX, metric
from tests.integration.gateway.serving import message
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(240)  # Kafka and DynamoDB may have to be started first

SEARCHING = ("s1", "s2")
ROLES = {"front": "gateway,ingest,delivery", **dict.fromkeys(SEARCHING, "search")}
CHATS_EACH = 2
INDEXED = "parley_search_entries_indexed_total"


async def test_nodes_of_the_role_index_by_the_bus_and_take_over(tmp_path: Path) -> None:
    """Both index their share before anybody searches; when one is killed, the other has all of it, and
    meanwhile a search is complete or refused."""
    settings = {name: {"PARLEY_CLUSTER_ROLES": roles} for name, roles in ROLES.items()}
    with ClusterProcess(tmp_path, {**shared_environment(), **ATOMIC}, list(ROLES), settings) as cluster:
        async with ClientSession() as session:
            http = HttpClient(session, cluster["front"].url)
            ann = http.of(await http.newcomer("ann"))
            chats = await chats_of_each(ann)
            for number, chat in enumerate(chats):
                await post(ann, chat, f"needle {number}")
            wanted = sorted(f"needle {number}" for number in range(len(chats)))

            async def both_index() -> bool:
                """News are only hints. Those of a node that did not know the other yet are told to no one."""
                for chat in chats:
                    await post(ann, chat, "hay")
                return all([await metric(session, cluster[name], INDEXED) for name in SEARCHING])

            async def all_is_found() -> bool:
                seen.append(await searched(ann))
                return seen[-1] == wanted

            seen: list[list[str] | None] = []
            await eventually(both_index, SLOW_SECONDS_MAX)
            await eventually(all_is_found, SLOW_SECONDS_MAX)
            await asyncio.to_thread(cluster["s1"].kill)
            seen.clear()
            await eventually(all_is_found, SLOW_SECONDS_MAX)
            assert all(found in (wanted, None) for found in seen)


async def chats_of_each(ann: HttpClient) -> list[str]:
    """New chats, until each node has the index of some of them."""
    chats: dict[str, list[str]] = {name: [] for name in SEARCHING}
    while min(map(len, chats.values())) < CHATS_EACH:
        chat_id = await ann.create_group()
        chats[owner(chat_id, SEARCHING) or ""].append(chat_id)
    return [chat_id for chat_ids in chats.values() for chat_id in chat_ids]


async def post(http: HttpClient, chat_id: str, content: str) -> None:
    answer = await http.post(f"/v1/chats/{chat_id}/messages", message(content))
    assert answer.status == 201


async def searched(http: HttpClient) -> list[str] | None:
    """The contents of all hits; None for a refusal that asks to come again."""
    answer = await http.get("/v1/search", q="needle", limit=50)
    if answer.status != 200:
        assert answer.body["temporary"], answer.body
        return None
    return sorted(hit["entry"]["content"] for hit in answer.body["hits"])
