"""A service of a cluster is away for a while: what goes on, what is refused, and what heals by itself.

PARLEY_SIMULATE_ROUNDS, if there are many, makes the outages as long as an operator would have them.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.acceptance.cluster_world import ClusterWorld, world_on
from tests.clusters import ATOMIC, cluster_of, own_names, redis_of, running
from tests.harness.clients import Frame, RawClient
from tests.harness.cluster import ClusterProcess
from tests.harness.tables import tables_of
from tests.seeds import ROUNDS
from tests.services import OwnServices
from tests.simulation.receiving_end import ReceivingEnd, receiving_end
from tests.waiting import eventually

IS_LONG = ROUNDS > 100
OUTAGE_SECONDS = 60.0 if IS_LONG else 5.0
NAMES = ("n1", "n2")
HEARD_SECONDS_MAX = 45.0
"""The heads are looked at every 30 s, whatever else fails."""
HEALED_SECONDS_MAX = 60.0
SENDS_PAUSE_SECONDS = 0.1
EMULATOR_WRITES_SECONDS = 1.0
"""DynamoDB Local answers before it has written: killed at once it loses what the real one would have."""


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnServices]:
    """Services that may be killed, if they run again at the end of the test."""
    with OwnServices(tmp_path_factory.mktemp("outages") / "services") as own:
        own.up("dynamodb", "redis", "kafka")
        yield own


@pytest.fixture(scope="module")
def cluster(services: OwnServices, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    """Two nodes that survive what happens to their services."""
    environment = {**services.environment(), **own_names(), **ATOMIC}
    with cluster_of(tmp_path_factory.mktemp("nodes"), environment, NAMES) as started:
        yield started
        assert all(node.is_running for node in started)


@asynccontextmanager
async def away(services: OwnServices, service: str) -> AsyncIterator[None]:
    """kill -9 of a service; it is back, with its data, at the end of the block."""
    if service == "dynamodb":
        await asyncio.sleep(EMULATOR_WRITES_SECONDS)
    await asyncio.to_thread(services.kill, service)
    try:
        yield
    finally:
        await asyncio.to_thread(services.start, service)


async def keep_sending(clients: list[RawClient], chat_id: str, seconds: float) -> int:
    """Messages from every client for so long; every one must be acknowledged. The last position."""
    last, ends = 0, asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < ends:
        for client in clients:
            ack = await client.send_message(chat_id, "whatever happens")
            assert ack["type"] == "ack", ack
            last = max(last, ack["sequence"])
        await asyncio.sleep(SENDS_PAUSE_SECONDS)
    return last


def connected(world: ClusterWorld) -> tuple[RawClient, RawClient]:
    """Ann on one node, Ben on the other; enter them to connect."""
    patience = {"deadline_seconds": HEARD_SECONDS_MAX}
    one, other = world.cluster
    return world.client(one, world.ann, **patience), world.client(other, world.ben, **patience)


@pytest.mark.timeout(210 + OUTAGE_SECONDS + HEARD_SECONDS_MAX + HEALED_SECONDS_MAX)
async def test_without_kafka_sends_go_on_and_readers_catch_up(
    cluster: ClusterProcess, services: OwnServices
) -> None:
    """A broker that is away delays the news of other nodes, and rings; nothing is refused or stays unsent."""
    async with world_on(cluster) as world, receiving_end(cluster, world.session) as end:
        await join(world, end)
        ann, ben = connected(world)
        async with ann, ben:
            async with away(services, "kafka"):
                last = await keep_sending([ann, ben], world.chat_id, OUTAGE_SECONDS)
                if IS_LONG:
                    await heard(world, ann, ben, last)
            await heard(world, ann, ben, last)
            await assert_delivered(world, ann, end)
        async with tables_of(cluster.environment) as tables:

            async def all_published() -> bool:
                return not await tables.unpublished()

            await eventually(all_published, HEALED_SECONDS_MAX)


async def join(world: ClusterWorld, end: ReceivingEnd) -> None:
    """The chat of this world is one that rings for somebody who is away."""
    first = next(iter(world.cluster))
    world.chat_id = await world.http(first, world.ann).create_group(world.ben, end.person)


async def assert_delivered(world: ClusterWorld, ann: RawClient, end: ReceivingEnd) -> None:
    """In order, each at least once; and no device sounded twice for a message."""
    entries = await ann.sync_all(world.chat_id)
    breaches = await end.breaches({world.chat_id: [entry["message_id"] for entry in entries]})
    assert not breaches, "\n".join(breaches[:20])


async def heard(world: ClusterWorld, ann: RawClient, ben: RawClient, last: int) -> None:
    """Both have every position live, each once."""
    for client in (ann, ben):
        await client.live_entry(world.chat_id, last)
        assert [at["sequence"] for at in client.live_entries(world.chat_id)] == list(range(1, last + 1))


@pytest.mark.timeout(150)
async def test_acks_that_wait_for_kafka_are_refused_without_it(services: OwnServices, tmp_path: Path) -> None:
    """With bus.ack = published a send is refused while Kafka is away, and its retry acknowledges it later."""
    environment = {**services.environment(), **own_names(), **ATOMIC, "PARLEY_BUS_ACK": "published"}
    async with (
        running(cluster_of(tmp_path, environment, ["n1"])) as cluster,
        world_on(cluster) as world,
        world.client(cluster["n1"], world.ann) as ann,
    ):
        assert (await ann.send_message(world.chat_id, "before"))["type"] == "ack"
        client_id = str(uuid.uuid4())
        async with away(services, "kafka"):
            refused = await ann.send_message(world.chat_id, "meanwhile", client_id)
            assert (refused["code"], refused["temporary"]) == ("service_unavailable", True)
        ack = await retried(ann, world.chat_id, "meanwhile", client_id)
        assert (ack["sequence"], ack["deduplicated"]) == (2, True)
        stored = await ann.sync_all(world.chat_id)
        assert [entry["content"] for entry in stored] == ["before", "meanwhile"]


async def retried(client: RawClient, chat_id: str, content: str, client_id: str) -> Frame:
    """The ack that repeating a message brings in the end; until then every refusal must be temporary."""
    found: list[Frame] = []

    async def is_acknowledged() -> bool:
        found.append(await client.send_message(chat_id, content, client_id))
        assert found[-1]["type"] == "ack" or found[-1]["temporary"], found[-1]
        return bool(found[-1]["type"] == "ack")

    await eventually(is_acknowledged, HEARD_SECONDS_MAX)
    return found[-1]


@pytest.mark.timeout(210 + OUTAGE_SECONDS)
async def test_without_redis_everything_goes_on_and_the_registry_heals(
    cluster: ClusterProcess, services: OwnServices
) -> None:
    """Sends, reads, rings and new connections work on, and an empty Redis soon knows everybody again."""
    async with world_on(cluster) as world, receiving_end(cluster, world.session) as end:
        await join(world, end)
        ann, ben = connected(world)
        async with ann, ben:
            await asyncio.to_thread(services.kill, "redis")
            try:
                last = await keep_sending([ann, ben], world.chat_id, OUTAGE_SECONDS)
                for node in cluster:
                    async with world.client(node, world.ben) as late:
                        assert len(await late.sync_all(world.chat_id)) == last
                    assert (await world.http(node).get("/readyz")).status == 200
                await heard(world, ann, ben, last)
                await assert_delivered(world, ann, end)
            finally:
                await asyncio.to_thread(services.reset, "redis")
            await until_known_again(world)


async def until_known_again(world: ClusterWorld) -> None:
    """Redis lists both nodes, and both people where they are."""
    people = [world.ann, world.ben]
    expected = {person.user_id: {person.device_id: name} for person, name in zip(people, NAMES, strict=True)}
    async with redis_of(world.cluster) as redis:

        async def all_known() -> bool:
            nodes = [node.node_id for node in await redis.nodes.alive()]
            where = await redis.registry.whereabouts([person.user_id for person in people])
            return nodes == list(NAMES) and where == expected

        await eventually(all_known, HEALED_SECONDS_MAX)


@pytest.mark.timeout(150)
async def test_without_the_store_nodes_refuse_for_now_and_go_on_later(
    cluster: ClusterProcess, services: OwnServices
) -> None:
    """While DynamoDB is away every node says so and refuses temporarily; afterwards nothing was doubled."""
    async with world_on(cluster) as world:
        ann, ben = connected(world)
        async with ann, ben:
            assert (await ann.send_message(world.chat_id, "before"))["sequence"] == 1
            client_ids = [str(uuid.uuid4()) for _ in NAMES]
            async with away(services, "dynamodb"):
                for client, client_id in zip((ann, ben), client_ids, strict=True):
                    refused = await client.send_message(world.chat_id, "meanwhile", client_id)
                    assert (refused["type"], refused["temporary"]) == ("refused", True)
                await all_ready(world, 503)
            await all_ready(world, 200)
            for client, client_id in zip((ann, ben), client_ids, strict=True):
                await retried(client, world.chat_id, "meanwhile", client_id)
            assert (await ben.send_message(world.chat_id, "after"))["sequence"] == 4
            await heard(world, ann, ben, 4)


async def all_ready(world: ClusterWorld, status: int) -> None:
    async def say_so() -> bool:
        answers = [await world.http(node).get("/readyz") for node in world.cluster]
        return [answer.status for answer in answers] == [status] * len(answers)

    await eventually(say_so)
