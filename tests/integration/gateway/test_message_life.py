"""Replies, edits, deletes and reactions on a running server: frames, HTTP, the SDK, webhooks' events."""

import json
from typing import Any

import pytest

from parley.client import connect
from parley.clock import wall_clock
from parley.core.message_actions import replay
from parley.errors import StoreUnavailable
from parley.wire.frames import Entry
from tests.harness.clients import Frame
from tests.integration.gateway.serving import Place, assert_refused, message, new_id
from tests.integration.gateway.test_deliveries import ALLOW, add_hook, dead, events, is_signed
from tests.integration.gateway.test_push import ALLOW as ALLOW_PUSH
from tests.integration.gateway.test_push import register, rings
from tests.integration.gateway.test_webhook_channel import receiving
from tests.waiting import deadline, eventually


def about(chat: str, message_id: str, **fields: object) -> dict[str, Any]:
    return {"chat_id": chat, "client_message_id": new_id(), "message_id": message_id, **fields}


class Arrivals:
    """What one socket gets, in order: acks, and entries by their numbers."""

    def __init__(self) -> None:
        self.order: list[tuple[str, int]] = []

    def sent(self, frame: Frame) -> None:
        """Nothing to note."""

    def received(self, frame: Frame) -> None:
        if frame["type"] == "ack":
            self.order.append(("ack", frame["sequence"]))
        self.order += [("entry", entry["sequence"]) for entry in frame.get("entries", [])]


async def test_the_life_of_a_message_by_frames(place: Place) -> None:
    """The ack comes before the entry, on the same socket; others get the entries live, in order."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        arrivals = Arrivals()
        async with served.client(ann, observer=arrivals) as mine, served.client(ben) as others:
            target = (await mine.send_message(chat, "one"))["message_id"]
            done: list[tuple[str, dict[str, Any]]] = [
                ("edit_message", {"content": "two"}),
                ("react", {"reaction": "👍"}),
                ("react", {"reaction": "👍", "on": False}),
                ("send_message", {"content": "so?", "reply_to": target}),
                ("delete_message", {}),
            ]
            for kind, fields in done:
                assert (await mine.request(kind, **about(chat, target, **fields)))["type"] == "ack"
            for client in (mine, others):
                await client.live_entry(chat, 6)
            assert arrivals.order == [(what, at) for at in range(1, 7) for what in ("ack", "entry")]
            assert [entry["kind"] for entry in others.live_entries(chat)] == [
                "message", "edit", "reaction", "reaction", "message", "delete",
            ]  # fmt: skip
            page = (await served.as_(ben).get(f"/v1/chats/{chat}/messages")).body
            assert [entry["content"] for entry in page["entries"]] == ["", "", "👍", "👍", "so?", ""]
            assert page["entries"][0]["deleted"] is True
            assert page["entries"][4]["reply_to"] == target


async def test_one_message_as_it_is_now(place: Place) -> None:
    """With its reactions and replies, for members alone."""
    async with place.serving() as served:
        ann, ben, eve = await served.people("ann", "ben", "eve")
        chat = await served.as_(ann).create_group(ben)
        (first,) = await served.said(ann, chat, "one")
        path = f"/v1/chats/{chat}/messages/{first['message_id']}"
        async with served.client(ben) as client:
            await client.request("react", **about(chat, first["message_id"], reaction="x"))
        answer = await served.as_(ben).post(
            f"/v1/chats/{chat}/messages", message("yes", reply_to=first["message_id"])
        )
        assert answer.status == 201
        body = (await served.as_(ann).get(path)).body
        assert body["entry"]["content"] == "one"
        assert {name: body[name] for name in body if name != "entry"} == {
            "edited_at": None,
            "deleted": False,
            "reactions": [{"reaction": "x", "count": 1, "user_ids": [ben.user_id]}],
            "reply_count": 1,
        }
        assert_refused(await served.as_(eve).get(path), 403, "not_a_member")
        assert_refused(
            await served.as_(ann).get(f"/v1/chats/{chat}/messages/msg_{'0' * 26}"), 404, "not_found"
        )


async def test_a_delete_counts_from_its_entry_on(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while nothing is carried out: in pages, by itself, in a search, to a moderator, on a socket."""

    async def fail(*_: object) -> bool:
        raise StoreUnavailable("the node stops here")

    async with place.serving() as served:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        first, _ = await served.said(ann, chat, "SECRET", "other")
        path = f"/v1/chats/{chat}/messages/{first['message_id']}"
        reported = await served.as_(ben).post(f"{path}/report", {"reason": "rude"})
        assert reported.status == 201, reported
        monkeypatch.setattr(served.app.message_actions, "_finish", fail)
        async with served.client(ann) as client:
            told = await client.request("delete_message", **about(chat, first["message_id"]))
            assert told["code"] == "outcome_unknown"
        reader, messages = served.as_(ben), f"/v1/chats/{chat}/messages"
        for answer in (
            await reader.get(messages),
            await reader.get(messages, after=0, limit=1),
            await reader.get(messages, before=2, limit=1),
            await reader.get(path),
            await reader.get(f"/v1/chats/{chat}/search", q="SECRET"),
            await served.as_(root).get("/v1/admin/reports"),
        ):
            assert answer.status == 200, answer
            assert "SECRET" not in json.dumps(answer.body), answer
        async with served.client(ben) as client:
            page = await client.sync(chat, 0, 1)
            assert page["entries"][0]["deleted"] is True


async def test_what_is_wrong_with_a_frame_is_said(place: Place) -> None:
    """Each fault has its own code, and the socket stays open."""
    async with place.serving({"PARLEY_MESSAGES_EDIT_WINDOW_SECONDS": "3600"}) as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        (first,) = await served.said(ann, chat, "one")
        target = first["message_id"]
        async with served.client(ben) as client:
            for kind, fields, code in [
                ("edit_message", about(chat, target, content="x"), "forbidden"),
                ("edit_message", about(chat, "nonsense", content="x"), "bad_request"),
                ("edit_message", about(chat, target, content="x" * 66_000), "too_large"),
                ("delete_message", about(chat, target), "forbidden"),
                ("react", about(chat, target, reaction=""), "bad_request"),
                ("react", about(chat, target, reaction="x" * 17), "bad_request"),
                ("react", about(chat, f"msg_{'0' * 26}", reaction="x"), "not_found"),
                ("react", {**about(chat, target, reaction="x"), "client_message_id": "1"}, "bad_request"),
            ]:
                answer = await client.request(kind, **fields)
                assert (answer["type"], answer.get("code")) == ("refused", code), fields


async def test_the_sdk_changes_messages_and_follows_them(place: Place) -> None:
    """What a device shows that was there all the time equals what the log says."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat_id = await served.as_(ann).create_group(ben)
        async with (
            connect(served.url, ann.token) as mine,
            connect(served.url, ben.token) as other,
        ):
            chat, theirs = mine.chat(chat_id), other.chat(chat_id)
            first = await chat.send("one")
            await chat.edit(first.message_id, "two")
            await theirs.react(first.message_id, "👍")
            reply = await theirs.send("so?", reply_to=first.message_id)
            await theirs.delete(reply.message_id)
            seen: list[Entry] = []
            async with deadline():
                async for entry in chat:
                    seen.append(entry)
                    if entry.kind == "delete":
                        break
            assert (await chat.set_edit_window(3_600)).edit_window_seconds == 3_600
            now = await chat.message(first.message_id)
            shown = replay(seen)
            assert shown[first.message_id].entry.content == now.entry.content == "two"
            assert (now.reply_count, len(now.reactions)) == (0, 1)
            assert shown[reply.message_id].entry.deleted is True
            assert [(one.reaction, one.count) for one in shown[first.message_id].reactions] == [("👍", 1)]


LIFE_EVENTS = ["message.created", "message.edited", "message.deleted", "message.reacted"]


async def test_webhooks_hear_of_it(place: Place) -> None:
    """Each entry is an event of its own, in order and signed, with the entry as clients get it."""
    async with place.serving(ALLOW) as served, receiving() as receiver:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        hook = await add_hook(served, root, receiver, events=LIFE_EVENTS)
        async with served.client(ann) as client:
            target = (await client.send_message(chat, "one"))["message_id"]
            await eventually(lambda: len(receiver.got) == 1)
            await client.request("edit_message", **about(chat, target, content="two"))
            await eventually(lambda: len(receiver.got) == 2)
            await client.request("react", **about(chat, target, reaction="x"))
            await client.request("delete_message", **about(chat, target))
            await eventually(lambda: len(receiver.got) == 4)
        told = [(event["type"], event["data"]["content"]) for event in events(receiver)]
        assert told == [
            ("message.created", "one"),
            ("message.edited", "two"),
            ("message.reacted", "x"),
            ("message.deleted", ""),
        ]
        assert {event["data"]["target_id"] for event in events(receiver)[1:]} == {target}
        assert all(is_signed(hook["secret"], *got) for got in receiver.got)


async def test_what_was_deleted_meanwhile_is_not_handed_over(place: Place) -> None:
    """A receiver that was away gets what is left of the message; so does the replay of a dead letter."""
    async with place.serving(ALLOW) as served, receiving() as receiver:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        await add_hook(served, root, receiver, events=["message.created"])
        receiver.status = 400
        (refused,) = await served.said(ann, chat, "SECRET one")
        await dead(served, root, 1)
        receiver.status, receiver.got = 503, []
        (waiting,) = await served.said(ann, chat, "SECRET two")
        await eventually(lambda: bool(receiver.got))
        async with served.client(ann) as client:
            for target in (refused, waiting):
                await client.request("delete_message", **about(chat, target["message_id"]))
        receiver.status, receiver.got = 200, []
        await eventually(lambda: bool(receiver.got))
        assert "SECRET" not in str((await served.as_(root).get("/v1/admin/dlq")).body)
        await served.as_(root).post("/v1/admin/dlq/replay", {"filter": {}})
        await dead(served, root, 0)
        assert [(event["data"]["content"], event["data"]["deleted"]) for event in events(receiver)] == [
            ("", True),
            ("", True),
        ]


async def test_a_message_that_was_deleted_meanwhile_rings_nowhere(place: Place) -> None:
    """The provider is away; the message is deleted before it is back: no ring, and no dead letter."""
    async with place.serving(ALLOW_PUSH) as served, receiving() as receiver:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        await register(served, ben, receiver)
        receiver.status = 503
        (sent,) = await served.said(ann, chat, "SECRET")
        await eventually(lambda: bool(receiver.got))
        async with served.client(ann) as client:
            await client.request("delete_message", **about(chat, sent["message_id"]))
        receiver.status, receiver.got = 200, []
        await served.said(ann, chat, "next")
        await eventually(lambda: bool(receiver.got))
        assert [(ring["content"], ring["badge"]) for ring in rings(receiver)] == [("next", 1)]
        assert (await served.as_(root).get("/v1/admin/dlq")).body["total"] == 0


async def test_a_chat_has_an_edit_window_of_its_own(place: Place) -> None:
    """An owner chooses it, an entry of the log tells of it, and null brings the server's back."""
    shift = [0]
    settings = {"PARLEY_MESSAGES_EDIT_WINDOW_SECONDS": "7200"}
    async with place.serving(settings, clock=lambda: wall_clock() + shift[0]) as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        path, (first,) = f"/v1/chats/{chat}", await served.said(ann, chat, "one")
        assert (await served.as_(ben).get(path)).body["edit_window_seconds"] == 7200
        answer = await served.as_(ann).patch(path, {"edit_window_seconds": 60})
        assert (answer.status, answer.body["edit_window_seconds"]) == (200, 60)
        assert_refused(await served.as_(ben).patch(path, {"edit_window_seconds": 0}), 403, "forbidden")
        assert_refused(await served.as_(ann).patch(path, {"edit_window_seconds": -1}), 400, "bad_request")
        shift[0] = 61_000
        async with served.client(ann) as client:
            late = await client.request("edit_message", **about(chat, first["message_id"], content="x"))
            assert late["code"] == "edit_window_over"
            answer = await served.as_(ann).patch(path, {"edit_window_seconds": None})
            assert answer.body["edit_window_seconds"] == 7200
            done = await client.request("edit_message", **about(chat, first["message_id"], content="x"))
            assert done["type"] == "ack"
        entries = (await served.as_(ben).get(f"{path}/messages")).body["entries"]
        told = [json.loads(entry["content"]) for entry in entries if entry["kind"] == "chat"]
        assert told == [
            {"action": "edit_window", "edit_window_seconds": 60},
            {"action": "edit_window", "edit_window_seconds": None},
        ]
