"""Each role on nodes of its own: gateways, an ingest node, and the Sequence Service."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack

import msgspec
import pytest

from ops.local_services.ports import free_ports
from parley.clock import wall_clock
from parley.cluster.calls import CALL_PROOF, CALL_TARGET
from parley.core.cluster_keys import ClusterKeys
from parley.core.node_trust import CallKeys, NodeCall, prove_call
from parley.sequencing import bodies
from tests.acceptance.cluster_world import ClusterWorld, world_on
from tests.clusters import TWO_PHASE, nodes_on_shared_services
from tests.harness.clients import Frame, RawClient
from tests.harness.cluster import ClusterProcess
from tests.harness.server import HOST, ServerProcess
from tests.harness.tables import tables_of
from tests.waiting import eventually

GATEWAYS = ("g1", "g2")
INGEST = "i1"
SERVICE = "s1"
ROLES = {**dict.fromkeys(GATEWAYS, "gateway"), INGEST: "ingest,delivery"}
"""The sequencer is no member of this list: it is found by its address."""


class Place:
    """`sequencer`: the only one that takes numbers from the counter itself."""

    def __init__(self, cluster: ClusterProcess, sequencer: ServerProcess) -> None:
        self.cluster = cluster
        self.sequencer = sequencer


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("roles")
    port = free_ports(1)[0]
    asking = {
        **TWO_PHASE,
        "PARLEY_STORE_ALLOCATOR": "sequencer",
        "PARLEY_CLUSTER_SEQUENCERS": f"http://{HOST}:{port}",
    }
    settings = {name: {"PARLEY_CLUSTER_ROLES": roles} for name, roles in ROLES.items()}
    cluster = nodes_on_shared_services(folder, list(ROLES), asking, settings)
    giving = {**cluster.environment, "PARLEY_STORE_ALLOCATOR": "dynamodb", "PARLEY_CLUSTER_NODE": SERVICE}
    sequencer = ServerProcess(folder / "s1", giving, ["--roles", "sequencer"])
    sequencer.port = port
    try:
        cluster.init()
        sequencer.start()
        cluster.start()
        yield Place(cluster, sequencer)
    finally:
        cluster.kill()
        sequencer.kill()


@pytest.mark.timeout(120)
async def test_split_roles_serve_together(place: Place) -> None:
    """What is sent on one gateway is numbered, appended and heard on the other, each by a node of its own."""
    async with world_on(place.cluster) as world, AsyncExitStack() as stack:
        ann, ben = await connected(world, stack)
        acks = [await ann.send_message(world.chat_id, f"{n}") for n in range(10)]
        acks += [await ben.send_message(world.chat_id, f"{n}") for n in range(10)]
        assert [ack["sequence"] for ack in acks] == list(range(1, 21))
        for client in (ann, ben):
            await client.live_entry(world.chat_id, 20)
            assert [entry["sequence"] for entry in client.live_entries(world.chat_id)] == list(range(1, 21))


@pytest.mark.timeout(120)
async def test_a_foreign_allocation_burns_no_number(place: Place) -> None:
    """Who does not know the secret gets no number from a real Sequence Service, and no counter moves."""
    async with world_on(place.cluster) as world, AsyncExitStack() as stack:
        ann, _ = await connected(world, stack)
        assert (await ann.send_message(world.chat_id, "before"))["sequence"] == 1
        body = msgspec.json.encode(bodies.Allocations([bodies.Allocation(world.chat_id, 5, 0)]))
        for secret in (None, "", "a guess that is not the secret"):
            assert await foreign_call(world, place.sequencer.url, body, secret) == 401
        async with tables_of(place.cluster.environment) as tables:
            assert await tables.counter(world.chat_id) == 1
        assert (await ann.send_message(world.chat_id, "after"))["sequence"] == 2


async def foreign_call(world: ClusterWorld, url: str, body: bytes, secret: str | None) -> int:
    """Without a proof, or with that of another secret."""
    path = bodies.ALLOCATE
    headers = {"Content-Type": "application/json"}
    if secret is not None:
        call = NodeCall(SERVICE, "POST", path, body)
        headers[CALL_TARGET] = call.target
        headers[CALL_PROOF] = prove_call(
            CallKeys(ClusterKeys(secret)), call, wall_clock(), b"0123456789abcdef"
        )
    async with world.session.post(url + path, data=body, headers=headers) as answer:
        return answer.status


@pytest.mark.timeout(120)
async def test_without_the_sequencer_sends_are_refused_for_now(place: Place) -> None:
    """A killed Sequence Service stops sends and nothing else, and gives no number twice when it is back."""
    async with world_on(place.cluster) as world, AsyncExitStack() as stack:
        ann, ben = await connected(world, stack)
        assert (await ann.send_message(world.chat_id, "before"))["sequence"] == 1
        await asyncio.to_thread(place.sequencer.kill)
        try:
            refused = await ann.send_message(world.chat_id, "meanwhile")
            assert (refused["type"], refused["temporary"]) == ("refused", True)
            assert len(await ben.sync_all(world.chat_id)) == 1
        finally:
            await asyncio.to_thread(place.sequencer.start)
        answers: list[Frame] = []

        async def is_taken() -> bool:
            answers.append(await ann.send_message(world.chat_id, "after"))
            return bool(answers[-1]["type"] == "ack")

        await eventually(is_taken)
        await ben.live_entry(world.chat_id, answers[-1]["sequence"])


async def connected(world: ClusterWorld, stack: AsyncExitStack) -> tuple[RawClient, RawClient]:
    """Ann on one gateway, Ben on the other."""
    one, other = (world.cluster[name] for name in GATEWAYS)
    ann = await stack.enter_async_context(world.client(one, world.ann))
    return ann, await stack.enter_async_context(world.client(other, world.ben))
