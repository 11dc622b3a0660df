"""Rings of a real server, by signed webhooks: who is woken, by what, and who is not."""

from typing import Any

import msgspec
import pytest

from parley.ephemeral.attention import people_there
from parley.ephemeral.ports import Registry
from parley.gateway import device_leases
from tests.integration.gateway.serving import Place, Served, assert_refused, message
from tests.integration.gateway.test_deliveries import ALLOW as ALLOW_WEBHOOKS
from tests.integration.gateway.test_deliveries import dead, is_signed
from tests.integration.gateway.test_webhook_channel import Receiver, receiving
from tests.waiting import eventually

ALLOW = {"PARLEY_PUSH_ALLOWED_NETWORKS": "127.0.0.0/8"}


async def register(served: Served, person: Any, receiver: Receiver, **fields: Any) -> dict[str, Any]:
    """The person's phone rings by requests to the receiver."""
    url = f"http://127.0.0.1:{receiver.port}/{person.user_id}"
    body = {"provider": "webhook", "token": url, **fields}
    answer = await served.as_(person).put("/v1/me/push/phone", body)
    assert answer.status == 200, answer
    made: dict[str, Any] = answer.body
    return made


def rings(receiver: Receiver) -> list[dict[str, Any]]:
    return [msgspec.json.decode(body) for _, body in receiver.got]


def contents(receiver: Receiver) -> list[str]:
    return [ring.get("content", "") for ring in rings(receiver)]


async def outcomes(served: Served, chat: str, sequence: int) -> list[tuple[str, str]]:
    found = await served.app.kinds.push.outcomes.of_message(chat, sequence)
    return [(one.outcome.value, one.detail) for one in found]


async def until_known(served: Served, chat: str, sequence: int) -> list[tuple[str, str]]:
    """What became of a message's rings, once something has."""

    async def is_known() -> bool:
        return any(outcome != "ringing" for outcome, _ in await outcomes(served, chat, sequence))

    await eventually(is_known)
    return await outcomes(served, chat, sequence)


async def test_a_person_who_is_away_is_rung(place: Place) -> None:
    """Signed, with the message, its sender's name, and how much is unread over all chats."""
    async with place.serving(ALLOW) as served, receiving() as receiver:
        ann, ben = await served.people("ann", "ben")
        other = await served.as_(ann).create_group(ben)
        await served.said(ann, other, "one", "two")
        chat = await served.as_(ann).create_group(ben, title="Sailing")
        made = await register(served, ben, receiver)
        (sent,) = await served.said(ann, chat, "hello")
        await eventually(lambda: bool(receiver.got))
        (ring,) = rings(receiver)
        assert is_signed(made["secret"], *receiver.got[0])
        assert receiver.got[0][0]["Parley-Event-Id"] == ring["event_id"]
        assert (ring["chat_id"], ring["message_id"]) == (chat, sent["message_id"])
        assert (ring["content"], ring["title"], ring["badge"]) == ("hello", "ann in Sailing", 3)
        assert (ring["user_id"], ring["device_id"]) == (ben.user_id, "phone")
        assert await until_known(served, chat, 1) == [("pushed", "200")]
        labels = {"provider": "webhook", "outcome": "pushed"}
        await eventually(lambda: served.metric("parley_push_outcomes_total", **labels) == 1)


async def test_the_timeline_tells_what_the_provider_said(place: Place) -> None:
    """An operator sees that a phone rang, and why another one did not."""
    async with place.serving(ALLOW) as served, receiving() as receiver:
        root, (ann, ben, eve) = await served.operator(), await served.people("ann", "ben", "eve")
        chat = await served.as_(ann).create_group(ben, eve)
        await register(served, ben, receiver)
        await register(served, eve, receiver)
        await served.as_(eve).patch(f"/v1/chats/{chat}", {"notify": "mentions"})
        (sent,) = await served.said(ann, chat, "hello")
        assert await until_known(served, chat, 1) == [("pushed", "200")]
        answer = await served.as_(root).get(f"/v1/admin/messages/{sent['message_id']}/timeline")
        pushed = [step for step in answer.body["steps"] if step["step"] == "pushed"]
        assert [(step["user_id"], step["device_id"]) for step in pushed] == [(ben.user_id, "phone")]
        assert pushed[0]["detail"] == "webhook: 200"


async def test_without_previews_only_that_there_is_a_message(place: Place) -> None:
    """Neither what it says nor who sent it."""
    async with place.serving(ALLOW) as served, receiving() as receiver:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben, title="Sailing")
        await register(served, ben, receiver, preview=False)
        await served.said(ann, chat, "secret")
        await eventually(lambda: bool(receiver.got))
        (ring,) = rings(receiver)
        assert ring["title"] == "New message"
        assert not {"content", "sender_id"} & set(ring)
        assert b"secret" not in receiver.got[0][1]


async def is_passed(served: Served) -> bool:
    """Whether the worker has seen all that was said."""
    assert served.app.store.feed is not None
    return (await served.app.store.feed.lags()).get("push") == 0


async def test_a_person_with_a_connected_device_is_not_rung(place: Place) -> None:
    """Whichever device it is; and nobody is rung by their own message."""
    async with place.serving(ALLOW) as served, receiving() as receiver:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        await register(served, ben, receiver)
        await register(served, ann, receiver)
        async with served.client(ben):
            await served.said(ann, chat, "online")
            await eventually(lambda: is_passed(served))
        await served.said(ann, chat, "away")
        await eventually(lambda: bool(receiver.got))
        assert contents(receiver) == ["away"]
        assert rings(receiver)[0]["user_id"] == ben.user_id


async def test_an_open_tab_that_nobody_looks_at_silences_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tab gets the message and the phone rings; once somebody looks again, it does not."""
    monkeypatch.setattr(device_leases, "ATTENTION_SECONDS", 0.0)
    async with place.serving(ALLOW) as served, receiving() as receiver:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        await register(served, ben, receiver)
        registry = served.app.ephemeral.registry
        async with served.client(await served.http.login("ben", "tab")) as tab:
            await tab.tell("attention", looking=False)
            await eventually(lambda: is_alone(registry, ben.user_id))
            await served.said(ann, chat, "nobody looks")
            await eventually(lambda: bool(receiver.got))
            await tab.live_entry(chat, 1)
            await tab.tell("attention", looking=True)
            await eventually(lambda: is_there(registry, ben.user_id))
            await served.said(ann, chat, "somebody looks")
            await eventually(lambda: is_passed(served))
        assert contents(receiver) == ["nobody looks"]


async def is_there(registry: Registry, user_id: str) -> bool:
    return bool(await people_there(registry, [user_id]))


async def is_alone(registry: Registry, user_id: str) -> bool:
    return not await is_there(registry, user_id)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"muted_until": "2100-01-01T00:00:00.000Z"}, "muted"),
        ({"notify": "none"}, ""),
        ({"notify": "mentions"}, ""),
    ],
)
async def test_who_wants_no_ring_gets_none(place: Place, change: dict[str, str], reason: str) -> None:
    """Muted, or not mentioned; a muted one is told to timelines."""
    async with place.serving(ALLOW) as served, receiving() as receiver:
        ann, ben = await served.people("ann", "ben")
        quiet, loud = [await served.as_(ann).create_group(ben) for _ in range(2)]
        await register(served, ben, receiver)
        answer = await served.as_(ben).patch(f"/v1/chats/{quiet}", change)
        assert answer.status == 200
        assert {name: answer.body[name] for name in change} == change
        await served.said(ann, quiet, "quiet")
        await served.said(ann, loud, "loud")
        await eventually(lambda: bool(receiver.got))
        if reason:
            assert await until_known(served, quiet, 1) == [("skipped", reason)]
        assert contents(receiver) == ["loud"]


async def test_mentions_ring_in_a_chat_that_rings_for_mentions_alone(place: Place) -> None:
    """`mentions` comes back in the entry, and wakes those who are mentioned."""
    async with place.serving(ALLOW) as served, receiving() as receiver:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        await register(served, ben, receiver)
        await served.as_(ben).patch(f"/v1/chats/{chat}", {"notify": "mentions"})
        await served.said(ann, chat, "nobody")
        body = message("you", mentions=[ben.user_id])
        await served.as_(ann).post(f"/v1/chats/{chat}/messages", body)
        await eventually(lambda: bool(receiver.got))
        assert contents(receiver) == ["you"]
        page = (await served.as_(ben).get(f"/v1/chats/{chat}/messages")).body
        assert [entry.get("mentions") for entry in page["entries"]] == [None, [ben.user_id]]


async def test_quiet_hours(place: Place) -> None:
    """Nothing rings within them, in the person's own time zone; null ends them."""
    async with place.serving(ALLOW) as served, receiving() as receiver:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        await register(served, ben, receiver)
        all_day = {"from": "08:00", "to": "08:00", "timezone": "Europe/Berlin"}
        answer = await served.as_(ben).patch("/v1/me", {"do_not_disturb": all_day})
        assert answer.body["do_not_disturb"] == all_day
        await served.said(ann, chat, "at night")
        assert await until_known(served, chat, 1) == [("skipped", "do_not_disturb")]
        assert (await served.as_(ben).patch("/v1/me", {"display_name": "Ben"})).body["do_not_disturb"]
        answer = await served.as_(ben).patch("/v1/me", {"do_not_disturb": None})
        assert answer.body["do_not_disturb"] is None
        await served.said(ann, chat, "by day")
        await eventually(lambda: bool(receiver.got))
        assert contents(receiver) == ["by day"]


@pytest.mark.parametrize(
    "hours",
    [
        {"from": "8:00", "to": "09:00", "timezone": "UTC"},
        {"from": "08:00", "to": "24:00", "timezone": "UTC"},
        {"from": "08:00", "to": "09:00", "timezone": "Mars/Olympus"},
        {"from": "08:00", "to": "09:00", "timezone": "../../etc/passwd"},
        {"from": "08:00", "to": "09:00", "timezone": ""},
        {"from": "08:00", "to": "09:00"},
    ],
)
async def test_what_are_no_quiet_hours(place: Place, hours: dict[str, str]) -> None:
    """They are refused."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        answer = await served.as_(ann).patch("/v1/me", {"do_not_disturb": hours})
        assert_refused(answer, 400, "bad_request")


async def test_a_ring_is_cancelled_by_reading(place: Place) -> None:
    """The provider is away; the person reads meanwhile: no ring later, and no dead letter."""
    async with place.serving(ALLOW) as served, receiving() as receiver:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        await register(served, ben, receiver)
        receiver.status = 503
        await served.said(ann, chat, "hello")
        await eventually(lambda: bool(receiver.got))
        async with served.client(ben) as client:
            await client.tell("read_receipt", conversation_id=chat, read_up_to=1)
            await client.heartbeat()
        receiver.status = 200
        assert await until_skipped(served, chat, 1) == [("skipped", "read")]
        assert len(receiver.got) == 1
        assert (await served.as_(root).get("/v1/admin/dlq")).body["total"] == 0


async def until_skipped(served: Served, chat: str, sequence: int) -> list[tuple[str, str]]:
    async def is_skipped() -> bool:
        return any(outcome == "skipped" for outcome, _ in await outcomes(served, chat, sequence))

    await eventually(is_skipped)
    return await outcomes(served, chat, sequence)


async def test_messages_of_a_chat_collapse(place: Place) -> None:
    """While the provider is away, newer messages replace older ones: one ring, about the newest."""
    async with place.serving(ALLOW) as served, receiving() as receiver:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        await register(served, ben, receiver)
        receiver.status = 503
        await served.said(ann, chat, "one")
        await eventually(lambda: bool(receiver.got))
        await served.said(ann, chat, "two", "three")
        receiver.got, receiver.status = [], 200
        await eventually(lambda: bool(receiver.got))
        assert await until_known(served, chat, 3) == [("pushed", "200")]
        assert contents(receiver) == ["three"]


async def test_what_operators_allow_for_webhooks_is_closed_to_people(place: Place) -> None:
    """Neither a new address nor one that was registered before leads into the operator's own networks."""
    async with receiving() as receiver:
        async with place.serving(ALLOW) as served:
            ann, ben = await served.people("ann", "ben")
            await register(served, ben, receiver)
            chat = await served.as_(ann).create_group(ben)
        async with place.serving(ALLOW_WEBHOOKS) as served:
            body = {"provider": "webhook", "token": f"http://127.0.0.1:{receiver.port}/"}
            answer = await served.as_(ben).put("/v1/me/push/phone", body)
            assert_refused(answer, 400, "bad_request")
            assert "push.allowed_networks" in answer.body["reason"]
            await served.as_(ann).post(f"/v1/chats/{chat}/messages", message("hello"))
            ((outcome, detail),) = await until_known(served, chat, 1)
        assert (outcome, receiver.got) == ("refused", [])
        assert "push.allowed_networks" in detail


async def test_a_dead_address_is_forgotten(place: Place) -> None:
    """410: the device is not registered any more, and that is no dead letter."""
    async with place.serving(ALLOW) as served, receiving() as receiver:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        await register(served, ben, receiver)
        receiver.status = 410
        await served.said(ann, chat, "hello")
        assert await until_known(served, chat, 1) == [("refused", "410")]
        assert (await served.as_(ben).get("/v1/me/push")).body == {"devices": []}
        assert (await served.as_(root).get("/v1/admin/dlq")).body["total"] == 0


async def test_what_is_refused_becomes_a_dead_letter(place: Place) -> None:
    """With the queue's name, and the device as its recipient; a replay rings when the cause is gone."""
    async with place.serving(ALLOW) as served, receiving() as receiver:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        await register(served, ben, receiver)
        receiver.status = 400
        await served.said(ann, chat, "hello")
        (record,) = (await dead(served, root, 1))["records"]
        assert record["source_topic"] == "messages.notifications"
        assert record["original_message"]["recipient"] == f"{ben.user_id}/phone"
        receiver.status, receiver.got = 200, []
        await served.as_(root).post("/v1/admin/dlq/replay", {"filter": {}})
        await dead(served, root, 0)
        assert contents(receiver) == ["hello"]


async def test_a_device_that_is_logged_out_is_forgotten(place: Place) -> None:
    """A ring would show messages to whoever has the device."""
    async with place.serving(ALLOW) as served, receiving() as receiver:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        await register(served, ben, receiver)
        await served.app.accounts.end_all_sessions(ben.user_id)
        await served.said(ann, chat, "hello")
        assert await until_known(served, chat, 1) == [("skipped", "logged_out")]
        assert await served.app.kinds.push.devices.of([ben.user_id]) == {}
        assert receiver.got == []


async def test_a_deleted_account_keeps_no_device(place: Place) -> None:
    """Tokens are the person's, too."""
    async with place.serving(ALLOW) as served, receiving() as receiver:
        root, (ann,) = await served.operator(), await served.people("ann")
        await register(served, ann, receiver)
        assert (await served.as_(root).delete(f"/v1/admin/users/{ann.user_id}")).status < 300

        async def are_gone() -> bool:
            return await served.app.kinds.push.devices.of([ann.user_id]) == {}

        await eventually(are_gone)


async def test_a_blocked_person_rings_for_nobody(place: Place) -> None:
    """In a group both are in; what others write there still rings."""
    async with place.serving(ALLOW) as served, receiving() as receiver:
        ann, ben, eve = await served.people("ann", "ben", "eve")
        chat = await served.as_(ann).create_group(ben, eve)
        await register(served, ben, receiver)
        await served.as_(ben).put(f"/v1/blocks/{eve.user_id}")
        await served.said(eve, chat, "blocked")
        await served.said(ann, chat, "welcome")
        await eventually(lambda: bool(receiver.got))
        assert contents(receiver) == ["welcome"]


# Registration


async def test_registrations(place: Place) -> None:
    """A device is registered, shown without its token, registered again, and removed."""
    async with place.serving(ALLOW) as served, receiving() as receiver:
        (ann,) = await served.people("ann")
        made = await register(served, ann, receiver)
        assert made["secret"].startswith("phs_")
        again = await register(served, ann, receiver, preview=False)
        assert "secret" not in again
        shown = (await served.as_(ann).get("/v1/me/push/phone")).body
        assert shown == again
        assert shown["preview"] is False
        assert (await served.as_(ann).get("/v1/me/push")).body == {"devices": [shown]}
        assert (await served.as_(ann).delete("/v1/me/push/phone")).status == 204
        assert_refused(await served.as_(ann).get("/v1/me/push/phone"), 404, "not_found")
        assert_refused(await served.as_(ann).delete("/v1/me/push/phone"), 404, "not_found")


@pytest.mark.parametrize(
    "body",
    [
        {"provider": "webhook"},
        {"provider": "webhook", "token": "http://10.0.0.1/"},
        {"provider": "webhook", "token": "ftp://127.0.0.1/"},
        {"provider": "webpush", "token": "x"},
        {"provider": "webpush", "subscription": {"endpoint": "https://a.example/", "keys": {}}},
        {
            "provider": "webpush",
            "subscription": {"endpoint": "https://a.example/", "keys": {"p256dh": "AAAA", "auth": "AAAA"}},
        },
        {"provider": "apns", "token": "ab" * 32},
        {"provider": "fcm", "token": "x"},
        {"provider": "smoke", "token": "x"},
    ],
)
async def test_what_cannot_be_registered(place: Place, body: dict[str, Any]) -> None:
    """Private addresses, keys that are none, and providers that the server is not configured for."""
    async with place.serving(ALLOW) as served:
        (ann,) = await served.people("ann")
        assert_refused(await served.as_(ann).put("/v1/me/push/phone", body), 400, "bad_request")


async def test_a_device_that_is_not_logged_in_cannot_be_registered(place: Place) -> None:
    """Registrations live no longer than sessions."""
    async with place.serving(ALLOW) as served, receiving() as receiver:
        (ann,) = await served.people("ann")
        body = {"provider": "webhook", "token": f"http://127.0.0.1:{receiver.port}/"}
        assert_refused(await served.as_(ann).put("/v1/me/push/tablet", body), 400, "bad_request")


async def test_the_vapid_key_stays(place: Place) -> None:
    """Made at the first start and kept, because subscriptions are bound to it."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        key = (await served.as_(ann).get("/v1/push/vapid")).body["public_key"]
    async with place.serving() as served:
        assert (await served.as_(ann).get("/v1/push/vapid")).body["public_key"] == key


# Strategies


async def test_operators_see_and_choose_the_strategy(place: Place) -> None:
    """By size at first; a choice is in the audit log, and null ends it."""
    async with place.serving() as served:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben, title="Sailing")
        path, operator = f"/v1/admin/chats/{chat}", served.as_(root)
        shown = {"chat_id": chat, "type": "group", "title": "Sailing", "member_count": 2}
        assert (await operator.get(path)).body.items() >= {**shown, "fanout": "write", "chosen": None}.items()
        answer = await operator.patch(path, {"fanout": "read"})
        assert answer.body == {**shown, "fanout": "read", "chosen": "read"}
        assert (await operator.patch(path, {"fanout": None})).body["fanout"] == "write"
        assert_refused(await operator.patch(path, {"fanout": "loud"}), 400, "bad_request")
        assert_refused(await operator.get("/v1/admin/chats/chat_x"), 404, "not_found")
        assert_refused(await served.as_(ann).get(path), 403, "forbidden")
        audit = (await operator.get("/v1/admin/audit")).body["records"]
        assert [one["action"] for one in audit if one["target_id"] == chat] == ["chat.fanout"] * 2


@pytest.mark.parametrize("strategy", ["write", "hybrid", "read"])
async def test_each_strategy(place: Place, strategy: str) -> None:
    """All ring for a mention; a `read` chat rings for nothing else."""
    async with place.serving(ALLOW) as served, receiving() as receiver:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        await served.as_(root).patch(f"/v1/admin/chats/{chat}", {"fanout": strategy})
        await register(served, ben, receiver)
        await served.said(ann, chat, "plain")
        if strategy != "read":
            await eventually(lambda: contents(receiver) == ["plain"])
        body = message("you", mentions=[ben.user_id])
        await served.as_(ann).post(f"/v1/chats/{chat}/messages", body)
        await eventually(lambda: bool(receiver.got) and contents(receiver)[-1] == "you")
        assert contents(receiver) == (["you"] if strategy == "read" else ["plain", "you"])


async def test_a_change_of_the_strategy_loses_no_ring(place: Place) -> None:
    """What was owed when the chat was `write` rings although it is `read` by then."""
    async with place.serving(ALLOW) as served, receiving() as receiver:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        await register(served, ben, receiver)
        receiver.status = 503
        await served.said(ann, chat, "owed")
        await eventually(lambda: bool(receiver.got))
        await served.as_(root).patch(f"/v1/admin/chats/{chat}", {"fanout": "read"})
        receiver.status, receiver.got = 200, []
        await eventually(lambda: contents(receiver) == ["owed"])
