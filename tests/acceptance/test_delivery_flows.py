"""The message flows of the high level design, chapter 3: one to one with both of its cases, and to a group.

Its user A is Ann, and its user B is Ben. Everything runs with SQLite on one server, and with DynamoDB, Kafka
and Redis on two nodes: there Ann is connected to one node, and Ben to the other.
"""

import asyncio
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any

import pytest

from tests.acceptance.flow_world import (
    HYBRID_MEMBERS,
    PHONE,
    READ_MEMBERS,
    Deployment,
    FlowWorld,
    cluster_deployment,
    flows_on,
    sqlite_deployment,
)
from tests.harness.clients import Frame, Person, RawClient
from tests.selection import thorough
from tests.waiting import eventually

CONNECTIONS = 6
FAR_FUTURE = "2099-01-01T00:00:00.000Z"

pytestmark = pytest.mark.timeout(180)  # Kafka and DynamoDB may have to be started first


ON_A_CLUSTER = (
    "test_flow_1_case_1_both_users_online",
    "test_flow_1_case_2_user_b_offline",
    "test_flow_2_steps_2_to_5_fan_out_and_store_once",
)
"""Where it matters on which node somebody is, in every run."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    cluster: Any = cluster_deployment
    if metafunc.function.__name__ not in ON_A_CLUSTER:
        cluster = thorough(cluster, "other flows show what differs between nodes")
    deployments = [sqlite_deployment, cluster]
    metafunc.parametrize("deployment", deployments, ids=["sqlite", "cluster"], indirect=True, scope="module")


@pytest.fixture(scope="module")
def deployment(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """Shared by all tests of this module, which stop none of it."""
    with request.param(tmp_path_factory.mktemp("flows")) as started:
        yield started


async def direct_chat(world: FlowWorld) -> tuple[Person, Person, str]:
    """Ann, Ben, whose phone can ring, and their chat."""
    ann, ben = await world.newcomers(2)
    await world.register_phone(ben)
    return ann, ben, await world.http(ann).create_direct(ben)


async def pending(client: RawClient, chat_id: str) -> list[str]:
    """What a client that comes back has not got yet, by the overview and a sync; it is acknowledged then."""
    rows = (await client.request("sync_overview"))["chats"]
    position = next(row["last_acked_sequence"] for row in rows if row["chat_id"] == chat_id)
    entries = await client.sync_all(chat_id, position)
    if entries:
        await acknowledge(client, chat_id, entries[-1]["sequence"])
    return [entry["content"] for entry in entries if entry["kind"] == "message"]


async def acknowledge(client: RawClient, chat_id: str, sequence: int) -> None:
    """Of what was synced: not recorded, because a recording checks acknowledgements by live entries alone."""
    await client.write({"type": "ack", "chat_id": chat_id, "last_acked_sequence": sequence})


# Flow 1: one to one


async def test_flow_1_case_1_both_users_online(deployment: Deployment) -> None:
    """Steps 1 to 8: the message goes over B's node to B, and A is told that it is delivered and read."""
    async with flows_on(deployment) as world:
        ann, ben, chat = await direct_chat(world)
        async with world.client(world.near, ann) as a, world.client(world.far, ben) as b:
            await world.until_presence(ann, ben, "online")
            ack = await a.send_message(chat, "hello")
            assert (ack["type"], ack["sequence"]) == ("ack", 1)
            entry = await b.live_entry(chat, 1)
            assert (entry["message_id"], entry["content"]) == (ack["message_id"], "hello")
            await world.until_status(ann, ack, "sent")
            assert not a.heard("receipt")
            await b.tell("ack", chat_id=chat, last_acked_sequence=1)
            await a.hear("receipt", kind="delivered", user_id=ben.user_id)
            await world.until_status(ann, ack, "delivered")
            await b.tell("read_receipt", chat_id=chat, read_up_to=1)
            await a.hear("receipt", kind="read", user_id=ben.user_id)
            await world.until_status(ann, ack, "read")


async def test_flow_1_case_1_each_step_is_in_the_timeline(deployment: Deployment) -> None:
    """Steps 2 to 7: stored, routed to B's node, sent to B's device by that node, and confirmed by it."""
    async with flows_on(deployment) as world:
        ann, ben, chat = await direct_chat(world)
        async with world.client(world.near, ann) as a, world.client(world.far, ben) as b:
            await world.until_presence(ann, ben, "online")
            ack = await a.send_message(chat, "hello")
            await b.live_entry(chat, 1)
            await b.tell("ack", chat_id=chat, last_acked_sequence=1)
            confirmed = await world.until_step(ack, "acknowledged", ben)
        assert confirmed["device_id"] == PHONE
        sent = await world.until_step(ack, "sent", ben)
        far = world.far.environment["PARLEY_CLUSTER_NODE"]
        assert (sent["device_id"], sent["node"]) == (PHONE, far)
        assert far in {step["node"] for step in await world.steps(ack, "routed")}
        assert len(await world.steps(ack, "stored")) == 1
        await world.until_step(ack, "published")
        assert not await world.steps(ack, "skipped", ben)


async def test_flow_1_case_2_user_b_offline(deployment: Deployment) -> None:
    """Steps 1 to 5 and later: A's message is sent, B's phone rings, B fetches it, and A is told so."""
    async with flows_on(deployment) as world:
        ann, ben, chat = await direct_chat(world)
        async with world.client(world.near, ann) as a:
            ack = await a.send_message(chat, "hello")
            assert (ack["type"], ack["sequence"]) == ("ack", 1)
            await world.until_status(ann, ack, "sent")
            await world.until_rung(ben, "hello")
            assert not a.heard("receipt")
            async with world.client(world.far, ben) as b:
                assert await pending(b, chat) == ["hello"]
                await a.hear("receipt", kind="delivered", user_id=ben.user_id)
                await world.until_status(ann, ack, "delivered")
        assert world.rings(ben) == ["hello"]


async def test_flow_1_case_2_each_step_is_in_the_timeline(deployment: Deployment) -> None:
    """Steps 2 to 4: B's device was not found connected, and the push provider took the ring."""
    async with flows_on(deployment) as world:
        ann, ben, chat = await direct_chat(world)
        async with world.client(world.near, ann) as a:
            ack = await a.send_message(chat, "hello")
            rung = await world.until_step(ack, "pushed", ben)
        assert (rung["device_id"], rung["detail"]) == (PHONE, "webhook: 200")
        skipped = await world.until_step(ack, "skipped", ben, "was not connected")
        assert skipped["device_id"] == PHONE
        assert not await world.steps(ack, "sent", ben)


async def test_flow_1_case_2_user_a_offline_when_it_is_delivered(deployment: Deployment) -> None:
    """A who was away when B fetched the message finds that it is delivered."""
    async with flows_on(deployment) as world:
        ann, ben, chat = await direct_chat(world)
        async with world.client(world.near, ann) as a:
            ack = await a.send_message(chat, "hello")
        await world.until_status(ann, ack, "sent")
        async with world.client(world.far, ben) as b:
            assert await pending(b, chat) == ["hello"]
            await b.heartbeat()
        await world.until_status(ann, ack, "delivered")


async def test_flow_1_user_b_reconnecting(deployment: Deployment) -> None:
    """B, whose connection breaks again and again while A writes, gets each message once and in order."""
    async with flows_on(deployment) as world:
        ann, ben, chat = await direct_chat(world)
        async with world.client(world.near, ann) as a:
            is_enough = asyncio.Event()
            writing = asyncio.create_task(write_until(is_enough, a, chat))
            got: list[Frame] = []
            for node in islice(cycle((world.far, world.near)), CONNECTIONS):
                got += await heard_until_cut(world.client(node, ben), chat, len(got))
            is_enough.set()
            acks = await writing
            async with world.client(world.far, ben) as b:
                got += await b.sync_all(chat, len(got))
                await acknowledge(b, chat, len(got))
                await world.until_status(ann, acks[-1], "delivered")
            assert [entry["message_id"] for entry in got] == [ack["message_id"] for ack in acks]
            assert [entry["sequence"] for entry in got] == list(range(1, len(acks) + 1))


async def write_until(is_enough: asyncio.Event, client: RawClient, chat_id: str) -> list[Frame]:
    """The acks of one message after the other."""
    acks: list[Frame] = []
    while not is_enough.is_set():
        acks.append(await client.send_message(chat_id, f"message {len(acks)}"))
    return acks


async def heard_until_cut(client: RawClient, chat_id: str, after: int) -> list[Frame]:
    """The entries after a position that a client syncs and then hears live, until its network is lost."""
    async with client:
        found = {entry["sequence"]: entry for entry in await client.sync_all(chat_id, after)}
        synced_up_to = max(found, default=after)
        await client.until(
            lambda me: any(entry["sequence"] > synced_up_to for entry in me.live_entries(chat_id))
        )
        client.abort()
        await client.until_ended()
    found |= {entry["sequence"]: entry for entry in client.live_entries(chat_id) if entry["sequence"] > after}
    return [found[sequence] for sequence in sorted(found)]


async def test_flow_1_user_b_has_blocked_user_a(deployment: Deployment) -> None:
    """A message to B, who blocked A on another node, is refused for good, not stored, and does not ring."""
    async with flows_on(deployment) as world:
        ann, ben, chat = await direct_chat(world)
        block = f"/v1/blocks/{ann.user_id}"
        async with world.client(world.near, ann) as a:
            assert (await world.http(ben, world.far).put(block)).status == 200
            refused = await a.send_message(chat, "blocked")
            assert (refused["type"], refused["code"], refused["temporary"]) == ("refused", "blocked", False)
            await world.http(ben, world.far).delete(block)
            assert (await a.send_message(chat, "welcome"))["sequence"] == 1
        await world.until_rung(ben, "welcome")
        async with world.client(world.far, ben) as b:
            assert await pending(b, chat) == ["welcome"]


async def test_flow_1_user_b_deleted(deployment: Deployment) -> None:
    """A message to a deleted account is refused for good and not stored."""
    async with flows_on(deployment) as world:
        ann, ben, chat = await direct_chat(world)
        deleted = await world.http(world.root, world.far).delete(f"/v1/admin/users/{ben.user_id}")
        assert deleted.status == 202
        async with world.client(world.near, ann) as a:
            refused = await a.send_message(chat, "hello")
            assert (refused["type"], refused["code"]) == ("refused", "user_deleted")
            assert refused["temporary"] is False
            assert await a.sync_all(chat) == []


async def test_flow_1_user_b_disabled(deployment: Deployment) -> None:
    """A message to a disabled account is stored and does not ring; once enabled, B fetches it."""
    async with flows_on(deployment) as world:
        ann, ben, chat = await direct_chat(world)
        operator, account = world.http(world.root, world.far), f"/v1/admin/users/{ben.user_id}"
        assert (await operator.post(f"{account}/disable", {})).status == 200
        async with world.client(world.near, ann) as a:
            ack = await a.send_message(chat, "hello")
            assert ack["type"] == "ack"
            await world.until_step(ack, "skipped", ben, "the account is disabled")
            await world.until_step(ack, "skipped", ben, "webhook: account_not_active")
            assert world.rings(ben) == []
            assert (await operator.post(f"{account}/enable", {})).status == 200
            again = await world.http(node=world.far).login(ben.username, PHONE)
            async with world.client(world.far, again) as b:
                assert await pending(b, chat) == ["hello"]
                await a.hear("receipt", kind="delivered", user_id=ben.user_id)


async def test_flow_1_user_b_has_muted_the_chat(deployment: Deployment) -> None:
    """Messages of a muted chat come live and wait for B like others, and do not ring."""
    async with flows_on(deployment) as world:
        ann, ben, chat = await direct_chat(world)
        settings = world.http(ben, world.far)
        assert (await settings.patch(f"/v1/chats/{chat}", {"muted_until": FAR_FUTURE})).status == 200
        async with world.client(world.near, ann) as a:
            async with world.client(world.far, ben) as b:
                await a.send_message(chat, "live")
                await b.live_entry(chat, 1)
                await b.tell("ack", chat_id=chat, last_acked_sequence=1)
                await a.hear("receipt", kind="delivered", user_id=ben.user_id)
            await world.until_presence(ann, ben, "offline")
            ack = await a.send_message(chat, "quiet")
            skipped = await world.until_step(ack, "skipped", ben, "webhook: muted")
            assert skipped["device_id"] == PHONE
            assert (await settings.patch(f"/v1/chats/{chat}", {"muted_until": None})).status == 200
            await a.send_message(chat, "loud")
            await world.until_rung(ben, "loud")
            async with world.client(world.far, ben) as b:
                assert await pending(b, chat) == ["quiet", "loud"]


# Flow 2: to a group


async def test_flow_2_step_1_only_members_send(deployment: Deployment) -> None:
    """Somebody else and a member who was just removed on another node are refused, and nothing is stored."""
    async with flows_on(deployment) as world:
        ann, ben, eve = await world.newcomers(3)
        group = await world.http(ann).create_group(ben)
        async with world.client(world.far, ben) as b, world.client(world.far, eve) as e:
            assert (await b.send_message(group, "hello"))["sequence"] == 1
            removed = await world.http(ann).delete(f"/v1/chats/{group}/members/{ben.user_id}")
            assert removed.status in (200, 204)
            for outsider in (b, e):
                refused = await outsider.send_message(group, "let me in")
                assert (refused["type"], refused["code"]) == ("refused", "not_a_member")
        async with world.client(world.near, ann) as a:
            assert await pending(a, group) == ["hello"]


async def test_flow_2_steps_2_to_5_fan_out_and_store_once(deployment: Deployment) -> None:
    """Members who are online get the message live, the one who is offline rings, and the log has it once."""
    async with flows_on(deployment) as world:
        ann, ben, eve = await world.newcomers(3)
        await world.register_phone(ben, eve)
        group = await world.http(ann).create_group(ben, eve)
        assert await world.fanout(group) == ("write", 3)
        async with world.client(world.near, ann) as a, world.client(world.far, ben) as b:
            await world.until_presence(ann, ben, "online")
            ack = await a.send_message(group, "Hello group!")
            for member in (a, b):
                assert (await member.live_entry(group, 1))["message_id"] == ack["message_id"]
            await world.until_rung(eve, "Hello group!")
            async with world.client(world.far, eve) as e:
                for member in (a, b, e):
                    stored = [entry["message_id"] for entry in await member.sync_all(group)]
                    assert stored == [ack["message_id"]]
        await world.until_step(ack, "sent", ben)
        await world.until_step(ack, "pushed", eve, "webhook: 200")


async def test_flow_2_step_4_the_same_member_online_and_offline(deployment: Deployment) -> None:
    """A member's phone does not ring for what comes live, also if it rings for others, and does later."""
    async with flows_on(deployment) as world:
        ann, ben, eve = await world.newcomers(3)
        await world.register_phone(ben, eve)
        group = await world.http(ann).create_group(ben, eve)
        async with world.client(world.near, ann) as a:
            async with world.client(world.far, ben) as b:
                await world.until_presence(ann, ben, "online")
                await a.send_message(group, "online")
                await b.live_entry(group, 1)
                await world.until_rung(eve, "online")
            await world.until_presence(ann, ben, "offline")
            await a.send_message(group, "offline")
            await world.until_rung(eve, "online", "offline")
            await world.until_rung(ben, "offline")


async def test_flow_2_strategies_by_the_size_of_the_group(deployment: Deployment) -> None:
    """Small and middle groups ring for each message, a large one for mentions only; all are fetched."""
    async with flows_on(deployment) as world:
        ann, ben, *others = await world.newcomers(READ_MEMBERS)
        await world.register_phone(ben)
        sizes = {"write": HYBRID_MEMBERS - 1, "hybrid": HYBRID_MEMBERS, "read": READ_MEMBERS}
        groups = {
            strategy: await world.http(ann).create_group(ben, *others[: size - 2])
            for strategy, size in sizes.items()
        }
        shown = {strategy: await world.fanout(group) for strategy, group in groups.items()}
        assert shown == {strategy: (strategy, size) for strategy, size in sizes.items()}
        async with world.client(world.near, ann) as a:
            await a.send_message(groups["read"], "read")
            await a.send_message(groups["write"], "write")
            await world.until_rung(ben, "write")
            await a.send_message(groups["hybrid"], "hybrid")
            await world.until_rung(ben, "write", "hybrid")
            await a.send_message(groups["read"], "you", mentions=[ben.user_id])
            await world.until_rung(ben, "write", "hybrid", "you")
        async with world.client(world.far, ben) as b:
            assert await pending(b, groups["read"]) == ["read", "you"]
            assert await pending(b, groups["write"]) == ["write"]


async def test_flow_2_a_member_has_blocked_the_sender(deployment: Deployment) -> None:
    """The message is stored and rings for others in the group, and not for the one who blocked its sender."""
    async with flows_on(deployment) as world:
        ann, ben, eve = await world.newcomers(3)
        await world.register_phone(ben, eve)
        group = await world.http(ann).create_group(ben, eve)
        assert (await world.http(ben, world.far).put(f"/v1/blocks/{ann.user_id}")).status == 200
        async with world.client(world.near, ann) as a:
            ack = await a.send_message(group, "from ann")
            await world.until_rung(eve, "from ann")
        await world.until_step(ack, "skipped", ben, "has blocked the sender")
        async with world.client(world.far, eve) as e:
            await e.send_message(group, "from eve")
        await world.until_rung(ben, "from eve")


async def test_flow_2_a_member_was_deleted(deployment: Deployment) -> None:
    """The message rings for others, not for a deleted member, who has left the group as the timeline says."""
    async with flows_on(deployment) as world:
        ann, ben, eve = await world.newcomers(3)
        await world.register_phone(ben, eve)
        group = await world.http(ann).create_group(ben, eve)
        await world.http(world.root, world.far).delete(f"/v1/admin/users/{ben.user_id}")

        async def has_left() -> bool:
            return await world.fanout(group) == ("write", 2)

        await eventually(has_left)
        async with world.client(world.near, ann) as a:
            ack = await a.send_message(group, "hello")
        await world.until_rung(eve, "hello")
        (skipped,) = await world.steps(ack, "skipped", ben)
        assert skipped["detail"] == "left before it, at 1"
        assert world.rings(ben) == []
