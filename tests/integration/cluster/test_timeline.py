"""The timeline of a message across processes: each node is asked, and one that is silent is named."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.clients import HttpClient
from tests.harness.server import parley_command, run_command
from tests.integration.cluster.processes import SLOW_SECONDS_MAX, ThreeNodes, Town, a_town, stop, wake
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(180)  # Kafka and DynamoDB may have to be started first

Steps = list[dict[str, Any]]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeNodes]:
    nodes = ThreeNodes(tmp_path_factory.mktemp("nodes"))
    nodes.add_operator("root")
    yield nodes
    nodes.close()


async def operator(nodes: ThreeNodes, town: Town) -> HttpClient:
    http = HttpClient(town.session, nodes.front.url)
    return http.of(await http.login("root", "console"))


async def timeline(root: HttpClient, message_id: str) -> Steps:
    answer = await root.get(f"/v1/admin/messages/{message_id}/timeline")
    assert answer.status == 200, answer
    steps: Steps = answer.body["steps"]
    return steps


def nodes_of(steps: Steps, name: str) -> set[str]:
    return {step.get("node", "") for step in steps if step["step"] == name}


async def until_everywhere(root: HttpClient, message_id: str) -> None:
    """Ben had it before the front confirmed its copy, perhaps."""

    async def is_everywhere() -> bool:
        steps = await timeline(root, message_id)
        is_published = nodes_of(steps, "published") == nodes_of(steps, "stored")
        return is_published and nodes_of(steps, "routed") == {"front", "both"}

    await eventually(is_everywhere, SLOW_SECONDS_MAX)


async def said_to_ben(nodes: ThreeNodes, town: Town) -> str:
    """What Ann says on the front reaches Ben's phone on another node; the id of the message."""
    async with town.at(nodes.front, town.ann) as ann, town.at(nodes.both, town.ben) as ben:
        ack = await ann.send_message(town.chats[0], "hello")
        town.sent[town.chats[0]].append("hello")
        await ben.live_entry(town.chats[0], ack["sequence"])
        await ben.tell("ack", chat_id=town.chats[0], last_acked_sequence=ack["sequence"])
        await ben.heartbeat()
    return str(ack["message_id"])


async def test_a_message_to_a_device_on_another_node(nodes: ThreeNodes) -> None:
    """Stored by a node that appends, published by it, routed to both gateways, sent by Ben's."""
    async with a_town(nodes) as town:
        message_id, root = await said_to_ben(nodes, town), await operator(nodes, town)
        await until_everywhere(root, message_id)
        steps = await timeline(root, message_id)
        assert nodes_of(steps, "accepted") == nodes_of(steps, "stored") <= {"both", "back"}
        sent = {(step["user_id"], step["node"]) for step in steps if step["step"] == "sent"}
        assert sent == {(town.ann.user_id, "front"), (town.ben.user_id, "both")}
        (acknowledged,) = [step for step in steps if step["step"] == "acknowledged"]
        assert (acknowledged["user_id"], acknowledged["device_id"]) == (town.ben.user_id, "phone")


async def test_a_message_to_a_person_who_is_offline(nodes: ThreeNodes) -> None:
    """No node sent it to Ben, and all of them say so."""
    async with a_town(nodes) as town:
        async with town.at(nodes.front, town.ann) as ann:
            ack = await ann.send_message(town.chats[0], "hello")
            town.sent[town.chats[0]].append("hello")
        steps = await timeline(await operator(nodes, town), ack["message_id"])
        (skipped,) = [step for step in steps if step.get("user_id") == town.ben.user_id]
        assert skipped["step"] == "skipped"
        assert skipped["detail"].startswith("was not connected")


async def test_a_node_that_does_not_answer_is_named_in_the_answer(nodes: ThreeNodes) -> None:
    """The rest is told in time, and nobody claims that Ben's device was not sent it."""
    async with a_town(nodes) as town:
        message_id, root = await said_to_ben(nodes, town), await operator(nodes, town)
        await until_everywhere(root, message_id)
        stop(nodes.both)
        try:
            steps = await timeline(root, message_id)
        finally:
            wake(nodes.both)
        (silent,) = [step for step in steps if step["step"] == "skipped" and step.get("node") == "both"]
        assert "did not say what it sent" in silent["detail"]
        assert nodes_of(steps, "routed") == {"front"}

        async def is_back() -> bool:
            return "both" in nodes_of(await timeline(root, message_id), "routed")

        await eventually(is_back, SLOW_SECONDS_MAX)


async def test_the_command_asks_the_nodes_by_itself(nodes: ThreeNodes) -> None:
    """`parley explain` knows the cluster's secret: it needs no operator."""
    async with a_town(nodes) as town:
        message_id = await said_to_ben(nodes, town)
        command = [*parley_command(), "explain", message_id, "--json"]
        told = await asyncio.to_thread(
            run_command, command, environment=nodes.environment, timeout_seconds=SLOW_SECONDS_MAX
        )
        assert told.returncode == 0, told.stderr
        assert '"step":"sent","node":"both"' in told.stdout
