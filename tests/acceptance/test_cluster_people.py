"""People on two real nodes with real services notice of each other what they would on one."""

from collections.abc import Iterator

import pytest

from parley.wire import codes
from tests.acceptance.cluster_world import world_on
from tests.clusters import ATOMIC, nodes_on_shared_services
from tests.harness.cluster import ClusterProcess
from tests.waiting import eventually

NAMES = ("n1", "n2")

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    """Two nodes that nobody breaks."""
    with nodes_on_shared_services(tmp_path_factory.mktemp("people"), NAMES, ATOMIC) as started:
        yield started


async def test_receipts_cross_nodes(cluster: ClusterProcess) -> None:
    """The sender on one node gets the ticks of a reader on another, whose other devices are told too."""
    one, two = cluster["n1"], cluster["n2"]
    async with world_on(cluster) as world:
        chat = world.chat_id
        tablet = await world.http(two).login(world.ben.username, "tablet")
        async with (
            world.client(one, world.ann) as sender,
            world.client(two, world.ben) as reader,
            world.client(one, tablet) as other,
        ):
            sequence = (await sender.send_message(chat, "hi"))["sequence"]
            await reader.live_entry(chat, sequence)
            await reader.tell("ack", chat_id=chat, last_acked_sequence=sequence)
            await sender.hear("receipt", kind="delivered", user_id=world.ben.user_id)
            await reader.tell("read_receipt", chat_id=chat, read_up_to=sequence)
            await sender.hear("receipt", kind="read", user_id=world.ben.user_id)
            await other.hear("receipt", kind="read", user_id=world.ben.user_id)
            row = next(
                row for row in (await other.request("sync_overview"))["chats"] if row["chat_id"] == chat
            )
            assert (row["unread"], row["read_up_to"]) == (0, sequence)
        answer = await world.http(one, world.ann).get(f"/v1/chats/{chat}/messages/{sequence}/receipts")
        assert (answer.body["status"], answer.body["member_count"]) == ("read", 1)


async def test_an_ack_says_that_positions_before_it_are_stored(cluster: ClusterProcess) -> None:
    """What a connection said before a message is in the store when the message is acknowledged."""
    one, two = cluster["n1"], cluster["n2"]
    async with world_on(cluster) as world, world.client(two, world.ben) as reader:
        chat = world.chat_id
        async with world.client(one, world.ann) as sender:
            await sender.send_message(chat, "1")
            sequence = (await sender.send_message(chat, "2"))["sequence"]
        await reader.live_entry(chat, sequence)
        await reader.tell("ack", chat_id=chat, last_acked_sequence=sequence)
        await reader.tell("read_receipt", chat_id=chat, read_up_to=sequence - 1)
        assert (await reader.send_message(chat, "thanks"))["type"] == "ack"
        rows = (await world.http(one, world.ben).get("/v1/chats")).body["chats"]
        row = next(row for row in rows if row["chat_id"] == chat)
        assert (row["last_acked_sequence"], row["read_up_to"]) == (sequence, sequence - 1)


async def test_typing_and_presence_cross_nodes(cluster: ClusterProcess) -> None:
    """Typing, coming, going and hiding are noticed on the other node."""
    one, two = cluster["n1"], cluster["n2"]
    async with world_on(cluster) as world, world.client(one, world.ann) as viewer:
        ben = world.ben.user_id
        state = await viewer.request("presence_subscribe", user_ids=[ben])
        assert state["presences"][0]["status"] == "offline"
        async with world.client(two, world.ben) as client:
            await viewer.hear("presence", user_id=ben, status="online")
            await client.tell("typing_start", conv_id=world.chat_id)
            shown = await viewer.hear("typing", user_id=ben)
            assert (shown["chat_id"], shown["expires_in_ms"]) == (world.chat_id, 5_000)
            await world.http(two, world.ben).patch("/v1/me", {"last_seen_privacy": "nobody"})
            await viewer.hear("presence", user_id=ben, status="offline", last_seen="unavailable")
            await world.http(two, world.ben).patch("/v1/me", {"last_seen_privacy": "everyone"})
            await eventually(lambda: viewer.heard("presence", user_id=ben)[-1]["status"] == "online")
        await eventually(lambda: viewer.heard("presence", user_id=ben)[-1]["status"] == "offline")
        gone = viewer.heard("presence", user_id=ben)[-1]
        assert gone["last_seen"] not in (None, "unavailable")

        async def is_stored() -> bool:
            answer = await world.http(one, world.ann).get("/v1/presence", user_ids=ben)
            return bool(answer.body["presences"][0]["last_seen"])

        await eventually(is_stored)


async def test_a_block_holds_on_every_node(cluster: ClusterProcess) -> None:
    """Once a block is answered on one node, nothing the blocked one sends through another is stored."""
    one, two = cluster["n1"], cluster["n2"]
    async with world_on(cluster) as world:
        chat = await world.http(one, world.ann).create_direct(world.ben)
        async with world.client(two, world.ben) as client:
            assert (await client.send_message(chat, "before"))["type"] == "ack"
            assert (await world.http(one, world.ann).put(f"/v1/blocks/{world.ben.user_id}")).status == 200
            for _ in range(3):
                refused = await client.send_message(chat, "after")
                assert (refused["type"], refused["code"]) == ("refused", "blocked")
            await world.http(one, world.ann).delete(f"/v1/blocks/{world.ben.user_id}")
            assert (await client.send_message(chat, "again"))["type"] == "ack"


async def test_a_device_removed_on_one_node_ends_on_another(cluster: ClusterProcess) -> None:
    """Removing a device closes its sockets wherever they are."""
    one, two = cluster["n1"], cluster["n2"]
    async with world_on(cluster) as world:
        laptop = await world.http(two).login(world.ben.username, "laptop")
        async with world.client(two, laptop) as lost:
            answer = await world.http(one, world.ben).delete("/v1/devices/laptop")
            assert answer.status == 204
            assert (await lost.until_ended()).code == codes.REVOKED.code
