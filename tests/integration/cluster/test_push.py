"""Rings of a cluster: one node takes messages, another one rings, over real Kafka and DynamoDB."""

from collections.abc import Iterator

import msgspec
import pytest
from aiohttp import ClientSession

from tests.harness.clients import HttpClient
from tests.integration.cluster.processes import ThreeNodes
from tests.integration.gateway.serving import message
from tests.integration.gateway.test_webhook_channel import Receiver, receiving
from tests.waiting import eventually

ALLOW = {"PARLEY_PUSH_ALLOWED_NETWORKS": "127.0.0.0/8"}
SLOW_SECONDS_MAX = 90.0

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeNodes]:
    """`back` has the role push, and no other node has."""
    nodes = ThreeNodes(tmp_path_factory.mktemp("nodes"))
    for node in nodes.nodes:
        node.environment |= ALLOW
    nodes.back.arguments[-1] += ",push"
    yield nodes
    nodes.close()


def contents(receiver: Receiver) -> list[str]:
    return [msgspec.json.decode(body)["content"] for _, body in receiver.got]


async def test_a_node_with_the_role_rings(nodes: ThreeNodes) -> None:
    """A person who is away is rung; connected to another node, they are not; and every node has one key."""
    async with receiving() as receiver, ClientSession() as session:
        await nodes.be_well(session)
        front, both = HttpClient(session, nodes.front.url), HttpClient(session, nodes.both.url)
        ann, ben = await front.newcomer("ann_push"), await front.newcomer("ben_push")
        chat = await front.of(ann).create_group(ben)
        body = {"provider": "webhook", "token": f"http://127.0.0.1:{receiver.port}/"}
        answer = await front.of(ben).put("/v1/me/push/phone", body)
        assert answer.status == 200, answer
        keys = [(await one.of(ann).get("/v1/push/vapid")).body["public_key"] for one in (front, both)]
        assert keys[0] == keys[1]
        await front.of(ann).post(f"/v1/chats/{chat}/messages", message("away"))
        await eventually(lambda: contents(receiver) == ["away"], SLOW_SECONDS_MAX)
        await both.of(ann).post(f"/v1/chats/{chat}/messages", message("you", mentions=[ben.user_id]))
        await eventually(lambda: contents(receiver) == ["away", "you"], SLOW_SECONDS_MAX)
