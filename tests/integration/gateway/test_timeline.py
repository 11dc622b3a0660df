"""What a real server tells an operator of one message: who got it, who did not, and why."""

import asyncio
from typing import Any

from parley.clock import wall_clock
from tests.harness.clients import Answer, Person
from tests.integration.gateway.serving import Place, Served, assert_refused, message
from tests.integration.gateway.test_deliveries import ALLOW, add_hook, dead
from tests.integration.gateway.test_webhook_channel import receiving
from tests.waiting import eventually

FAR = "2099-01-01T00:00:00Z"


async def explained(served: Served, root: Person, message_id: str, **query: str) -> list[dict[str, Any]]:
    answer: Answer = await served.as_(root).get(f"/v1/admin/messages/{message_id}/timeline", **query)
    assert answer.status == 200, answer
    assert answer.body["message_id"] == message_id
    steps: list[dict[str, Any]] = answer.body["steps"]
    assert [step["at"] for step in steps] == sorted(step["at"] for step in steps)
    return steps


def of(steps: list[dict[str, Any]], name: str, person: Person | None = None) -> list[dict[str, Any]]:
    """The steps with this name, and of this person if one is given."""
    return [
        step
        for step in steps
        if step["step"] == name and (person is None or step.get("user_id") == person.user_id)
    ]


async def test_the_timeline_of_a_message_that_arrives(place: Place) -> None:
    """Accepted, stored, published, routed, sent to the device, acknowledged and read, in this order."""
    async with place.serving() as served:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        async with served.client(ben) as client:
            (sent,) = await served.said(ann, chat, "hello")
            await client.live_entry(chat, 1)
            await asyncio.sleep(0.01)
            await client.tell("ack", chat_id=chat, last_acked_sequence=1)
            await client.heartbeat()
            await asyncio.sleep(0.01)
            await client.tell("read_receipt", chat_id=chat, read_up_to=1)
            await client.heartbeat()
            steps = await explained(served, root, sent["message_id"])
        names = [step["step"] for step in steps if step["step"] != "skipped"]
        assert names == ["accepted", "stored", "published", "routed", "sent", "acknowledged", "read"]
        (device,) = of(steps, "sent")
        assert (device["user_id"], device["device_id"]) == (ben.user_id, "phone")
        assert device["node"] == served.app.node_id
        assert not of(steps, "skipped", ben)


async def test_a_message_to_a_device_that_is_away(place: Place) -> None:
    """It says which device is not connected and how far it is; the one that was is not named."""
    async with place.serving() as served:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        laptop = await served.http.login("ben", "laptop")
        chat = await served.as_(ann).create_group(ben)
        async with served.client(laptop):
            pass
        async with served.client(ben) as client:
            (sent,) = await served.said(ann, chat, "hello")
            await client.live_entry(chat, 1)
            heard_ms = wall_clock()
            await eventually(lambda: wall_clock() > heard_ms)  # who goes in the same ms may have missed it
        steps = await explained(served, root, sent["message_id"])
        assert [step["device_id"] for step in of(steps, "sent", ben)] == ["phone"]
        (skipped,) = of(steps, "skipped", ben)
        assert skipped["device_id"] == "laptop"
        assert "was not connected" in skipped["detail"]


async def test_a_message_to_people_who_are_not_reached(place: Place) -> None:
    """Removed before it, joined after it, muted, blocking the sender, logged in nowhere: each with why."""
    async with place.serving() as served:
        root = await served.operator()
        ann, ben, cem, dora, eve, fay = await served.people("ann", "ben", "cem", "dora", "eve", "fay")
        chat = await served.as_(ann).create_group(ben, cem, dora, fay)
        await served.as_(ann).delete(f"/v1/chats/{chat}/members/{ben.user_id}")
        await served.as_(cem).patch(f"/v1/chats/{chat}", {"muted_until": FAR})
        await served.as_(dora).put(f"/v1/blocks/{ann.user_id}")
        await served.as_(root).delete(f"/v1/admin/users/{fay.user_id}/sessions")
        (sent,) = await served.said(ann, chat, "hello")
        await served.as_(ann).post(f"/v1/chats/{chat}/members", {"user_id": eve.user_id})
        steps = await explained(served, root, sent["message_id"])

        def why(person: Person) -> str:
            return " / ".join(step["detail"] for step in of(steps, "skipped", person))

        assert why(ben) == "removed before it, at 1"
        assert "the chat was muted" in why(cem)
        assert "has blocked the sender" in why(dora)
        assert why(eve) == "joined at 3, not before it"
        assert why(fay) == "is logged in on no device"
        only = await explained(served, root, sent["message_id"], user_id=eve.user_id, chat_id=chat)
        assert {step.get("user_id") for step in only} == {None, eve.user_id}


async def test_a_message_that_a_webhook_refused(place: Place) -> None:
    """Its dead letter is part of its story: dead, discarded, and by whom; not of the message after it."""
    async with place.serving(ALLOW) as served, receiving() as receiver:
        root, (ann,) = await served.operator(), await served.people("ann")
        chat = await served.as_(ann).create_group()
        await add_hook(served, root, receiver)
        receiver.status = 400
        first, second = await served.said(ann, chat, "one", "two")
        page = await dead(served, root, 2)
        order = {"ids": [page["records"][-1]["dlq_id"]], "reason": "gone"}
        await served.as_(root).post("/v1/admin/dlq/discard", order)
        steps = await explained(served, root, first["message_id"])
        assert [len(of(steps, name)) for name in ("retried", "dead_lettered", "discarded")] == [0, 1, 1]
        assert root.user_id in of(steps, "discarded")[0]["detail"]
        steps = await explained(served, root, second["message_id"])
        assert [len(of(steps, name)) for name in ("dead_lettered", "discarded")] == [1, 0]


async def test_a_message_that_is_retried_and_replayed(place: Place) -> None:
    """While a webhook is away its attempts are told; refused then, and replayed, it arrived."""
    async with (
        place.serving(ALLOW) as served,
        receiving() as receiver,
    ):
        root, (ann,) = await served.operator(), await served.people("ann")
        chat = await served.as_(ann).create_group()
        await add_hook(served, root, receiver)
        receiver.status = 503
        (sent,) = await served.said(ann, chat, "one")

        async def is_retried() -> bool:
            return bool(of(await explained(served, root, sent["message_id"]), "retried"))

        await eventually(is_retried)
        receiver.status = 400
        await dead(served, root, 1)
        receiver.status = 200
        await served.as_(root).post("/v1/admin/dlq/replay", {"filter": {}})
        await dead(served, root, 0)
        steps = await explained(served, root, sent["message_id"])
        assert [len(of(steps, name)) for name in ("retried", "dead_lettered", "replayed")] == [1, 1, 2]


async def test_what_a_server_forgot_is_not_guessed(place: Place) -> None:
    """After a restart the log and the positions are told, and that nobody remembers who was sent it."""
    async with place.serving() as served:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        async with served.client(ben) as client:
            (sent,) = await served.said(ann, chat, "hello")
            await client.live_entry(chat, 1)
    async with place.serving() as served:
        steps = await explained(served, root, sent["message_id"])
        assert not of(steps, "sent")
        assert "no node remembers" in of(steps, "skipped", ben)[0]["detail"]


async def test_only_operators_ask_and_only_for_what_exists(place: Place) -> None:
    """An id of nothing is not found, wherever it is looked for; others than operators are refused."""
    async with place.serving() as served:
        root, (ann,) = await served.operator(), await served.people("ann")
        chat = await served.as_(ann).create_group()
        sent = (await served.as_(ann).post(f"/v1/chats/{chat}/messages", message())).body
        path = f"/v1/admin/messages/{sent['message_id']}/timeline"
        assert_refused(await served.as_(ann).get(path), 403, "forbidden")
        assert_refused(await served.as_(root).get(path, chat_id="chat_other"), 404, "not_found")
        assert_refused(await served.as_(root).get("/v1/admin/messages/msg_0/timeline"), 404, "not_found")
