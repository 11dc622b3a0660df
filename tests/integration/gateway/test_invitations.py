"""Invitations from end to end: over HTTP, and live on the sockets of the invited person."""

from typing import Any

import pytest

from parley.clock import MS_PER_DAY
from parley.wire.limits import INVITATION_DAYS, INVITATIONS_MAX
from tests.harness.clients import Person
from tests.harness.clock import VirtualClock
from tests.integration.gateway.serving import Place, Served, assert_refused, message


async def reserved(served: Served, *usernames: str) -> list[Person]:
    """People whom nobody may add."""
    people = await served.people(*usernames)
    for person in people:
        await served.as_(person).patch("/v1/me", {"who_may_add": "nobody"})
    return people


async def invite(served: Served, by: Person, chat: str, person: Person, role: str = "member") -> None:
    body = {"user_id": person.user_id, "role": role}
    answer = await served.as_(by).post(f"/v1/chats/{chat}/members", body)
    assert (answer.status, answer.body["invited"]) == (202, [person.user_id]), answer


async def listed(served: Served, person: Person, path: str = "/v1/invitations") -> list[dict[str, Any]]:
    answer = await served.as_(person).get(path)
    assert answer.status == 200, answer
    return list(answer.body["invitations"])


async def test_who_accepts_takes_part(either: Place) -> None:
    """The person joins with the role that was offered, hears the chat live, and is invited no more."""
    async with either.serving() as served:
        (eve,) = await served.people("eve")
        (ann,) = await reserved(served, "ann")
        chat = await served.as_(eve).create_group(title="Tea")
        await invite(served, eve, chat, ann, "admin")
        async with served.client(ann) as client:
            answer = await served.as_(ann).post(f"/v1/invitations/{chat}", {})
            assert (answer.status, answer.body["sequence"], answer.body["user_id"]) == (201, 1, ann.user_id)
            await client.hear("chat_changed", chat_id=chat, change="joined")
        members = (await served.as_(eve).get(f"/v1/chats/{chat}/members")).body["members"]
        assert {one["user_id"]: one["role"] for one in members}[ann.user_id] == "admin"
        assert (await served.as_(ann).post(f"/v1/chats/{chat}/messages", message())).status == 201
        assert await listed(served, ann) == []


async def test_an_invitation_says_who_and_where(place: Place) -> None:
    """The list of the person and that of the chat show the same, with names and times."""
    clock = VirtualClock()
    async with place.serving(clock=clock) as served:
        (eve,) = await served.people("eve")
        (ann,) = await reserved(served, "ann")
        chat = await served.as_(eve).create_group(title="Tea")
        await invite(served, eve, chat, ann)
        (mine,) = await listed(served, ann)
        assert [mine] == await listed(served, eve, f"/v1/chats/{chat}/invitations")
        assert {name: mine[name] for name in ("chat_id", "title", "role")} == {
            "chat_id": chat,
            "title": "Tea",
            "role": "member",
        }
        assert (mine["user_id"], mine["username"]) == (ann.user_id, "ann")
        assert (mine["by"], mine["by_username"], mine["by_display_name"]) == (eve.user_id, "eve", "eve")
        assert mine["invited_at"] < mine["expires_at"]


async def test_the_invited_person_is_told_live(place: Place) -> None:
    """Their sockets hear of an invitation and of its end, and nobody else does."""
    async with place.serving() as served:
        eve, ben = await served.people("eve", "ben")
        (ann,) = await reserved(served, "ann")
        chat = await served.as_(eve).create_group(ben, title="Tea")
        async with served.client(ann) as hers, served.client(ben) as his:
            await invite(served, eve, chat, ann)
            frame = await hers.hear("invitation", chat_id=chat)
            assert (frame["title"], frame["by"], frame["role"]) == ("Tea", eve.user_id, "member")
            await served.as_(eve).delete(f"/v1/chats/{chat}/invitations/{ann.user_id}")
            await hers.hear("invitation_ended", chat_id=chat)
            await his.heartbeat()
            assert not his.heard("invitation")
            assert not his.heard("invitation_ended")


async def test_declining_tells_ones_own_devices_alone(place: Place) -> None:
    """The invitation is gone for good, the inviter hears nothing, and may invite again."""
    async with place.serving() as served:
        (eve,) = await served.people("eve")
        (ann,) = await reserved(served, "ann")
        chat = await served.as_(eve).create_group()
        await invite(served, eve, chat, ann)
        async with served.client(ann) as hers, served.client(eve) as inviters:
            assert (await served.as_(ann).delete(f"/v1/invitations/{chat}")).status == 204
            await hers.hear("invitation_ended", chat_id=chat)
            await inviters.heartbeat()
            assert not inviters.heard("invitation_ended")
        assert_refused(await served.as_(ann).delete(f"/v1/invitations/{chat}"), 404, "not_found")
        assert_refused(await served.as_(ann).post(f"/v1/invitations/{chat}", {}), 404, "not_found")
        await invite(served, eve, chat, ann)


async def test_a_new_group_adds_some_and_invites_others(place: Place) -> None:
    """The answer says who was added and who was invited, and the log of the chat is empty."""
    async with place.serving() as served:
        eve, ben = await served.people("eve", "ben")
        (ann,) = await reserved(served, "ann")
        body = {"type": "group", "member_ids": [ann.user_id, ben.user_id, eve.user_id]}
        made = (await served.as_(eve).post("/v1/chats", body)).body
        assert (made["added"], made["invited"]) == ([ben.user_id], [ann.user_id])
        assert (made["head"], made["member_count"]) == (0, 2)
        shown = (await served.as_(eve).get(f"/v1/chats/{made['chat_id']}")).body
        assert not {"added", "invited"} & shown.keys()


async def test_adding_several_adds_some_and_invites_others(place: Place) -> None:
    """What exists of the answer names the last who was added."""
    async with place.serving() as served:
        eve, ben = await served.people("eve", "ben")
        (ann,) = await reserved(served, "ann")
        chat = await served.as_(eve).create_group()
        body = {"user_ids": [ben.user_id, ann.user_id]}
        done = await served.as_(eve).post(f"/v1/chats/{chat}/members", body)
        assert (done.status, done.body["sequence"], done.body["user_id"]) == (201, 1, ben.user_id)
        assert (done.body["added"], done.body["invited"]) == ([ben.user_id], [ann.user_id])


async def test_invitations_come_in_pages(place: Place) -> None:
    """The next page begins after the last chat of this one."""
    async with place.serving() as served:
        (eve,) = await served.people("eve")
        (ann,) = await reserved(served, "ann")
        chats = sorted([await served.as_(eve).create_group() for _ in range(3)])
        for chat in chats:
            await invite(served, eve, chat, ann)
        first = (await served.as_(ann).get("/v1/invitations", limit=2)).body
        assert [one["chat_id"] for one in first["invitations"]] == chats[:2]
        second = (await served.as_(ann).get("/v1/invitations", limit=2, after=first["next_after"])).body
        assert [one["chat_id"] for one in second["invitations"]] == chats[2:]
        assert second["next_after"] is None


async def test_an_invitation_expires(place: Place) -> None:
    """After its days it can neither be seen nor accepted."""
    clock = VirtualClock()
    async with place.serving(clock=clock) as served:
        (eve,) = await served.people("eve")
        (ann,) = await reserved(served, "ann")
        chat = await served.as_(eve).create_group()
        await invite(served, eve, chat, ann)
        clock.advance(INVITATION_DAYS * MS_PER_DAY // 2)
        assert len(await listed(served, ann)) == 1
        clock.advance(INVITATION_DAYS * MS_PER_DAY // 2)
        again = await served.http.login("ann")
        assert await listed(served, again) == []
        assert_refused(await served.as_(again).post(f"/v1/invitations/{chat}", {}), 404, "not_found")


async def test_the_oldest_makes_room_and_is_told(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """One invitation too many ends the oldest, live as well."""
    monkeypatch.setattr("parley.records.invitations.INVITATIONS_MAX", 1)
    async with place.serving(clock=(clock := VirtualClock())) as served:
        (eve,) = await served.people("eve")
        (ann,) = await reserved(served, "ann")
        old, new = await served.as_(eve).create_group(), await served.as_(eve).create_group()
        await invite(served, eve, old, ann)
        clock.advance(1)
        async with served.client(ann) as client:
            await invite(served, eve, new, ann)
            await client.hear("invitation_ended", chat_id=old)
        assert [one["chat_id"] for one in await listed(served, ann)] == [new]


def test_a_page_holds_every_invitation() -> None:
    """A person's invitations fit on one page, so a block finds all of one inviter."""
    assert INVITATIONS_MAX <= 1_000


async def test_whoever_was_added_meanwhile_has_nothing_to_accept(place: Place) -> None:
    """A setting that is relaxed lets the inviter add; the invitation is over by that."""
    async with place.serving() as served:
        (eve,) = await served.people("eve")
        (ann,) = await reserved(served, "ann")
        chat = await served.as_(eve).create_group()
        await invite(served, eve, chat, ann)
        await served.as_(ann).patch("/v1/me", {"who_may_add": "everyone"})
        body = {"user_id": ann.user_id}
        assert (await served.as_(eve).post(f"/v1/chats/{chat}/members", body)).status == 201
        assert await listed(served, ann) == []
        assert_refused(await served.as_(ann).post(f"/v1/invitations/{chat}", {}), 404, "not_found")
