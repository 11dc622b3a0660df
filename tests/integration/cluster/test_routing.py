"""Entries routed between three processes, while the registry forgets, workers die and gateways sleep."""

import asyncio
import time
from collections.abc import Iterator

import pytest
from redis.asyncio import Redis

from tests.harness.clients import RawClient
from tests.integration.cluster.processes import (
    SLOW_SECONDS_MAX,
    ThreeNodes,
    Town,
    a_town,
    metric,
    stop,
    wake,
)
from tests.waiting import eventually, stretched

HEARD_SECONDS_MAX = 30.0
"""What PROTOCOL promises: within one heartbeat."""
PAUSE_SECONDS = 8.0
"""Longer than a tenure lasts without a renewal."""

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeNodes]:
    nodes = ThreeNodes(tmp_path_factory.mktemp("nodes"))
    yield nodes
    nodes.close()


async def forget(nodes: ThreeNodes) -> None:
    redis = Redis.from_url(nodes.services.environment("redis")["PARLEY_REDIS_URL"])
    await redis.flushall()
    await redis.aclose()


async def all_heard(town: Town, client: RawClient) -> None:
    """Each entry of each chat came live, once and in order, and the last one in time."""
    began = time.monotonic()
    for chat_id in town.chats:
        head = len(town.sent[chat_id])
        await eventually(
            lambda chat_id=chat_id, head=head: len(client.live_entries(chat_id)) >= head,  # type: ignore[misc]
            HEARD_SECONDS_MAX,
        )
        assert [one["sequence"] for one in client.live_entries(chat_id)] == list(range(1, head + 1))
    assert time.monotonic() - began < stretched(HEARD_SECONDS_MAX)


async def test_a_node_gets_what_its_clients_hear_and_nothing_else(nodes: ThreeNodes) -> None:
    """Of chats whose members are elsewhere no batch is sent to it; nor does it hold an interest in them."""
    async with (
        a_town(nodes) as town,
        town.at(nodes.both, town.ann) as ann,
        town.at(nodes.both, town.ben) as ben,
    ):
        await eventually(lambda: subjects_of(town, 0), SLOW_SECONDS_MAX)
        async with town.talk(ann):
            await town.more(60)
        await all_heard(town, ben)
        to_others = await metric(town.session, nodes.both, "parley_routed_positions_total")
        assert to_others == 0
        async with town.at(nodes.front, town.ben):
            assert await subjects_of(town, 1 + len(town.chats))


async def subjects_of(town: Town, count: int) -> bool:
    """Whether the front node has registered so many."""
    return await metric(town.session, town.nodes.front, "parley_interest_subjects") == count


async def test_a_registry_that_forgets_mid_traffic_costs_nothing(nodes: ThreeNodes) -> None:
    """FLUSHALL again and again while Ann talks: Ben hears all of it, also what was said last."""
    async with (
        a_town(nodes) as town,
        town.at(nodes.both, town.ann) as ann,
        town.at(nodes.front, town.ben) as ben,
    ):
        before = await metric(town.session, nodes.front, "parley_interest_tenures_total")
        async with town.talk(ann):
            for _ in range(3):
                await town.more(30)
                await forget(nodes)
                await asyncio.sleep(2)
        await forget(nodes)
        for chat_id in town.chats:
            await town.say(ann, chat_id)
        await all_heard(town, ben)
        assert await metric(town.session, nodes.front, "parley_interest_tenures_total") > before


@pytest.mark.parametrize("how", ["killed", "stopped"])
async def test_a_worker_that_goes_mid_traffic_costs_nothing(nodes: ThreeNodes, how: str) -> None:
    """Killed between forwarding and committing, or asleep and back as a zombie: another one goes on."""
    async with (
        a_town(nodes) as town,
        town.at(nodes.both, town.ann) as ann,
        town.at(nodes.front, town.ben) as ben,
    ):
        async with town.talk(ann):
            if how == "killed":
                await asyncio.to_thread(nodes.back.kill)
                await town.more(60)
            else:
                stop(nodes.back)
                try:
                    await town.more(60)
                    await asyncio.sleep(PAUSE_SECONDS)
                finally:
                    wake(nodes.back)
            await town.more(30)
        await all_heard(town, ben)
        await nodes.be_well(town.session)
        async with town.talk(ann):
            await town.more(30)
        await all_heard(town, ben)


async def test_a_gateway_that_slept_beyond_its_lease_reads_what_it_missed(nodes: ThreeNodes) -> None:
    """Its clients stay connected, and get what was said meanwhile, also in chats that are quiet now."""
    async with (
        a_town(nodes) as town,
        town.at(nodes.both, town.ann) as ann,
        town.at(nodes.front, town.ben) as ben,
    ):
        await asyncio.sleep(1)
        stop(nodes.front)
        try:
            async with town.talk(ann):
                await town.more(60)
            await asyncio.sleep(PAUSE_SECONDS)
        finally:
            wake(nodes.front)
        await all_heard(town, ben)
