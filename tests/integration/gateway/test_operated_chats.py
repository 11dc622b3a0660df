"""What operators see of chats: the list, one chat, its members with their devices, its log without bodies."""

from contextlib import closing
from typing import Any

import apsw
import pytest

from parley.chats import operated_chats
from parley.gateway import chat_finder
from parley.store.folder import DATABASE_NAME
from tests.harness.clients import Person
from tests.integration.gateway.serving import Place, Served, assert_refused, message, new_id
from tests.waiting import eventually

CHATS = "/v1/admin/chats"
TWO_PHASE = {"PARLEY_STORE_SEQUENCING": "two_phase"}


async def shown(served: Served, root: Person, path: str, **query: str | int) -> Any:
    answer = await served.as_(root).get(f"{CHATS}{path}", **query)
    assert answer.status == 200, answer
    return answer.body


async def listed(served: Served, root: Person, **query: str | int) -> list[str]:
    """The chats of all pages, in their order."""
    found, page = list[str](), await shown(served, root, "", **query)
    while True:
        found += [chat["chat_id"] for chat in page["chats"]]
        if page["next"] is None:
            return found
        page = await shown(served, root, "", **query, after=page["next"])


async def test_operators_find_chats(place: Place) -> None:
    """By a part of the title, an id, or the people of a direct chat; by type, page by page."""
    async with place.serving() as served:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        groups = [
            await served.as_(ann).create_group(ben, title=title)
            for title in ("Kitchen crew", "Lunch", "The kitchen sink")
        ]
        direct = await served.as_(ann).create_direct(ben)
        newest_first = [direct, *groups[::-1]]
        for limit in (1, 2, 3, 50):
            assert await listed(served, root, limit=limit) == newest_first
            assert await listed(served, root, type="group", limit=limit) == groups[::-1]
            assert await listed(served, root, q="KITCHEN", limit=limit) == [groups[2], groups[0]]
        assert await listed(served, root, type="direct") == [direct]
        assert await listed(served, root, q=groups[1]) == [groups[1]]
        assert await listed(served, root, q="ben,ann") == [direct]
        for nothing in ("breakfast", "chat_nothing", "ann,eve", "\ud800"):
            assert await listed(served, root, q=nothing.encode("utf-8", "replace").decode()) == []
        (line,) = (await shown(served, root, "", q=direct))["chats"]
        assert (line["type"], line["title"], line["member_count"], line["head"]) == ("direct", None, 2, 0)
        assert {one["username"] for one in line["people"]} == {"ann", "ben"}
        assert_refused(await served.as_(root).get(CHATS, type="secret"), 400, "bad_request")


async def test_a_search_reads_a_bounded_number_of_titles(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page may be short; following `next` finds every chat once, however far apart they are."""
    monkeypatch.setattr(chat_finder, "LOOKED_AT_MAX", 3)
    async with place.serving() as served:
        root, (ann,) = await served.operator(), await served.people("ann")
        titles = [f"needle {number}" if number % 7 == 0 else "hay" for number in range(15)]
        chats = [await served.as_(ann).create_group(title=title) for title in titles]
        assert await listed(served, root, q="needle", limit=2) == [chats[14], chats[7], chats[0]]
        first = await shown(served, root, "", q="needle 0", limit=2)
        assert (first["chats"], first["next"]) == ([], chats[12])


async def test_too_many_chats_to_list(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes longer than a request may is refused with the command that can do it."""
    monkeypatch.setattr(chat_finder, "LIST_SECONDS_MAX", -1.0)
    async with place.serving() as served:
        root, (ann,) = await served.operator(), await served.people("ann")
        await served.as_(ann).create_group()
        answer = await served.as_(root).get(CHATS)
        assert_refused(answer, 413, "too_large")
        assert "parley chat list" in answer.body["reason"]


async def test_one_chat_with_its_counters(place: Place) -> None:
    """Head, voids and their share, the counter; retention and the rules of posting."""
    async with place.serving(TWO_PHASE) as served:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben, title="Lunch")
        empty = await shown(served, root, f"/{chat}")
        assert (empty["head"], empty["last_at"], empty["gap_rate"]) == (0, None, 0.0)
        await served.said(ann, chat, "one")
        async with served.client(ann) as client:
            early = "ffffffff-0000-4000-8000-000000000000"
            refused = await client.send_message(chat, "two", after_client_message_id=early)
            assert refused["code"] == "out_of_turn"
        (_, last) = await served.said(ann, chat, "three", "four")
        held = {"days": 30, "is_held": True}
        assert (await served.as_(root).put(f"{CHATS}/{chat}/retention", held)).status == 200
        await served.as_(ann).patch(f"/v1/chats/{chat}", {"slow_mode_seconds": 0, "announcement_only": True})
        found = await shown(served, root, f"/{chat}")
        assert (found["title"], found["type"], found["member_count"]) == ("Lunch", "group", 2)
        assert (found["head"], found["epoch"], found["counter"], found["open_allocations"]) == (5, 1, 5, 0)
        assert (found["voids"], found["counted_through"], found["gap_rate"]) == (1, 5, 0.2)
        assert found["last_at"] >= last["created_at"]
        assert (found["retention"], found["is_held"], found["announcement_only"]) == (30, True, True)
        assert found["created_by"] == ann.user_id
        assert_refused(await served.as_(root).get(f"{CHATS}/chat_nothing"), 404, "not_found")


async def test_a_long_log_is_counted_step_by_step(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer counts as long as it may, says how far it came, and the next one goes on there."""
    monkeypatch.setattr(operated_chats, "PAGE_ENTRIES_MAX", 2)
    async with place.serving() as served:
        root, (ann,) = await served.operator(), await served.people("ann")
        chat = await served.as_(ann).create_group()
        await served.said(ann, chat, *"abcde")
        monkeypatch.setattr(operated_chats, "COUNT_SECONDS_MAX", 0.0)
        assert (await shown(served, root, f"/{chat}"))["counted_through"] == 0
        monkeypatch.setattr(operated_chats, "COUNT_SECONDS_MAX", 60.0)
        assert (await shown(served, root, f"/{chat}"))["counted_through"] == 5
        await served.said(ann, chat, "f")
        monkeypatch.setattr(operated_chats, "COUNT_SECONDS_MAX", 0.0)
        assert (await shown(served, root, f"/{chat}"))["counted_through"] == 5


async def test_a_lost_counter_shows(place: Place) -> None:
    """It is null: an operator sees what is wrong before the chat is recovered."""
    async with place.serving() as served:
        root, (ann,) = await served.operator(), await served.people("ann")
        chat = await served.as_(ann).create_group()
        await served.said(ann, chat, "one")
        lose_counter(place, chat)
        assert (await shown(served, root, f"/{chat}"))["counter"] is None


async def test_members_with_their_devices(place: Place) -> None:
    """How far each person has received and read, and how far behind each of their devices is."""
    async with place.serving() as served:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        await served.said(ann, chat, "one", "two", "three")
        async with served.client(ben) as client:
            await client.tell("ack", chat_id=chat, last_acked_sequence=2)
            await client.tell("read_receipt", conversation_id=chat, read_up_to=1)
            await client.heartbeat()
        await served.app.known_devices.note(ben.user_id, "phone")
        await served.app.store.cursors.flush()
        page = await shown(served, root, f"/{chat}/members")
        by_name = {member["username"]: member for member in page["members"]}
        assert (page["head"], page["next"], set(by_name)) == (3, None, {"ann", "ben"})
        member = by_name["ben"]
        assert (member["role"], member["delivered_up_to"], member["read_up_to"]) == ("member", 2, 1)
        (device,) = member["devices"]
        assert (device["device_id"], device["last_acked_sequence"], device["lag"]) == ("phone", 2, 1)
        assert by_name["ann"]["role"] == "owner"
        first = await shown(served, root, f"/{chat}/members", limit=1)
        second = await shown(served, root, f"/{chat}/members", limit=1, after=first["next"])
        assert len({one["members"][0]["user_id"] for one in (first, second)}) == 2


async def test_a_log_is_shown_without_what_it_says(place: Place) -> None:
    """Around a number or a message, also of a direct chat: ids, kinds, times and sizes, and no body."""
    async with place.serving() as served:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        chat = await served.as_(ann).create_direct(ben)
        receipts = await served.said(ann, chat, *(f"secret {number}" for number in range(1, 10)))
        answer = await served.as_(root).get(f"{CHATS}/{chat}/log", around=5, limit=3)
        assert [one["sequence"] for one in answer.body["entries"]] == [4, 5, 6]
        assert "secret" not in str(answer.body)
        line = answer.body["entries"][1]
        assert (line["message_id"], line["kind"], line["size"]) == (receipts[4]["message_id"], "message", 8)
        assert (line["sender_id"], line["deleted"]) == (ann.user_id, False)
        by_id = await shown(served, root, f"/{chat}/log", around=receipts[4]["message_id"], limit=3)
        assert by_id == answer.body
        ends = await shown(served, root, f"/{chat}/log", limit=2)
        assert [one["sequence"] for one in ends["entries"]] == [8, 9]
        starts = await shown(served, root, f"/{chat}/log", around=1, limit=2)
        assert [one["sequence"] for one in starts["entries"]] == [1, 2]
        assert (await audited(served, root)) == []
        for wrong in ("x", "-1", "1.5"):
            answer = await served.as_(root).get(f"{CHATS}/{chat}/log", around=wrong)
            assert_refused(answer, 400, "bad_request")
        unknown = await served.as_(root).get(f"{CHATS}/{chat}/log", around="msg_nothing")
        assert_refused(unknown, 404, "not_found")


async def audited(served: Served, root: Person) -> list[Any]:
    records: list[Any] = (await served.as_(root).get("/v1/admin/audit")).body["records"]
    return [(one["action"], one["target_id"], one["detail"], one["outcome"]) for one in records]


async def test_bodies_are_shown_for_a_reason_that_is_recorded(place: Place) -> None:
    """As they are now: what was deleted is gone for operators, too; nothing is shown without a reason."""
    async with place.serving() as served:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        chat = await served.as_(ann).create_direct(ben)
        receipts = await served.said(ann, chat, "one", "two")
        path = f"/{chat}/log"
        page = await shown(served, root, path, around=2, limit=2, reveal="report rep_1")
        assert [one["content"] for one in page["entries"]] == ["one", "two"]
        detail = "around=2 limit=2 reason=report rep_1"
        assert await audited(served, root) == [("chat.read", chat, detail, "done")]
        async with served.client(ann) as client:
            gone = {"chat_id": chat, "message_id": receipts[0]["message_id"]}
            await client.request("delete_message", client_message_id=new_id(), **gone)
        page = await shown(served, root, path, around=1, limit=1, reveal="again")
        assert [(one["content"], one["deleted"]) for one in page["entries"]] == [("", True)]
        for reason in ("", "  ", "x" * 1_001):
            answer = await served.as_(root).get(f"{CHATS}{path}", reveal=reason)
            assert_refused(answer, 400, "bad_request")
        assert len(await audited(served, root)) == 2


async def test_a_lost_counter_is_recovered(place: Place) -> None:
    """A dry run says what it would write; then it is written beside the server, and the chat goes on."""
    async with place.serving() as served:
        root, (ann,) = await served.operator(), await served.people("ann")
        chat = await served.as_(ann).create_group()
        await served.said(ann, chat, "one", "two")
        lose_counter(place, chat)
        refused = await served.as_(ann).post(f"/v1/chats/{chat}/messages", message("three"))
        assert_refused(refused, 503, "counter_missing")
        path = f"{CHATS}/{chat}/recover"
        looked = await served.as_(root).post(path, {})
        assert (looked.status, looked.body["status"], looked.body["applied"]) == (200, "missing", False)
        assert (looked.body["counter"], looked.body["found"]["entries"]) == (2, 2)
        assert (await shown(served, root, f"/{chat}"))["counter"] is None
        done = (await served.as_(root).post(path, {"dry_run": False})).body
        assert (done["status"], done["applied"], done["counter"], done["problems"]) == (
            "recovered",
            True,
            2,
            [],
        )
        await eventually(lambda: goes_on(served, ann, chat))
        again = (await served.as_(root).post(path, {"dry_run": False})).body
        assert (again["status"], again["voids"]) == ("fine", [])
        recorded = [(action, detail, outcome) for action, _, detail, outcome in await audited(served, root)]
        wrote = "dry_run=False seal_holes=False"
        assert recorded == [
            ("chat.recover", wrote, "done"),
            ("chat.recover", wrote, "done"),
            ("chat.recover", "dry_run=True seal_holes=False", "done"),
        ]
        unknown = await served.as_(root).post(f"{CHATS}/chat_nothing/recover", {})
        assert_refused(unknown, 404, "not_found")


async def test_an_existing_counter_is_never_overwritten(place: Place) -> None:
    """One that is behind its log is named, with what to do about it; nothing is written."""
    async with place.serving() as served:
        root, (ann,) = await served.operator(), await served.people("ann")
        chat = await served.as_(ann).create_group()
        await served.said(ann, chat, "one", "two")
        change(place, "UPDATE chat_counters SET sequence_counter = 1 WHERE chat_id = ?", chat)
        done = (await served.as_(root).post(f"{CHATS}/{chat}/recover", {"dry_run": False})).body
        assert (done["status"], done["applied"], done["counter"]) == ("inconsistent", False, None)
        assert "never overwritten" in done["problems"][1]
        assert (await shown(served, root, f"/{chat}"))["counter"] == 1


def lose_counter(place: Place, chat: str) -> None:
    change(place, "DELETE FROM chat_counters WHERE chat_id = ?", chat)


def change(place: Place, sql: str, *values: str) -> None:
    """By the library of the server: another one in the same process would end the locks of this one."""
    with closing(apsw.Connection(str(place.folder / DATABASE_NAME))) as other:
        other.setbusytimeout(5_000)
        other.execute(sql, values)


async def goes_on(served: Served, person: Person, chat: str) -> bool:
    answer = await served.as_(person).post(f"/v1/chats/{chat}/messages", message("three"))
    return bool(answer.status == 201 and answer.body["sequence"] == 3)
