"""Two real nodes on real services: what a cluster promises while nothing is broken."""

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import pytest

from ops.local_services.ports import free_ports
from parley.clock import wall_clock
from parley.cluster import bodies
from parley.cluster.calls import CALL_PROOF, CALL_TARGET
from parley.core.cluster_keys import ClusterKeys
from parley.core.node_trust import CallKeys, NodeCall, prove_call
from parley.ephemeral.ports import Node
from parley.model import Draft
from parley.wire import codes
from tests.acceptance.cluster_world import ClusterWorld, world_on
from tests.clusters import ATOMIC, MODES, metric, nodes_on_shared_services, redis_of, running
from tests.harness.clients import RawClient
from tests.harness.cluster import ClusterProcess
from tests.harness.proxy import Chaos, ChaosProxy
from tests.selection import thorough

NAMES = ("n1", "n2")
WRITERS = 100
WINDOW = 8
TURNS = 10
ANSWER_DELAY_MS_MAX = 300
"""Much longer than news takes through Kafka."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    """Two nodes that nobody breaks."""
    with nodes_on_shared_services(tmp_path_factory.mktemp("cluster"), NAMES, ATOMIC) as started:
        yield started


@pytest.fixture(scope="module")
def two_phase_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    """Two more that take a number first and write then."""
    folder = tmp_path_factory.mktemp("two_phase")
    with nodes_on_shared_services(folder, NAMES, MODES["dynamodb"]) as started:
        yield started


@pytest.fixture(params=["cluster", thorough("two_phase_cluster", "the same in the other mode")])
def either(request: pytest.FixtureRequest) -> ClusterProcess:
    """Two nodes in each sequencing mode."""
    nodes: ClusterProcess = request.getfixturevalue(request.param)
    return nodes


@pytest.mark.timeout(120)
async def test_100_concurrent_writers_through_two_nodes(either: ClusterProcess) -> None:
    """100 writers at once get 100 distinct sequences, none fails, and every reader has the same order."""
    async with world_on(either) as world, AsyncExitStack() as stack:

        async def connected(name: str, live: bool) -> RawClient:
            client = world.client(either[name], world.ben if live else world.ann, live=live)
            return await stack.enter_async_context(client)

        readers = [await connected(NAMES[n % 2], live=True) for n in range(6)]
        writers = [await connected(NAMES[n % 2], live=False) for n in range(WRITERS)]
        acks = await asyncio.gather(
            *(writer.send_message(world.chat_id, f"writer {n}") for n, writer in enumerate(writers))
        )
        assert [ack["type"] for ack in acks] == ["ack"] * WRITERS
        assert sorted(ack["sequence"] for ack in acks) == list(range(1, WRITERS + 1))
        await asyncio.gather(*(reader.live_entry(world.chat_id, WRITERS) for reader in readers))
        orders = [[entry["message_id"] for entry in reader.live_entries(world.chat_id)] for reader in readers]
        by_sequence = sorted(acks, key=lambda ack: int(ack["sequence"]))
        assert orders == [[ack["message_id"] for ack in by_sequence]] * len(readers)


@pytest.mark.timeout(120)
async def test_an_ack_comes_before_its_own_entry(tmp_path: Path) -> None:
    """On the sending socket a message is acknowledged before it is shown, also when news is faster."""
    port = free_ports(1)[0]
    async with ChaosProxy(port, Random(1), Chaos(delay_ms_max=ANSWER_DELAY_MS_MAX)) as slow_way:
        settings = {"n2": {"PARLEY_CLUSTER_PORT": str(port), "PARLEY_CLUSTER_ADVERTISE": slow_way.url}}
        async with running(nodes_on_shared_services(tmp_path, NAMES, ATOMIC, settings)) as cluster:
            await _talk_and_listen(cluster)


async def _talk_and_listen(cluster: ClusterProcess) -> None:
    async with world_on(cluster) as world, AsyncExitStack() as stack:
        chats = [await world.chat_appended_by(name, [world.ben]) for name in NAMES]
        writers = [
            await stack.enter_async_context(world.client(node, person))
            for node in cluster
            for person in (world.ann, world.ben)
        ]
        await asyncio.gather(*(_talk(writer, chats) for writer in writers))
        total = TURNS * WINDOW * len(writers)
        for chat_id in chats:
            await asyncio.gather(*(writer.live_entry(chat_id, total) for writer in writers))
        assert world.order.overtaken == []


async def _talk(writer: RawClient, chats: list[str]) -> None:
    """Pipelined messages into all chats, turn after turn."""
    for turn in range(TURNS):
        answers = [
            await writer.post_message(chat_id, f"{turn} {number}")
            for number in range(WINDOW)
            for chat_id in chats
        ]
        for answer in answers:
            assert (await writer.answered(answer))["type"] == "ack"


@pytest.mark.timeout(90)
async def test_a_revoked_session_ends_on_every_node(cluster: ClusterProcess) -> None:
    """Whichever node a session is revoked on, its sockets close on all of them, and other sessions stay."""
    async with world_on(cluster) as world, AsyncExitStack() as stack:
        sockets = [
            await stack.enter_async_context(world.client(node, world.ann)) for node in cluster for _ in "12"
        ]
        stays = await stack.enter_async_context(world.client(cluster["n2"], world.ben))
        revoked = await world.http(cluster["n1"], world.ann).request(
            "DELETE", f"/v1/sessions/{world.ann.session_id}"
        )
        assert revoked.status == 204
        ends = await asyncio.gather(*(socket.until_ended() for socket in sockets))
        assert [end.code for end in ends] == [codes.REVOKED.code] * len(sockets)
        assert (await stays.heartbeat())["type"] == "heartbeat_ack"


@pytest.mark.timeout(90)
async def test_a_new_chat_is_heard_of_on_every_node(cluster: ClusterProcess) -> None:
    """Whoever is put into a chat hears so on any node, and then hears the chat."""
    async with world_on(cluster) as world, AsyncExitStack() as stack:
        bens = [await stack.enter_async_context(world.client(node, world.ben)) for node in cluster]
        chat_id = await world.http(cluster["n1"], world.ann).create_group(world.ben)
        for ben in bens:
            await ben.until(lambda me: any(frame.get("chat_id") == chat_id for frame in me.unasked))
        ann = await stack.enter_async_context(world.client(cluster["n1"], world.ann))
        assert (await ann.send_message(chat_id, "welcome"))["sequence"] == 1
        await asyncio.gather(*(ben.live_entry(chat_id, 1) for ben in bens))


@pytest.mark.timeout(90)
async def test_node_calls_without_the_secret_change_nothing(cluster: ClusterProcess) -> None:
    """Who does not know the cluster's secret can neither append, nor end a session, nor even ask."""
    async with world_on(cluster) as world, redis_of(cluster) as redis:
        nodes = await redis.nodes.alive()
        assert [node.node_id for node in nodes] == list(NAMES)
        draft = Draft(chat_id=world.chat_id, sender_id=world.ann.user_id, content="forged")
        ended = bodies.SessionsEnded("ntc_forged", [world.ann.session_id])
        calls = [
            (bodies.APPEND, bodies.pack([draft])),
            (bodies.NOTICES, bodies.pack([ended])),
            (bodies.PING, b""),
        ]
        async with world.client(cluster["n1"], world.ann) as ann:
            statuses = [
                await _foreign_call(world, node, path, body, secret)
                for node in nodes
                for path, body in calls
                for secret in (None, "", "a guess that is not the secret")
            ]
            assert set(statuses) == {401}
            assert (await ann.heartbeat())["type"] == "heartbeat_ack"
            assert await ann.sync_all(world.chat_id) == []


async def _foreign_call(world: ClusterWorld, node: Node, path: str, body: bytes, secret: str | None) -> int:
    """Without a proof, or with that of another secret."""
    headers = {}
    if secret is not None:
        call = NodeCall(node.target, "POST", path, body)
        proof = prove_call(CallKeys(ClusterKeys(secret)), call, wall_clock(), uuid.uuid4().bytes)
        headers = {CALL_TARGET: node.target, CALL_PROOF: proof}
    async with world.session.post(node.url + path, data=body, headers=headers) as answer:
        return answer.status


@pytest.mark.timeout(90)
async def test_drafts_go_to_the_node_that_has_their_chat(cluster: ClusterProcess) -> None:
    """What is sent to one node is appended by the other if the chat is the other's."""
    async with world_on(cluster) as world, world.client(cluster["n1"], world.ann) as ann:
        chat_id = await world.chat_appended_by("n2", [world.ben])
        before = await metric(world.session, cluster["n1"], "parley_forwarded_drafts_total")
        for number in range(5):
            assert (await ann.send_message(chat_id, f"{number}"))["type"] == "ack"
        assert await metric(world.session, cluster["n1"], "parley_forwarded_drafts_total") == before + 5
