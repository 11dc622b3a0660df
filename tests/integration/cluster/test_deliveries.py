"""Webhooks of a cluster: two nodes deliver, over real Kafka and DynamoDB."""

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from tests.integration.cli.running import Run, parley
from tests.integration.cluster.processes import ThreeNodes, a_town, metric
from tests.integration.gateway.test_webhook_channel import Receiver, receiving
from tests.waiting import eventually

ALLOW = {"PARLEY_WEBHOOKS_ALLOWED_NETWORKS": "127.0.0.0/8"}
SLOW_SECONDS_MAX = 90.0
"""A claim of a dead worker, a look at due queues, and a busy machine."""

AWAY_SECONDS = 20.0

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeNodes]:
    nodes = ThreeNodes(tmp_path_factory.mktemp("nodes"))
    for node in nodes.nodes:
        node.environment |= ALLOW
    yield nodes
    nodes.close()


async def command(nodes: ThreeNodes, *arguments: str) -> Run:
    """As an operator runs it, beside the nodes."""
    environment = {**nodes.front.environment, "PARLEY_CLUSTER_NODE": "cli"}
    run = await asyncio.to_thread(lambda: parley(*arguments, environment=environment))
    assert run.status == 0, run.stderr
    return run


def heard(receiver: Receiver, chat_id: str) -> list[str]:
    """What each event of a chat says, in the order in which the receiver first saw it."""
    seen: dict[str, str] = {}
    for _, body in receiver.got:
        event = msgspec.json.decode(body)
        if event["chat_id"] == chat_id:
            seen.setdefault(event["event_id"], event["data"]["content"])
    return list(seen.values())


async def test_a_killed_worker_costs_nothing_and_the_order_is_kept(nodes: ThreeNodes) -> None:
    """One of two nodes that deliver is killed: every event comes, in the order of its chat."""
    async with (
        receiving() as receiver,
        a_town(nodes) as town,
        town.at(nodes.front, town.ann) as ann,
    ):
        url = f"http://127.0.0.1:{receiver.port}/"
        hook = (await command(nodes, "webhook", "add", url, "--json")).json["webhook_id"]
        async with town.talk(ann):
            await eventually(lambda: len(receiver.got) > 20, SLOW_SECONDS_MAX)
            await asyncio.to_thread(nodes.both.kill)
            await town.more(60)
        wanted = {chat_id: sorted(town.sent[chat_id], key=int) for chat_id in town.chats}

        def is_all_heard() -> bool:
            return all(len(heard(receiver, chat_id)) >= len(wanted[chat_id]) for chat_id in town.chats)

        await eventually(is_all_heard, SLOW_SECONDS_MAX)
        assert {chat_id: heard(receiver, chat_id) for chat_id in town.chats} == wanted
        assert await metric(town.session, nodes.back, "parley_delivery_outcomes_total") > 0
        await command(nodes, "webhook", "remove", hook)
        assert (await command(nodes, "dlq", "list", "--json")).json["total"] == 0


async def test_a_receiver_that_was_away_gets_everything_once(nodes: ThreeNodes) -> None:
    """It answers 503 for 20 s: retries wait in the topics, and nothing is done by hand."""
    async with (
        receiving() as receiver,
        a_town(nodes) as town,
        town.at(nodes.front, town.ann) as ann,
    ):
        receiver.status = 503
        url = f"http://127.0.0.1:{receiver.port}/"
        hook = (await command(nodes, "webhook", "add", url, "--json")).json["webhook_id"]
        for _ in range(4):
            for chat_id in town.chats:
                await town.say(ann, chat_id)
            await asyncio.sleep(AWAY_SECONDS / 4)
        (shown,) = (await command(nodes, "webhook", "list", "--json")).json["webhooks"]
        assert (shown["state"], shown["last_error"]) == ("paused", "server_error")
        receiver.got.clear()
        receiver.status = 200
        owed = 4 * len(town.chats)
        await eventually(lambda: len(receiver.got) >= owed, SLOW_SECONDS_MAX)
        await asyncio.sleep(3)
        assert len(receiver.got) == owed, "each came once"
        for chat_id in town.chats:
            assert heard(receiver, chat_id) == town.sent[chat_id]
        assert (await command(nodes, "dlq", "list", "--to", hook, "--json")).json["total"] == 0
        await command(nodes, "webhook", "remove", hook)


async def test_what_is_dead_comes_back_once(nodes: ThreeNodes) -> None:
    """A receiver that refuses, dead letters, a replay that a command asks for; asked again, nothing more."""
    async with (
        receiving() as receiver,
        a_town(nodes) as town,
        town.at(nodes.front, town.ann) as ann,
    ):
        receiver.status = 400
        url = f"http://127.0.0.1:{receiver.port}/"
        hook = (await command(nodes, "webhook", "add", url, "--json")).json["webhook_id"]
        for _ in range(2):
            for chat_id in town.chats:
                await town.say(ann, chat_id)
        dead = 2 * len(town.chats)

        async def are_dead() -> bool:
            return int((await command(nodes, "dlq", "list", "--to", hook, "--json")).json["total"]) == dead

        await eventually(are_dead, SLOW_SECONDS_MAX)
        listed = (await command(nodes, "dlq", "list", "--to", hook, "--json")).json
        assert listed["groups"] == [{"error": "refused", "count": dead}]
        assert len(receiver.got) == dead, "each was tried once, and no more"
        receiver.got.clear()
        receiver.status = 200
        dry = (await command(nodes, "dlq", "replay", "--to", hook, "--json")).json
        assert (dry["matched"], dry["job_id"]) == (dead, None)
        job = (await command(nodes, "dlq", "replay", "--to", hook, "--apply", "--json")).json
        assert job["matched"] == dead
        again = (await command(nodes, "dlq", "replay", "--to", hook, "--apply", "--json")).json
        assert again["matched"] == 0
        await eventually(lambda: len(receiver.got) >= dead, SLOW_SECONDS_MAX)
        await asyncio.sleep(3)
        assert len(receiver.got) == dead
        for chat_id in town.chats:
            assert heard(receiver, chat_id) == town.sent[chat_id]
        shown = (await command(nodes, "dlq", "list", "--to", hook, "--status", "replayed", "--json")).json
        assert shown["total"] == dead
