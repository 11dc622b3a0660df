"""Three nodes, each a process: people on different ones talk, and no failure of a node costs a message."""

import asyncio
import uuid
from collections.abc import Iterator

import pytest

from parley.wire import codes
from tests.integration.cluster.processes import (
    SLOW_SECONDS_MAX,
    Heard,
    ThreeNodes,
    Town,
    a_town,
    metric,
    stop,
    wake,
)
from tests.waiting import deadline, eventually

HEARD_SECONDS_MAX = 10.0

pytestmark = pytest.mark.timeout(180)  # Kafka and DynamoDB may have to be started first


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeNodes]:
    nodes = ThreeNodes(tmp_path_factory.mktemp("nodes"))
    yield nodes
    nodes.close()


async def test_people_on_different_nodes_hear_each_other(nodes: ThreeNodes) -> None:
    """What Ann says on one node Ben hears live on another, without a hole and in order."""
    async with (
        a_town(nodes) as town,
        town.at(nodes.front, town.ann) as ann,
        town.at(nodes.both, town.ben) as ben,
    ):
        await asyncio.gather(*(town.say(ann, chat_id) for chat_id in town.chats * 10))
        for chat_id in town.chats:
            await ben.live_entry(chat_id, 10)
            assert [entry["sequence"] for entry in ben.live_entries(chat_id)] == list(range(1, 11))
        assert await metric(town.session, nodes.front, "parley_forwarded_drafts_total") > 0


async def test_an_ack_precedes_its_own_entry_across_nodes(nodes: ThreeNodes) -> None:
    """The ack comes by a call and the entry by the bus, and still the sender gets the ack first."""
    heard = Heard()
    async with a_town(nodes) as town, town.at(nodes.front, town.ann, heard) as ann:
        for _ in range(20):
            await asyncio.gather(*(town.say(ann, chat_id) for chat_id in town.chats))
        for chat_id in town.chats:
            await ann.live_entry(chat_id, 20)
    acks = {message_id: at for at, (kind, message_id) in enumerate(heard.order) if kind == "ack"}
    entries = {message_id: at for at, (kind, message_id) in enumerate(heard.order) if kind == "entry"}
    assert len(acks) == len(entries) == 20 * len(town.chats)
    assert all(acks[message_id] < at for message_id, at in entries.items())


async def test_a_chat_is_known_on_every_node_at_once(nodes: ThreeNodes) -> None:
    """Ben is told of a chat that Ann creates on another node, and hears its first message live."""
    async with (
        a_town(nodes) as town,
        town.at(nodes.front, town.ann) as ann,
        town.at(nodes.both, town.ben) as ben,
    ):
        chat_id = await town.ann_http.create_group(town.ben)
        await ben.until(lambda client: any(frame.get("chat_id") == chat_id for frame in client.unasked))
        town.sent[chat_id] = []
        await town.say(ann, chat_id)
        assert (await ben.live_entry(chat_id, 1))["sender_id"] == town.ann.user_id


async def test_a_revoked_session_ends_on_every_node(nodes: ThreeNodes) -> None:
    """Its sockets close at once, wherever they are and wherever it was revoked."""
    async with a_town(nodes) as town:
        laptop = await town.ben_http.login(town.ben.username, "laptop")
        async with town.at(nodes.front, laptop) as here, town.at(nodes.both, laptop) as there:
            path = f"/v1/sessions/{laptop.session_id}"
            assert (await town.ann_http.of(town.ben).request("DELETE", path)).status == 204
            async with deadline(HEARD_SECONDS_MAX):
                ends = [await here.until_ended(), await there.until_ended()]
        assert [end.code for end in ends] == [codes.REVOKED.code] * 2


async def test_a_stopped_node_costs_no_message(nodes: ThreeNodes) -> None:
    """Others append for a node that hangs longer than its lease; when it wakes up, nothing is there twice."""
    async with a_town(nodes) as town, town.at(nodes.front, town.ann) as ann:
        async with town.talk(ann):
            stop(nodes.back)
            try:
                await town.more(50)
                await eventually(lambda: knows_of(town, 2), SLOW_SECONDS_MAX)
                await town.more(50)
            finally:
                wake(nodes.back)
            await nodes.be_well(town.session)
            await town.more(50)
        assert await town.logs(ann) == town.sent


async def test_a_killed_node_costs_no_message(nodes: ThreeNodes) -> None:
    """Its chats are appended by the other one; it comes back and takes its share again."""
    async with a_town(nodes) as town, town.at(nodes.front, town.ann) as ann:
        async with town.talk(ann):
            await asyncio.to_thread(nodes.back.kill)
            await town.more(50)
            await nodes.be_well(town.session)
            await town.more(50)
        assert await town.logs(ann) == town.sent


async def test_a_rolling_restart_costs_no_message(nodes: ThreeNodes) -> None:
    """Nodes that append go away and come back one after the other, each with status 0."""
    async with a_town(nodes) as town, town.at(nodes.front, town.ann) as ann:
        async with town.talk(ann):
            for node in (nodes.back, nodes.both):
                assert await asyncio.to_thread(node.terminate) == 0
                await nodes.be_well(town.session)
                await town.more(50)
        assert await town.logs(ann) == town.sent


async def test_without_anybody_to_append_sends_are_refused_as_temporary(nodes: ThreeNodes) -> None:
    """A gateway never appends itself; it says to come again, and the sends go on with the first node."""
    async with a_town(nodes) as town, town.at(nodes.front, town.ann) as ann:
        for node in (nodes.back, nodes.both):
            await asyncio.to_thread(node.kill)
        refused = await ann.send_message(town.chats[0], "too early", str(uuid.uuid4()))
        assert (refused["type"], refused["temporary"]) == ("refused", True)
        await nodes.be_well(town.session)
        await town.say(ann, town.chats[0])
        assert await town.logs(ann) == town.sent


async def test_without_redis_sends_go_on(nodes: ThreeNodes) -> None:
    """The last known nodes count while the list is away; when it is back, so are all nodes on it."""
    async with (
        a_town(nodes) as town,
        town.at(nodes.front, town.ann) as ann,
        town.at(nodes.both, town.ben) as ben,
    ):
        async with town.talk(ann):
            await asyncio.to_thread(nodes.services.kill, "redis")
            await town.more(50)
            await asyncio.to_thread(nodes.services.start, "redis")
            await nodes.be_well(town.session)
        for chat_id, contents in town.sent.items():
            await ben.live_entry(chat_id, len(contents))
        assert await town.logs(ann) == town.sent


async def knows_of(town: Town, count: int) -> bool:
    return await metric(town.session, town.nodes.front, "parley_nodes") == count
