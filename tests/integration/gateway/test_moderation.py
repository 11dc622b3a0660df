"""What operators do about a report: delete the message, remove the person, rename or delete the chat."""

from typing import Any

import pytest

from tests.harness.clients import Person
from tests.integration.gateway.serving import Place, Served, assert_refused, new_id
from tests.waiting import eventually

CHATS, BECAUSE = "/v1/admin/chats", {"reason": "report rep_1"}


async def entries(served: Served, person: Person, chat: str) -> list[Any]:
    answer = await served.as_(person).get(f"/v1/chats/{chat}/messages", limit=100)
    assert answer.status == 200, answer
    found: list[Any] = answer.body["entries"]
    return found


async def records(served: Served, root: Person) -> list[tuple[str, str, str, str]]:
    found = (await served.as_(root).get("/v1/admin/audit")).body["records"]
    return [(one["action"], one["target_id"], one["detail"], one["outcome"]) for one in found]


def kept_in(place: Place) -> bytes:
    return b"".join(path.read_bytes() for path in place.folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("happened", ["nothing", "disabled", "deleted", "blocked"])
async def test_a_message_of_a_direct_chat_is_deleted(place: Place, happened: str) -> None:
    """Whatever became of its sender; both see an entry, nobody reads the body, and no file has it."""
    async with place.serving() as served:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        chat = await served.as_(ann).create_direct(ben)
        (receipt,) = await served.said(ann, chat, "unique rude words")
        if happened == "disabled":
            await served.as_(root).post(f"/v1/admin/users/{ann.user_id}/disable", None)
        elif happened == "deleted":
            await served.as_(root).delete(f"/v1/admin/users/{ann.user_id}")
        elif happened == "blocked":
            await served.as_(ben).post("/v1/blocks", {"user_id": ann.user_id})
        path = f"{CHATS}/{chat}/messages/{receipt['message_id']}"
        for _ in range(2):
            assert (await served.as_(root).delete(path, BECAUSE)).status == 204
        message, *rest = await entries(served, ben, chat)
        assert (message["content"], message["deleted"]) == ("", True)
        assert [(one["kind"], one["target_id"], one["content"]) for one in rest] == [
            ("delete", receipt["message_id"], '{"by":"operator"}')
        ]
        detail = f"chat={chat} reason=report rep_1"
        done = ("message.delete", receipt["message_id"], detail, "done")
        assert (await records(served, root)).count(done) == 2
    assert b"unique rude words" not in kept_in(place)


async def test_a_message_of_a_group_is_deleted_after_its_sender_left(place: Place) -> None:
    """In the name of an owner, also where only admins post; members hear of it at once."""
    async with place.serving() as served:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        (receipt,) = await served.said(ben, chat, "rude")
        await served.as_(ben).delete(f"/v1/chats/{chat}/members/{ben.user_id}")
        await served.as_(ann).patch(f"/v1/chats/{chat}", {"announcement_only": True})
        path = f"{CHATS}/{chat}/messages/{receipt['message_id']}"
        async with served.client(ann) as client:
            assert (await served.as_(root).delete(path, BECAUSE)).status == 204
            live = await client.live_entry(chat, 4)
            assert (live["kind"], live["sender_id"]) == ("delete", ann.user_id)


async def test_what_cannot_be_deleted(place: Place) -> None:
    """Nothing without a reason, nothing that is not there, and nothing under a legal hold."""
    async with place.serving() as served:
        root, (ann,) = await served.operator(), await served.people("ann")
        chat = await served.as_(ann).create_group()
        (receipt,) = await served.said(ann, chat, "words")
        client, path = served.as_(root), f"{CHATS}/{chat}/messages/{receipt['message_id']}"
        for wrong in ({}, {"reason": ""}, {"reason": "x" * 1_001}):
            assert_refused(await client.delete(path, wrong), 400, "bad_request")
        for unknown in (
            f"{CHATS}/{chat}/messages/msg_0",
            f"{CHATS}/chat_0/messages/msg_0",
            f"{CHATS}/chat_0",
        ):
            assert_refused(await client.delete(unknown, BECAUSE), 404, "not_found")
        await client.put(f"{CHATS}/{chat}/retention", {"days": None, "is_held": True})
        assert_refused(await client.delete(path, BECAUSE), 403, "under_hold")
        assert_refused(await client.delete(f"{CHATS}/{chat}", BECAUSE), 403, "under_hold")
        assert [one["content"] for one in await entries(served, ann, chat)] == ["words"]


async def test_a_chat_is_arranged_whatever_became_of_its_owner(place: Place) -> None:
    """A disabled owner does not stand in the way of a new title, nor of taking a member out."""
    async with place.serving() as served:
        root, (ann, ben, cas) = await served.operator(), await served.people("ann", "ben", "cas")
        chat = await served.as_(ann).create_group(ben, cas, title="Rude")
        client = served.as_(root)
        await client.post(f"/v1/admin/users/{ann.user_id}/disable", None)
        renamed = await client.patch(f"{CHATS}/{chat}", {"title": "Kind"})
        assert (renamed.status, renamed.body["title"]) == (200, "Kind")
        assert (await client.delete(f"{CHATS}/{chat}/members/{cas.user_id}")).status == 204
        seen = [(one["kind"], one["sender_id"], one["content"]) for one in await entries(served, ben, chat)]
        assert seen == [
            ("chat", ann.user_id, '{"action":"renamed","title":"Kind","by":"operator"}'),
            (
                "member",
                ann.user_id,
                f'{{"action":"removed","user_id":"{cas.user_id}","role":"member","by":"operator"}}',
            ),
        ]
        assert_refused(await client.patch(f"{CHATS}/{chat}", {}), 400, "bad_request")
        last = await client.delete(f"{CHATS}/{chat}/members/{ann.user_id}")
        assert_refused(last, 403, "forbidden")
        direct = await served.as_(ben).create_direct(cas)
        assert_refused(await client.patch(f"{CHATS}/{direct}", {"title": "x"}), 400, "bad_request")
        assert_refused(await client.delete(f"{CHATS}/{direct}/members/{cas.user_id}"), 400, "bad_request")
        assert ("chat.rename", chat, "Kind", "done") in await records(served, root)


async def is_finished(served: Served, root: Person, chat: str) -> bool:
    report = await served.as_(root).get(f"/v1/admin/erasures/{chat}")
    return report.status == 200 and report.body["finished_at"] is not None


async def test_a_group_is_deleted(place: Place) -> None:
    """Everybody is out, as entries say; no invitation is left; no body is in any file."""
    async with place.serving() as served:
        root, (ann, ben, cas) = await served.operator(), await served.people("ann", "ben", "cas")
        await served.as_(cas).patch("/v1/me", {"who_may_add": "nobody"})
        chat = await served.as_(ann).create_group(ben)
        await served.as_(ann).post(f"/v1/chats/{chat}/members", {"user_id": cas.user_id})
        await served.said(ann, chat, "unique words of ann")
        await served.said(ben, chat, "unique words of ben")
        await served.as_(root).post(f"/v1/admin/users/{ann.user_id}/disable", None)
        async with served.client(ben) as client:
            done = await served.as_(root).delete(f"{CHATS}/{chat}", BECAUSE)
            assert (done.status, done.body) == (202, {"chat_id": chat, "job_id": "erasures"})
            await client.hear("chat_changed", chat_id=chat, change="left")
        await eventually(lambda: is_finished(served, root, chat))
        page = (await served.as_(root).get(f"{CHATS}/{chat}/members")).body
        assert page["members"] == []
        log = (await served.as_(root).get(f"{CHATS}/{chat}/log", reveal="x")).body["entries"]
        assert [(one["kind"], one["deleted"]) for one in log] == [
            ("message", True),
            ("message", True),
            ("member", False),
            ("member", False),
        ]
        assert (await served.as_(cas).get("/v1/invitations")).body["invitations"] == []
        assert_refused(await served.as_(ben).get(f"/v1/chats/{chat}"), 403, "not_a_member")
        assert ("chat.delete", chat, "reason=report rep_1", "done") in await records(served, root)
        assert (await served.as_(root).get(f"{CHATS}/{chat}/check")).body["ok"]
        assert (await served.as_(root).delete(f"{CHATS}/{chat}", BECAUSE)).status == 202
    assert b"unique words" not in kept_in(place)


async def test_a_direct_chat_loses_what_it_says(place: Place) -> None:
    """Its two people keep it, and may go on."""
    async with place.serving() as served:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        chat = await served.as_(ann).create_direct(ben)
        await served.said(ann, chat, "unique words")
        assert (await served.as_(root).delete(f"{CHATS}/{chat}", BECAUSE)).status == 202
        await eventually(lambda: is_finished(served, root, chat))
        async with served.client(ben) as client:
            assert (await client.send_message(chat, "again", new_id()))["sequence"] == 2
        assert [one["content"] for one in await entries(served, ann, chat)] == ["", "again"]
    assert b"unique words" not in kept_in(place)
