"""Webhooks and dead letters of a real server: what integrators get, and what operators do about failures."""

import hashlib
import hmac
from functools import partial
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from parley.cli.doctor import webhooks_in
from parley.clock import MS_PER_HOUR, from_iso, wall_clock
from tests.contracts.test_dead_letters import dead_letter
from tests.integration.gateway.serving import Place, Served, assert_refused, message
from tests.integration.gateway.test_webhook_channel import Receiver, receiving
from tests.waiting import eventually

ALLOW = {"PARLEY_WEBHOOKS_ALLOWED_NETWORKS": "127.0.0.0/8"}
EVENTS = ["message.created", "member.changed"]

RECEIPT_EVENTS = ["receipt.delivered", "receipt.read"]
ACCOUNT_EVENTS = ["account.created", "account.disabled", "account.enabled", "account.deleted"]


def events(receiver: Receiver) -> list[dict[str, Any]]:
    return [msgspec.json.decode(body) for _, body in receiver.got]


def is_last(receiver: Receiver, kind: str) -> bool:
    return bool(events(receiver)[-1]["type"] == kind)


async def add_hook(served: Served, root: Any, receiver: Receiver, **fields: Any) -> dict[str, Any]:
    body = {"url": f"http://127.0.0.1:{receiver.port}/hook", "events": EVENTS, **fields}
    answer = await served.as_(root).post("/v1/admin/webhooks", body)
    assert answer.status == 201, answer
    made: dict[str, Any] = answer.body
    return made


def contents(receiver: Receiver, kind: str = "message.created") -> list[str]:
    events = [msgspec.json.decode(body) for _, body in receiver.got]
    return [event["data"]["content"] for event in events if event["type"] == kind]


def is_signed(secret: str, headers: dict[str, str], body: bytes) -> bool:
    """As an integrator checks it."""
    parts = dict(part.split("=", 1) for part in headers["Parley-Signature"].split(","))
    expected = hmac.new(secret.encode(), parts["t"].encode() + b"." + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(parts["v1"], expected)


async def dead(served: Served, root: Any, count: int) -> Any:
    """Until there are so many pending dead letters; the page with them."""
    page: Any = None

    async def are_there() -> bool:
        nonlocal page
        page = (await served.as_(root).get("/v1/admin/dlq", status="pending")).body
        return bool(page["total"] == count)

    await eventually(are_there)
    return page


async def test_an_integrator_gets_what_happens_in_order_and_signed(place: Place) -> None:
    """Messages and changes of members, from the moment on that the webhook is there."""
    async with place.serving(ALLOW) as served, receiving() as receiver:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        group = await served.as_(ann).create_group()
        sent = await served.as_(ann).post(f"/v1/chats/{group}/messages", message("before"))
        await eventually(lambda: wall_clock() > from_iso(sent.body["created_at"]))
        hook = await add_hook(served, root, receiver)
        for text in ("one", "two", "three"):
            await served.as_(ann).post(f"/v1/chats/{group}/messages", message(text))
        await served.as_(ann).post(f"/v1/chats/{group}/members", {"user_id": ben.user_id})
        await eventually(lambda: len(receiver.got) >= 4)
        assert contents(receiver) == ["one", "two", "three"]
        assert len(contents(receiver, "member.changed")) == 1
        assert all(is_signed(hook["secret"], *got) for got in receiver.got)
        assert not is_signed("another", *receiver.got[0])


async def test_an_integrator_gets_receipts_and_what_happens_to_accounts(place: Place) -> None:
    """Those that other members see, and every account from its creation to its end."""
    async with place.serving(ALLOW) as served, receiving() as receiver:
        root, (ann,) = await served.operator(), await served.people("ann")
        await add_hook(served, root, receiver, events=[*RECEIPT_EVENTS, *ACCOUNT_EVENTS])
        (ben,) = await served.people("ben")
        chat = await served.as_(ann).create_direct(ben)
        async with served.client(ann) as sender, served.client(ben) as reader:
            await sender.send_message(chat, "hi")
            await reader.tell("read_receipt", conversation_id=chat, read_up_to=1)
            await eventually(lambda: {*RECEIPT_EVENTS} <= {event["type"] for event in events(receiver)})
        person = f"/v1/admin/users/{ben.user_id}"
        for method, path, what in (
            ("POST", f"{person}/disable", "disabled"),
            ("POST", f"{person}/enable", "enabled"),
            ("DELETE", person, "deleted"),
        ):
            answer = await served.as_(root).request(method, path)
            assert 200 <= answer.status < 300, answer
            await eventually(partial(is_last, receiver, f"account.{what}"))
        told = events(receiver)
        accounts = [event for event in told if event["chat_id"] is None]
        assert [event["type"] for event in accounts] == ACCOUNT_EVENTS
        assert accounts[0]["data"] == {"user_id": ben.user_id, "username": ben.username, "state": "active"}
        assert accounts[-1]["data"] == {"user_id": ben.user_id, "username": None, "state": "deleted"}
        receipt = next(event for event in told if event["type"] == "receipt.read")
        assert (receipt["chat_id"], receipt["data"]) == (chat, {"user_id": ben.user_id, "up_to_sequence": 1})


async def test_a_webhook_is_paused_and_goes_on(place: Place) -> None:
    """Nothing is sent to it meanwhile, nothing of it is a dead letter, and then all of it comes in order."""
    async with place.serving(ALLOW) as served, receiving() as receiver:
        root, (ann,) = await served.operator(), await served.people("ann")
        group = await served.as_(ann).create_group()
        hook, operator = await add_hook(served, root, receiver), served.as_(root)
        path = f"/v1/admin/webhooks/{hook['webhook_id']}"
        paused = await operator.patch(path, {"paused": True})
        assert (paused.status, paused.body["paused"]) == (200, True)
        await served.said(ann, group, "one", "two")

        async def waits() -> bool:
            (listed,) = (await operator.get("/v1/admin/webhooks")).body["webhooks"]
            return bool(listed["last_error_detail"] == "paused by an operator")

        await eventually(waits)
        assert receiver.got == []
        assert (await operator.patch(path, {"paused": False})).body["paused"] is False
        await eventually(lambda: len(receiver.got) >= 2)
        assert contents(receiver) == ["one", "two"]
        await dead(served, root, 0)
        unknown = await operator.patch("/v1/admin/webhooks/wh_0", {"paused": True})
        assert_refused(unknown, 404, "not_found")
        audit = (await operator.get("/v1/admin/audit", target=hook["webhook_id"])).body["records"]
        assert [one["action"] for one in audit] == ["webhook.resume", "webhook.pause", "webhook.add"]


async def test_a_webhook_is_tested_and_gets_a_new_secret(place: Place) -> None:
    """The test comes at once, signed with the secret of that time; what went wrong is said."""
    async with place.serving(ALLOW) as served, receiving() as receiver:
        root = await served.operator()
        hook, operator = await add_hook(served, root, receiver), served.as_(root)
        path = f"/v1/admin/webhooks/{hook['webhook_id']}"
        tested = await operator.post(f"{path}/test", None)
        assert tested.body == {"arrived": True, "error": None, "error_detail": None}
        renewed = await operator.post(f"{path}/secret", None)
        assert renewed.body["webhook_id"] == hook["webhook_id"]
        assert renewed.body["secret"] != hook["secret"]
        await operator.post(f"{path}/test", None)
        before, after = receiver.got
        assert [one["type"] for one in events(receiver)] == ["webhook.test"] * 2
        assert is_signed(hook["secret"], *before)
        assert is_signed(renewed.body["secret"], *after)
        assert not is_signed(hook["secret"], *after)
        receiver.status = 400
        refused = (await operator.post(f"{path}/test", None)).body
        assert (refused["arrived"], refused["error"]) == (False, "refused")
        for verb in ("test", "secret"):
            unknown = await operator.post(f"/v1/admin/webhooks/wh_0/{verb}", None)
            assert_refused(unknown, 404, "not_found")


async def test_a_new_dead_letter_is_not_touched_by_an_older_preview(place: Place) -> None:
    """Replay and discard by the token of a preview leave what came after it as it is."""
    async with place.serving(ALLOW) as served, receiving() as receiver:
        root, (ann,) = await served.operator(), await served.people("ann")
        group = await served.as_(ann).create_group()
        await add_hook(served, root, receiver)
        receiver.status, operator = 400, served.as_(root)
        await served.said(ann, group, "one", "two")
        before = await dead(served, root, 2)
        wanted = {"filter": {"chat_id": group}}
        seen = (await operator.post("/v1/admin/dlq/preview", wanted)).body
        assert (seen["matched"], seen["chats"]) == (2, 1)
        assert seen["oldest"] == min(one["dlq_timestamp"] for one in before["records"])
        await served.said(ann, group, "three")
        known = {one["dlq_id"] for one in before["records"]}
        (late,) = [one for one in (await dead(served, root, 3))["records"] if one["dlq_id"] not in known]
        given = {"token": seen["token"], "reason": "gone"}
        for wrong in ({**given, "filter": {}}, {**given, "ids": []}, {**given, "dry_run": True}):
            assert_refused(await operator.post("/v1/admin/dlq/discard", wrong), 400, "bad_request")
        assert_refused(await operator.post("/v1/admin/dlq/replay", {"token": "x"}), 400, "bad_request")
        done = await operator.post("/v1/admin/dlq/discard", given)
        assert (done.status, done.body.get("matched")) == (200, 2)
        (left,) = (await dead(served, root, 1))["records"]
        assert (left["dlq_id"], left["queued"], left["job_id"]) == (late["dlq_id"], False, "")
        receiver.status = 200
        seen = (await operator.post("/v1/admin/dlq/preview", {"filter": {}})).body
        done = await operator.post("/v1/admin/dlq/replay", {"token": seen["token"]})
        assert (done.status, done.body["matched"]) == (202, 1)
        await dead(served, root, 0)
        assert contents(receiver)[-1] == "three"


async def test_a_dead_letter_comes_back(place: Place) -> None:
    """Refused by the receiver, found by its error, shown with its story, replayed once the cause is fixed."""
    async with place.serving(ALLOW) as served, receiving() as receiver:
        root, (ann,) = await served.operator(), await served.people("ann")
        group = await served.as_(ann).create_group()
        hook = await add_hook(served, root, receiver)
        receiver.status = 400
        for text in ("one", "two"):
            await served.as_(ann).post(f"/v1/chats/{group}/messages", message(text))
        page = await dead(served, root, 2)
        assert page["groups"] == [{"error": "refused", "count": 2}]
        record = page["records"][-1]
        assert record["original_message"]["content"] == "one"
        assert record["original_message"]["sender"] == ann.user_id
        assert record["original_message"]["recipient"] == hook["webhook_id"]
        assert (record["source_topic"], record["source_offset"]) == ("messages.outbound", 1)
        story = (await served.as_(root).get(f"/v1/admin/dlq/{record['dlq_id']}")).body
        assert [event["action"] for event in story["history"]] == ["failed", "dead_lettered"]

        receiver.status, receiver.got = 200, []
        order = {"filter": {"error": "refused", "recipient": hook["webhook_id"]}}
        dry = await served.as_(root).post("/v1/admin/dlq/replay", {**order, "dry_run": True})
        assert dry.body == {"matched": 2, "job_id": None}
        job = (await served.as_(root).post("/v1/admin/dlq/replay", order)).body
        assert job["matched"] == 2
        await dead(served, root, 0)
        assert contents(receiver) == ["one", "two"]
        done = (await served.as_(root).get(f"/v1/admin/dlq/jobs/{job['job_id']}")).body
        assert done == {"job_id": job["job_id"], "waiting": 0, "replayed": 2, "failed": 0}
        again = (await served.as_(root).post("/v1/admin/dlq/replay", order)).body
        assert again["matched"] == 0
        assert len(receiver.got) == 2


async def test_what_was_owed_survives_a_restart(place: Place) -> None:
    """The receiver was away when the server stopped: the next one goes on, in order, and misses nothing."""
    async with receiving() as receiver:
        async with place.serving(ALLOW) as served:
            root, (ann,) = await served.operator(), await served.people("ann")
            group = await served.as_(ann).create_group()
            await add_hook(served, root, receiver)
            receiver.status = 503
            for text in ("one", "two", "three"):
                await served.as_(ann).post(f"/v1/chats/{group}/messages", message(text))
            await eventually(lambda: bool(receiver.got))
        receiver.status, receiver.got = 200, []
        async with place.serving(ALLOW):
            await eventually(lambda: len(receiver.got) >= 3)
        assert contents(receiver) == ["one", "two", "three"]


async def test_a_webhook_that_does_not_answer_is_shown(place: Place) -> None:
    """It is paused after some failures, and operators see why; when it is back everything is delivered."""
    async with place.serving(ALLOW) as served, receiving() as receiver:
        root, (ann,) = await served.operator(), await served.people("ann")
        groups = [await served.as_(ann).create_group() for _ in range(6)]
        hook = await add_hook(served, root, receiver, events=["message.created"])

        async def shown() -> Any:
            (found,) = (await served.as_(root).get("/v1/admin/webhooks")).body["webhooks"]
            return found

        assert (await shown())["state"] == "working"
        receiver.status = 503
        for group in groups:
            await served.as_(ann).post(f"/v1/chats/{group}/messages", message(group))

        async def is_paused() -> bool:
            return bool((await shown())["state"] == "paused")

        await eventually(is_paused)
        found = await shown()
        assert found["webhook_id"] == hook["webhook_id"]
        assert (found["last_error"], found["last_error_detail"]) == ("server_error", "answered 503")
        assert found["failing_since"] <= found["paused_until"]
        await eventually(lambda: served.metric("parley_webhooks_paused") == 1)
        (finding,) = webhooks_in(served.app.metrics.text().decode())
        assert "1 do not answer" in finding.says
        receiver.status, receiver.got = 200, []
        await eventually(lambda: sorted(contents(receiver)) == sorted(groups))

        async def works() -> bool:
            return bool((await shown())["state"] == "working")

        await eventually(works)
        found = await shown()
        assert {found[name] for name in ("failing_since", "paused_until", "last_error")} == {None}
        assert list(webhooks_in(served.app.metrics.text().decode())) == []


async def test_discarding_is_recorded_with_its_reason(place: Place) -> None:
    """Who did it and why is in the dead letter's story and in the audit log."""
    async with place.serving(ALLOW) as served, receiving() as receiver:
        root, (ann,) = await served.operator(), await served.people("ann")
        group = await served.as_(ann).create_group()
        await add_hook(served, root, receiver)
        receiver.status = 400
        await served.as_(ann).post(f"/v1/chats/{group}/messages", message("one"))
        page = await dead(served, root, 1)
        dlq_id = page["records"][0]["dlq_id"]
        order = {"ids": [dlq_id], "reason": "the integration is gone"}
        job = (await served.as_(root).post("/v1/admin/dlq/discard", order)).body
        assert job["matched"] == 1
        story = (await served.as_(root).get(f"/v1/admin/dlq/{dlq_id}")).body
        assert story["status"] == "permanently_failed"
        last = story["history"][-1]
        assert (last["action"], last["detail"], last["actor"]) == ("discard", order["reason"], root.user_id)
        records = (await served.as_(root).get("/v1/admin/audit")).body["records"]
        (record,) = [one for one in records if one["action"] == "dlq.discard"]
        assert (record["target_id"], record["actor"]) == (job["job_id"], root.user_id)
        assert order["reason"] in record["detail"]


async def test_a_removed_webhook_gets_nothing_more(place: Place) -> None:
    """It is not listed any more, and its secret never was."""
    async with place.serving(ALLOW) as served, receiving() as receiver, receiving() as other:
        root, (ann,) = await served.operator(), await served.people("ann")
        group = await served.as_(ann).create_group()
        hook, kept = await add_hook(served, root, receiver), await add_hook(served, root, other)
        listed = (await served.as_(root).get("/v1/admin/webhooks")).body["webhooks"]
        assert [one["webhook_id"] for one in listed] == [hook["webhook_id"], kept["webhook_id"]]
        assert not any("secret" in one for one in listed)
        path = f"/v1/admin/webhooks/{hook['webhook_id']}"
        assert (await served.as_(root).delete(path)).status == 204
        assert_refused(await served.as_(root).delete(path), 404, "not_found")
        await served.as_(ann).post(f"/v1/chats/{group}/messages", message("one"))
        await eventually(lambda: len(other.got) == 1)
        assert receiver.got == []


@pytest.mark.parametrize(
    "body",
    [
        {"url": "https://127.0.0.1/", "events": EVENTS},
        {"url": "http://example.com/", "events": EVENTS},
        {"url": "https://example.com/", "events": []},
        {"url": "https://example.com/", "events": ["message.burnt"]},
    ],
)
async def test_a_bad_webhook_is_refused(place: Place, body: dict[str, Any]) -> None:
    """Before anything is stored."""
    async with place.serving() as served:
        root = await served.operator()
        assert_refused(await served.as_(root).post("/v1/admin/webhooks", body), 400, "bad_request")
        assert (await served.as_(root).get("/v1/admin/webhooks")).body == {"webhooks": []}


@pytest.mark.parametrize(
    "body", [{}, {"ids": [], "filter": {}}, {"filter": {"after": "yesterday"}}, {"filter": {"eror": "x"}}]
)
async def test_an_unclear_replay_is_refused(place: Place, body: dict[str, Any]) -> None:
    """A mistyped filter must not select everything."""
    async with place.serving() as served:
        root = await served.operator()
        assert_refused(await served.as_(root).post("/v1/admin/dlq/replay", body), 400, "bad_request")


async def test_dead_letters_are_counted_by_what_an_operator_looks_for(place: Place) -> None:
    """By error, recipient and hour; replays and discards with what has become of their dead letters."""
    async with place.serving() as served:
        root = await served.operator()
        dead_letters = served.app.kinds.deliveries.dead_letters
        for number, (error, hour) in enumerate([("timeout", 1), ("timeout", 2), ("gone", 2)]):
            await dead_letters.add(
                replace(
                    dead_letter(number), error=error, recipient=f"wh_{error}", dlq_ms=hour * MS_PER_HOUR + 7
                )
            )
        summary = (await served.as_(root).get("/v1/admin/dlq/summary")).body
        assert summary["errors"] == [{"error": "timeout", "count": 2}, {"error": "gone", "count": 1}]
        assert [(one["recipient"], one["count"]) for one in summary["recipients"]] == [
            ("wh_timeout", 2),
            ("wh_gone", 1),
        ]
        assert [(one["at"][11:13], one["count"]) for one in summary["hours"]] == [("01", 1), ("02", 2)]
        some = (await served.as_(root).get("/v1/admin/dlq/summary", error="gone")).body
        assert (some["total"], len(some["hours"])) == (1, 1)
        order = {"filter": {"error": "gone"}, "reason": "nobody wants it"}
        made = (await served.as_(root).post("/v1/admin/dlq/discard", order)).body
        jobs = (await served.as_(root).get("/v1/admin/dlq/jobs")).body["jobs"]
        (job,) = jobs
        assert (job["job_id"], job["action"], job["actor"]) == (made["job_id"], "discard", root.user_id)
        assert (job["waiting"], job["replayed"], job["failed"], job["discarded"]) == (0, 0, 0, 1)


async def test_a_webhook_shows_what_it_is_owed_and_when_it_was_reached(place: Place) -> None:
    """While it is paused what it is owed grows; what arrived last has its time."""
    async with place.serving(ALLOW) as served, receiving() as receiver:
        root, (ann,) = await served.operator(), await served.people("ann")
        hook = await add_hook(served, root, receiver)
        path = f"/v1/admin/webhooks/{hook['webhook_id']}"

        async def shown() -> dict[str, Any]:
            (only,) = (await served.as_(root).get("/v1/admin/webhooks")).body["webhooks"]
            found: dict[str, Any] = only
            return found

        before = await shown()
        assert (before["waiting"], before["last_success_at"]) == (0, None)
        group = await served.as_(ann).create_group()
        sent = await served.as_(ann).post(f"/v1/chats/{group}/messages", message("one"))

        async def is_reached() -> bool:
            now = await shown()
            return now["last_success_at"] is not None and now["waiting"] == 0

        await eventually(is_reached)
        assert (await shown())["last_success_at"] >= sent.body["created_at"]
        await served.as_(root).patch(path, {"paused": True})
        await served.as_(ann).post(f"/v1/chats/{group}/messages", message("two"))

        async def is_owed() -> bool:
            now = await shown()
            return bool(now["waiting"] >= 1 and now["waiting_chats"] == 1)

        await eventually(is_owed)
