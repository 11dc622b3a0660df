"""A deleted person: nothing of the account is left, and what others wrote and read with them stays."""

from pathlib import Path

import pytest

from parley.accounts import deletions
from parley.checks.check import check
from parley.errors import StoreUnavailable
from parley.model import Relation
from tests.harness.clients import Person
from tests.harness.clock import VirtualClock
from tests.integration.cli.running import succeed
from tests.integration.gateway.serving import Place, Served, assert_refused, message
from tests.waiting import eventually

PASSWORD = "correct horse battery"


async def delete(served: Served, root: Person, person: Person) -> None:
    answer = await served.as_(root).delete(f"/v1/admin/users/{person.user_id}")
    assert (answer.status, answer.body["state"]) == (202, "deleted"), answer


async def left(served: Served, person: Person, *chats: str) -> None:
    """Wait until the person is in none of these chats."""

    async def has_left() -> bool:
        return not set(chats) & set(await served.app.store.directory.chat_ids_of(person.user_id))

    await eventually(has_left)


async def breaches(served: Served) -> list[str]:
    return [str(breach) for breach in (await check(served.app.store)).breaches]


async def test_a_deleted_account_cannot_be_used(place: Place) -> None:
    """Its sockets close, its token and password are refused like those of nobody."""
    async with place.serving() as served:
        root, ann = await served.operator(), (await served.people("ann"))[0]
        async with served.client(ann) as client:
            await delete(served, root, ann)
            assert (await client.until_ended()).code == 4102
        assert_refused(await served.as_(ann).get("/v1/me"), 401, "unauthenticated")
        login = {"username": "ann", "password": PASSWORD, "device_id": "pc"}
        assert_refused(await served.http.post("/v1/sessions", login), 401, "unauthenticated")


async def test_a_free_name_does_not_bring_the_old_person_back(place: Place) -> None:
    """Whoever takes the name is somebody else, in none of the old chats."""
    async with place.serving() as served:
        root = await served.operator()
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        await delete(served, root, ann)
        again = (await served.people("ann"))[0]
        assert again.user_id != ann.user_id
        assert_refused(await served.as_(again).get(f"/v1/chats/{chat}"), 403, "not_a_member")
        profile = (await served.as_(ben).get(f"/v1/users/{ann.user_id}")).body
        assert (profile["display_name"], profile["about"]) == ("deleted", "")


async def test_the_impossible_name_of_a_deleted_account_lets_nobody_in(place: Place) -> None:
    """Not with an empty password either."""
    async with place.serving() as served:
        root, ann = await served.operator(), (await served.people("ann"))[0]
        await delete(served, root, ann)
        name = (await served.as_(root).get(f"/v1/users/{ann.user_id}")).body["username"]
        for password in ("", PASSWORD):
            login = {"username": name, "password": password, "device_id": "pc"}
            assert_refused(await served.http.post("/v1/sessions", login), 401, "unauthenticated")
        assert_refused(
            await served.http.post("/v1/accounts", {"username": name, "password": "x"}), 400, "bad_request"
        )


async def test_a_direct_chat_with_a_deleted_person_is_only_read(place: Place) -> None:
    """What was said stays; a send is refused for good, with a code of its own."""
    async with place.serving() as served:
        root = await served.operator()
        ann, ben = await served.people("ann", "ben")
        direct = await served.as_(ben).create_direct(ann)
        await served.said(ann, direct, "goodbye")
        await delete(served, root, ann)
        page = (await served.as_(ben).get(f"/v1/chats/{direct}/messages")).body
        assert [entry["content"] for entry in page["entries"]] == ["goodbye"]
        refused = await served.as_(ben).post(f"/v1/chats/{direct}/messages", message())
        assert_refused(refused, 403, "user_deleted")
        assert refused.body["temporary"] is False
        assert await served.as_(ben).create_direct(ann) == direct
        assert await breaches(served) == []


async def test_a_deleted_person_leaves_every_group(place: Place) -> None:
    """By an entry of the log; a group without another owner gets one, an admin before a member."""
    async with place.serving() as served:
        root = await served.operator()
        ann, ben, cem = await served.people("ann", "ben", "cem")
        owned, joined = await served.as_(ann).create_group(ben, cem), await served.as_(ben).create_group(ann)
        alone = await served.as_(ann).create_group()
        admin = {"role": "admin"}
        assert (await served.as_(ann).patch(f"/v1/chats/{owned}/members/{cem.user_id}", admin)).status == 200
        await delete(served, root, ann)
        await left(served, ann, owned, joined, alone)
        members = (await served.as_(ben).get(f"/v1/chats/{owned}/members")).body["members"]
        roles = {member["user_id"]: member["role"] for member in members}
        assert roles == {ben.user_id: "member", cem.user_id: "owner"}
        last = (await served.as_(ben).get(f"/v1/chats/{joined}/messages")).body["entries"][-1]
        assert (last["kind"], last["sender_id"]) == ("member", ann.user_id)
        assert '"action":"left"' in last["content"]
        assert await breaches(served) == []


async def test_a_deleted_persons_lists_are_emptied(place: Place) -> None:
    """Contacts and blocks go with the account."""
    async with place.serving() as served:
        root = await served.operator()
        ann, ben = await served.people("ann", "ben")
        for kind in ("contacts", "blocks"):
            assert (await served.as_(ann).put(f"/v1/{kind}/{ben.user_id}")).status == 200
        await delete(served, root, ann)
        relations = served.app.kinds.relations

        async def are_empty() -> bool:
            return not any([await relations.related(ann.user_id, each, "", 9) for each in Relation])

        await eventually(are_empty)


async def test_a_deletion_survives_a_crash(place: Place) -> None:
    """A server that died after the deletion was durable finishes it when it is back."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        await served.app.kinds.account_admin.delete_user(ann.user_id, "", served.app.clock())
    async with place.serving() as served:
        await left(served, ann, chat)
        assert await breaches(served) == []


async def test_a_deletion_goes_on_after_the_store_failed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass that fails in the middle is followed by another."""
    monkeypatch.setattr(deletions, "LOOK_SECONDS", 0.05)
    async with place.serving() as served:
        root = await served.operator()
        ann, ben = await served.people("ann", "ben")
        chats = [await served.as_(ben).create_group(ann) for _ in range(2)]
        role, failures = served.app.store.directory.role, iter([True])

        async def fail_once(chat_id: str, user_id: str) -> object:
            if user_id == ann.user_id and next(failures, False):
                raise StoreUnavailable("on purpose")
            return await role(chat_id, user_id)

        monkeypatch.setattr(served.app.store.directory, "role", fail_once)
        await delete(served, root, ann)
        await left(served, ann, *chats)


async def test_a_deletion_is_finished_once_nothing_can_come_back(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark stays for a while, so that a join that was under way is found, and then goes."""
    monkeypatch.setattr(deletions, "LOOK_SECONDS", 0.05)
    clock = VirtualClock()
    async with place.serving(clock=clock) as served:
        root, ann = await served.operator(), (await served.people("ann"))[0]
        chat = await served.as_(ann).create_group()
        await delete(served, root, ann)
        await left(served, ann, chat)
        admin = served.app.kinds.account_admin
        assert [one.user_id for one in await admin.deletions()] == [ann.user_id]
        clock.advance(deletions.SETTLED_MS)

        async def is_finished() -> bool:
            return not await admin.deletions()

        await eventually(is_finished)


async def test_an_unknown_erasure_is_refused(place: Place) -> None:
    """An unknown kind of erasure is refused as a whole: the account is still there."""
    async with place.serving() as served:
        root, ann = await served.operator(), (await served.people("ann"))[0]
        path = f"/v1/admin/users/{ann.user_id}"
        refused = await served.as_(root).request("DELETE", path, erase="everything")
        assert_refused(refused, 400, "bad_request")
        assert (await served.as_(ann).get("/v1/me")).status == 200


def test_a_command_deletes_to_the_end(data: Path) -> None:
    """Without a server: the person is out of their groups when it returns, and the store is whole."""
    before = succeed("user", "list", "--json", data=data).json["users"]
    name = before[0]["username"]
    told = succeed("user", "delete", name, "--json", data=data).json
    assert told["result"] == "deleted"
    after = {user["user_id"]: user for user in succeed("user", "list", "--json", data=data).json["users"]}
    assert after[told["user_id"]]["state"] == "deleted"
    assert succeed("check", "--json", data=data).json["breaches"] == []
    groups = succeed("chat", "list", "--json", data=data).json["chats"]
    for group in (chat for chat in groups if chat["type"] == "group"):
        members = succeed("chat", "show", group["chat_id"], "--json", data=data).json["members"]
        assert told["user_id"] not in [member["user_id"] for member in members]
