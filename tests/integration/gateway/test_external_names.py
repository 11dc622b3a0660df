"""`ext:{external_id}` instead of the id of a person: in paths, queries and bodies of every route."""

from tests.harness.clients import HttpClient, Person
from tests.integration.gateway.serving import Place, Served, assert_refused

USERS = "/v1/admin/users"


async def town(served: Served) -> tuple[HttpClient, Person, str, str]:
    """An operator, Ann who is here by herself, and two people of another system."""
    root, (ann,) = served.as_(await served.operator()), await served.people("ann")
    ids = []
    for external_id in ("4711", "a/b c"):
        answer = await root.put(f"{USERS}/{external_id.replace('/', '%2F').replace(' ', '%20')}", {})
        ids.append(answer.body["user_id"])
    return root, ann, ids[0], ids[1]


async def test_people_of_another_system_are_named_in_bodies(place: Place) -> None:
    """One, several, an owner, a sender, somebody who is mentioned."""
    async with place.serving() as served:
        root, ann, first, second = await town(served)
        made = await served.as_(ann).post(
            "/v1/chats", {"type": "group", "title": "x", "member_ids": ["ext:4711"]}
        )
        assert made.status == 201, made
        chat = made.body["chat_id"]
        await served.as_(ann).post(f"/v1/chats/{chat}/members", {"user_ids": ["ext:a/b c"]})
        members = (await served.as_(ann).get(f"/v1/chats/{chat}/members")).body["members"]
        assert {one["user_id"] for one in members} == {ann.user_id, first, second}
        owned = await root.post(
            "/v1/admin/chats",
            {"type": "group", "title": "y", "owner_id": "ext:4711", "member_ids": [ann.user_id]},
        )
        assert owned.body["created_by"] == first
        sent = await root.post(
            f"/v1/admin/chats/{chat}/messages",
            {"sender_id": "ext:4711", "content": "hello", "mentions": ["ext:a/b c"]},
        )
        shown = await served.as_(ann).get(f"/v1/chats/{chat}/messages/{sent.body['message_id']}")
        assert (shown.body["entry"]["sender_id"], shown.body["entry"]["mentions"]) == (first, [second])


async def test_people_of_another_system_are_named_in_paths_and_queries(place: Place) -> None:
    """By operators and by everybody else."""
    async with place.serving() as served:
        root, ann, first, second = await town(served)
        assert (await root.get(f"{USERS}/ext:4711")).body["user_id"] == first
        assert (await root.get(f"{USERS}/ext%3Aa%2Fb%20c")).body["user_id"] == second
        assert (await root.post(f"{USERS}/ext:4711/disable", None)).body["state"] == "disabled"
        found = (await served.as_(ann).get("/v1/users", ids=f"ext:4711,{ann.user_id}")).body["users"]
        assert {one["user_id"] for one in found} == {first, ann.user_id}
        records = (await root.get("/v1/admin/audit", action="user.disable")).body["records"]
        assert [one["target_id"] for one in records] == [first]


async def test_a_person_whom_nobody_put_is_nobody(place: Place) -> None:
    """And a route that makes people of another system takes their id as it is."""
    async with place.serving() as served:
        root, ann, _, _ = await town(served)
        assert_refused(await root.get(f"{USERS}/ext:4712"), 404, "not_found")
        refused = await served.as_(ann).post(
            "/v1/chats", {"type": "group", "title": "x", "member_ids": ["ext:4712"]}
        )
        assert refused.status == 404
        made = await root.put(f"{USERS}/ext:4711", {})
        assert made.status == 201
