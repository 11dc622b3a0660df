"""One person, filters of the list, who is an operator, and the audit log by its conditions."""

import asyncio
from typing import Any

import pytest

from parley import audit
from parley.accounts import user_admin
from tests.harness.clients import Person
from tests.integration.gateway.serving import Place, Served, assert_refused

USERS, AUDIT = "/v1/admin/users", "/v1/admin/audit"


async def test_one_person_with_all_that_is_theirs(place: Place) -> None:
    """Chats with their positions, devices, sessions and rings; no message, no token."""
    async with place.serving() as served:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        group = await served.as_(ann).create_group(ben, title="Lunch")
        direct = await served.as_(ann).create_direct(ben)
        await served.said(ann, group, "secret", "words")
        async with served.client(ben) as client:
            await client.tell("ack", chat_id=group, last_acked_sequence=2)
            await client.tell("read_receipt", conversation_id=group, read_up_to=1)
            await client.heartbeat()
        await served.app.known_devices.note(ben.user_id, "phone")
        await served.app.store.cursors.flush()
        answer = await served.as_(root).get(f"{USERS}/{ben.user_id}")
        person = answer.body
        assert (answer.status, person["username"], person["chat_count"]) == (200, "ben", 2)
        chats = {chat["chat_id"]: chat for chat in person["chats"]}
        assert set(chats) == {group, direct}
        chat = chats[group]
        assert (chat["role"], chat["head"], chat["delivered_up_to"], chat["read_up_to"]) == (
            "member",
            2,
            2,
            1,
        )
        assert [device["device_id"] for device in person["devices"]] == ["phone"]
        assert [session["session_id"] for session in person["sessions"]] == [ben.session_id]
        assert person["push_devices"] == []
        assert "secret" not in str(person)
        assert ben.token not in str(person)
        assert_refused(await served.as_(root).get(f"{USERS}/user_0"), 404, "not_found")


async def names(served: Served, root: Person, **query: str | int) -> list[str]:
    """Of all pages."""
    found, after = list[str](), ""
    while True:
        page = (await served.as_(root).get(USERS, **query, after=after)).body
        found += [user["username"] for user in page["users"]]
        if page["next"] is None:
            return sorted(found)
        after = page["next"]


async def test_people_by_what_they_are(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """By state, operators, bots, over as many pages as it takes; conditions that do not exist are refused."""
    monkeypatch.setattr(user_admin, "PEOPLE_LOOKED_AT_MAX", 2)
    async with place.serving() as served:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        await served.people("cas")
        await served.as_(root).post(f"{USERS}/{ann.user_id}/disable", None)
        await served.as_(root).delete(f"{USERS}/{ben.user_id}")
        await served.as_(root).put(f"{USERS}/4711", {"username": "robot", "is_bot": True})
        for limit in (1, 100):
            assert await names(served, root, state="disabled", limit=limit) == ["ann"]
            assert await names(served, root, operator="true", limit=limit) == ["root"]
            assert await names(served, root, bot="true", limit=limit) == ["robot"]
            assert await names(served, root, state="active", operator="false", bot="false", limit=limit) == [
                "cas"
            ]
        assert await names(served, root, q="ann", state="active") == []
        for wrong in ({"state": "gone"}, {"operator": "yes"}, {"bot": "1"}, {"role": "x"}):
            assert_refused(await served.as_(root).get(USERS, **wrong), 400, "bad_request")


async def test_operators_are_made_and_unmade(place: Place) -> None:
    """From the next request on, with the tokens that they have; each is in the audit log."""
    async with place.serving() as served:
        root, (ann,) = await served.operator(), await served.people("ann")
        path = f"{USERS}/{ann.user_id}/operator"
        assert_refused(await served.as_(ann).get(USERS), 403, "forbidden")
        for _ in range(2):
            made = await served.as_(root).put(path)
            assert (made.status, made.body["is_operator"]) == (200, True)
        assert (await served.as_(ann).get(USERS)).status == 200
        ended = await served.as_(root).delete(path)
        assert (ended.status, ended.body["is_operator"]) == (200, False)
        assert_refused(await served.as_(ann).get(USERS), 403, "forbidden")
        own = await served.as_(root).delete(f"{USERS}/{root.user_id}/operator")
        assert_refused(own, 409, "last_operator")
        assert_refused(await served.as_(root).put(f"{USERS}/user_0/operator"), 404, "not_found")
        found = (await served.as_(root).get(AUDIT, target=ann.user_id)).body["records"]
        assert [one["action"] for one in found] == ["operator.remove", "operator.add", "operator.add"]


async def test_two_operators_cannot_end_each_other(place: Place) -> None:
    """However their requests meet, there is one who is left."""
    async with place.serving() as served:
        root, other = await served.operator(), await served.operator("other")
        for _ in range(10):
            await asyncio.gather(
                served.as_(root).delete(f"{USERS}/{other.user_id}/operator"),
                served.as_(other).delete(f"{USERS}/{root.user_id}/operator"),
            )
            seen = [await served.as_(one).get(USERS, operator="true") for one in (root, other)]
            left = [answer for answer in seen if answer.status == 200]
            assert left
            operator = root if seen[0].status == 200 else other
            for one in (root, other):
                await served.as_(operator).put(f"{USERS}/{one.user_id}/operator")


async def found(served: Served, root: Person, **query: str | int) -> list[Any]:
    """The records of all pages, the newest first."""
    records, page = list[Any](), (await served.as_(root).get(AUDIT, **query)).body
    while True:
        records += page["records"]
        if page["next"] is None:
            return records
        page = (await served.as_(root).get(AUDIT, **query, before=page["next"])).body


async def test_the_audit_log_by_its_conditions(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who, what, whom and when, together; pages are bounded and lose nothing."""
    monkeypatch.setattr(audit, "RECORDS_LOOKED_AT_MAX", 2)
    async with place.serving() as served:
        root, other = await served.operator(), await served.operator("other")
        (ann, ben) = await served.people("ann", "ben")
        for operator, person in ((root, ann), (other, ann), (root, ben)):
            for action in ("disable", "enable"):
                await served.as_(operator).post(f"{USERS}/{person.user_id}/{action}", None)
        everything = await found(served, root)
        assert len(everything) == 6
        for limit in (1, 100):
            of_root = await found(served, root, actor=root.user_id, limit=limit)
            assert of_root == [one for one in everything if one["actor"] == root.user_id]
            both = {"actor": root.user_id, "action": "user.enable", "target": ben.user_id}
            assert await found(served, root, **both, limit=limit) == everything[:1]
            middle = everything[3]["at"]
            late = await found(served, root, since=middle, limit=limit)
            early = await found(served, root, until=middle, limit=limit)
            assert late + early == everything
            assert all(one["at"] >= middle for one in late)
        for wrong in ({"since": "yesterday"}, {"until": "x"}, {"outcome": "done"}):
            assert_refused(await served.as_(root).get(AUDIT, **wrong), 400, "bad_request")
