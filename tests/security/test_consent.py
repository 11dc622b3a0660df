"""Somebody tries to put a person into chats who does not want that: by adding, inviting, flooding, racing."""

import pytest

from parley.wire.limits import UNASKED_CHATS_MAX, USER_CHATS_MAX
from tests.harness.clients import Answer, Person
from tests.integration.gateway.serving import Place, Served, assert_refused

GROUP = {"type": "group", "title": "spam"}


async def let(served: Served, person: Person, who_may_add: str) -> None:
    answer = await served.as_(person).patch("/v1/me", {"who_may_add": who_may_add})
    assert (answer.status, answer.body["who_may_add"]) == (200, who_may_add)


async def block(served: Served, person: Person, other: Person) -> None:
    assert (await served.as_(person).put(f"/v1/blocks/{other.user_id}")).status == 200


async def add(served: Served, actor: Person, chat: str, *people: Person) -> Answer:
    body = {"user_ids": [person.user_id for person in people]}
    return await served.as_(actor).post(f"/v1/chats/{chat}/members", body)


async def invitations_of(served: Served, person: Person) -> list[str]:
    answer = await served.as_(person).get("/v1/invitations")
    return [one["chat_id"] for one in answer.body["invitations"]]


async def chats_of(served: Served, person: Person) -> list[str]:
    return [chat["chat_id"] for chat in (await served.as_(person).get("/v1/chats")).body["chats"]]


@pytest.mark.parametrize("setting", ["contacts", "nobody"])
async def test_adding_a_person_who_does_not_want_it_only_invites(place: Place, setting: str) -> None:
    """Neither an addition nor a new group puts them anywhere: both leave an invitation, and say so."""
    async with place.serving() as served:
        eve, ann = await served.people("eve", "ann")
        await let(served, ann, setting)
        chat = await served.as_(eve).create_group()
        added = await add(served, eve, chat, ann)
        assert (added.status, added.body["added"], added.body["invited"]) == (202, [], [ann.user_id])
        made = await served.as_(eve).post("/v1/chats", {**GROUP, "member_ids": [ann.user_id]})
        assert (made.status, made.body["added"], made.body["invited"]) == (201, [], [ann.user_id])
        assert await chats_of(served, ann) == []
        assert await invitations_of(served, ann) == sorted([chat, made.body["chat_id"]])


async def test_opening_a_direct_chat_with_a_person_who_does_not_want_it_is_refused(place: Place) -> None:
    """A direct chat needs consent like any other; there is nothing to invite to."""
    async with place.serving() as served:
        eve, ann = await served.people("eve", "ann")
        await let(served, ann, "contacts")
        wanted = {"type": "direct", "member_ids": [ann.user_id]}
        assert_refused(await served.as_(eve).post("/v1/chats", wanted), 403, "forbidden")
        assert await chats_of(served, ann) == []


async def test_a_stranger_cannot_make_themself_a_contact(place: Place) -> None:
    """It is the added person's list that counts, and only they write it."""
    async with place.serving() as served:
        eve, ann = await served.people("eve", "ann")
        await let(served, ann, "contacts")
        await served.as_(eve).put(f"/v1/contacts/{ann.user_id}")
        assert (await add(served, eve, await served.as_(eve).create_group(), ann)).status == 202
        await served.as_(ann).put(f"/v1/contacts/{eve.user_id}")
        assert (await add(served, eve, await served.as_(eve).create_group(), ann)).status == 201


async def test_a_blocked_person_cannot_add_the_blocker(place: Place) -> None:
    """Adding, creating a group with them and inviting are all refused as `blocked`, and leave nothing."""
    async with place.serving() as served:
        eve, ann, ben = await served.people("eve", "ann", "ben")
        await block(served, ann, eve)
        chat = await served.as_(eve).create_group()
        for setting in ("everyone", "nobody"):
            await let(served, ann, setting)
            assert_refused(await add(served, eve, chat, ann), 403, "blocked")
            wanted = {**GROUP, "member_ids": [ann.user_id, ben.user_id]}
            assert_refused(await served.as_(eve).post("/v1/chats", wanted), 403, "blocked")
        assert await chats_of(served, ann) == await chats_of(served, ben) == []
        assert await invitations_of(served, ann) == []


async def test_blocking_ends_the_invitations_of_the_blocked_one(place: Place) -> None:
    """What they had sent before is gone at once, and what others sent stays."""
    async with place.serving() as served:
        eve, ann, ben = await served.people("eve", "ann", "ben")
        await let(served, ann, "nobody")
        await add(served, eve, await served.as_(eve).create_group(), ann)
        kept = await served.as_(ben).create_group()
        await add(served, ben, kept, ann)
        await block(served, ann, eve)
        assert await invitations_of(served, ann) == [kept]


async def test_an_invitation_lets_nobody_else_in(place: Place) -> None:
    """Another person's invitation is not there for those who ask, and so is one that was taken back."""
    async with place.serving() as served:
        eve, ann, ben = await served.people("eve", "ann", "ben")
        await let(served, ann, "nobody")
        chat = await served.as_(eve).create_group()
        await add(served, eve, chat, ann)
        assert_refused(await served.as_(ben).post(f"/v1/invitations/{chat}", {}), 404, "not_found")
        path = f"/v1/chats/{chat}/invitations/{ann.user_id}"
        assert (await served.as_(eve).delete(path)).status == 204
        assert_refused(await served.as_(ann).post(f"/v1/invitations/{chat}", {}), 404, "not_found")
        assert await chats_of(served, ann) == []


async def test_only_those_who_may_add_see_and_withdraw_invitations(place: Place) -> None:
    """Strangers and plain members neither read the list of a chat nor take anything back."""
    async with place.serving() as served:
        eve, ann, ben, cem = await served.people("eve", "ann", "ben", "cem")
        await let(served, ann, "nobody")
        chat = await served.as_(eve).create_group(ben)
        await add(served, eve, chat, ann)
        path = f"/v1/chats/{chat}/invitations"
        for person, code in ((ben, "forbidden"), (cem, "not_a_member"), (ann, "not_a_member")):
            assert_refused(await served.as_(person).get(path), 403, code)
            assert_refused(await served.as_(person).delete(f"{path}/{ann.user_id}"), 403, code)
        assert await invitations_of(served, ann) == [chat]


async def test_a_plain_member_cannot_invite(place: Place) -> None:
    """Who may not add may not invite either, and learns nothing of the person's setting."""
    async with place.serving() as served:
        eve, ann, ben = await served.people("eve", "ann", "ben")
        chat = await served.as_(eve).create_group(ben)
        for setting in ("everyone", "nobody"):
            await let(served, ann, setting)
            assert_refused(await add(served, ben, chat, ann), 403, "forbidden")
        assert await invitations_of(served, ann) == []


async def test_an_admin_cannot_withdraw_what_an_owner_offered(place: Place) -> None:
    """An invitation to be an owner is for owners to take back."""
    async with place.serving() as served:
        eve, ann, ben = await served.people("eve", "ann", "ben")
        await let(served, ann, "nobody")
        chat = await served.as_(eve).create_group(ben)
        await served.as_(eve).patch(f"/v1/chats/{chat}/members/{ben.user_id}", {"role": "admin"})
        body = {"user_id": ann.user_id, "role": "owner"}
        assert (await served.as_(eve).post(f"/v1/chats/{chat}/members", body)).status == 202
        path = f"/v1/chats/{chat}/invitations/{ann.user_id}"
        assert_refused(await served.as_(ben).delete(path), 403, "forbidden")


@pytest.mark.parametrize("how", ["group", "direct", "add"])
async def test_strangers_cannot_fill_a_persons_chats(
    place: Place, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many accounts together fill a share; then they can only invite, and the person's own way stays open."""
    monkeypatch.setattr("parley.core.consent.UNASKED_CHATS_MAX", 2)
    async with place.serving() as served:
        ann, *strangers = await served.people("ann", "eve1", "eve2", "eve3", "eve4")
        for eve in strangers:
            if how == "add":
                await add(served, eve, await served.as_(eve).create_group(), ann)
            else:
                await served.as_(eve).post("/v1/chats", {"type": how, "member_ids": [ann.user_id]})
        assert len(await chats_of(served, ann)) == 2
        await served.as_(ann).create_group(strangers[0])
        await served.as_(ann).put(f"/v1/contacts/{strangers[3].user_id}")
        await served.as_(strangers[3]).create_group(ann)
        assert len(await chats_of(served, ann)) == 4


def test_half_of_a_persons_chats_are_their_own() -> None:
    """What strangers can fill leaves at least as much to the person and their contacts."""
    assert USER_CHATS_MAX - UNASKED_CHATS_MAX >= UNASKED_CHATS_MAX > 0


async def test_one_stranger_cannot_fill_the_list_of_invitations(place: Place) -> None:
    """Ten of one inviter wait for a person; an eleventh is refused until one is answered."""
    async with place.serving() as served:
        eve, ann = await served.people("eve", "ann")
        await let(served, ann, "nobody")
        chats = [await served.as_(eve).create_group() for _ in range(11)]
        answers = [await add(served, eve, chat, ann) for chat in chats]
        assert [answer.status for answer in answers] == [202] * 10 + [400]
        assert (await served.as_(ann).delete(f"/v1/invitations/{chats[0]}")).status == 204
        assert (await add(served, eve, chats[10], ann)).status == 202


async def test_a_refused_invitation_does_not_stop_a_new_group(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has too many invitations of one person is in neither list, and the others are."""
    monkeypatch.setattr("parley.records.invitations.INVITATIONS_PER_INVITER_MAX", 1)
    async with place.serving() as served:
        eve, ann, ben, cem = await served.people("eve", "ann", "ben", "cem")
        for person in (ann, ben):
            await let(served, person, "nobody")
        await add(served, eve, await served.as_(eve).create_group(), ann)
        wanted = {**GROUP, "member_ids": [ann.user_id, ben.user_id, cem.user_id]}
        made = await served.as_(eve).post("/v1/chats", wanted)
        assert (made.body["added"], made.body["invited"]) == ([cem.user_id], [ben.user_id])
