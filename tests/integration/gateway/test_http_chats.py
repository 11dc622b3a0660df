"""Chats and their members over HTTP."""

from parley.store.compared_overviews import TOKEN_CHARS_USUAL_MAX
from tests.harness.clients import Answer, Frame, HttpClient, Person
from tests.integration.gateway.serving import Place, assert_refused, message


async def test_a_group_is_created_and_shown(place: Place) -> None:
    """The answer to creating a group is what its members are shown."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        made = await create(served.as_(ann), "group", [ben], title="Us \0")
        assert (made.status, made.body["chat_id"][:5]) == (201, "chat_")
        assert (made.body["type"], made.body["title"], made.body["role"]) == ("group", "Us", "owner")
        assert (made.body["head"], made.body["epoch"], made.body["member_count"]) == (0, 1, 2)
        shown = await served.as_(ben).get(f"/v1/chats/{made.body['chat_id']}")
        assert (made.body.pop("added"), made.body.pop("invited")) == ([ben.user_id], [])
        assert (shown.status, shown.body) == (200, {**made.body, "role": "member"})


async def test_a_direct_chat_is_created_once(place: Place) -> None:
    """The same two people get the same chat, 201 first and 200 from then on."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        first = await create(served.as_(ann), "direct", [ben])
        again = await create(served.as_(ben), "direct", [ann])
        assert (first.status, again.status) == (201, 200)
        assert first.body["chat_id"] == again.body["chat_id"]
        assert (first.body["role"], again.body["role"]) == ("owner", "member")


WRONG_CHATS: list[object] = [
    {"type": "direct", "member_ids": []},
    {"type": "direct", "member_ids": ["user_a", "user_b"]},
    {"type": "direct", "member_ids": ["user_a"], "title": "no"},
    {"type": "group", "member_ids": [], "title": ""},
    {"type": "group", "member_ids": [], "title": "x" * 201},
    {"type": "channel", "member_ids": []},
    {"type": "group", "member_ids": ["user_a"] * 10_001},
    {"type": "group", "member_ids": [1]},
    {"type": "group"},
    {},
]


async def test_a_wrong_chat_is_400(place: Place) -> None:
    """A chat that cannot be is refused."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        for body in WRONG_CHATS:
            assert_refused(await served.as_(ann).post("/v1/chats", body), 400, "bad_request")


async def test_a_long_token_of_the_chat_list_is_read(place: Place) -> None:
    """A token as long as that of a person with 5,000 chats reaches the store, which decides about it."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        token = "A" * TOKEN_CHARS_USUAL_MAX
        answer = await served.as_(ann).get(f"/v1/chats?changed_since={token}")
        assert_refused(answer, 400, "bad_request")
        assert "changed_since" in answer.body["reason"]


async def test_a_chat_with_somebody_unknown_is_404(place: Place) -> None:
    """An unknown member refuses the chat, and none is made."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        body = {"type": "group", "member_ids": ["user_unknown"]}
        assert_refused(await served.as_(ann).post("/v1/chats", body), 404, "not_found")
        assert (await served.as_(ann).get("/v1/chats")).body["chats"] == []


async def test_foreign_and_unknown_chats_look_the_same(place: Place) -> None:
    """Every route about a chat refuses an outsider as if the chat did not exist."""
    async with place.serving() as served:
        ann, eve = await served.people("ann", "eve")
        chat = await served.as_(ann).create_group()
        for foreign, unknown in zip(
            await knock(served.as_(eve), chat, ann),
            await knock(served.as_(eve), "chat_nowhere", ann),
            strict=True,
        ):
            assert_refused(foreign, 403, "not_a_member")
            assert foreign.body == unknown.body


async def knock(eve: HttpClient, chat: str, ann: Person) -> list[Answer]:
    """Everything that somebody outside may try."""
    at = f"/v1/chats/{chat}"
    return [
        await eve.get(at),
        await eve.request("PATCH", at, {"title": "mine"}),
        await eve.get(f"{at}/members"),
        await eve.post(f"{at}/members", {"user_id": ann.user_id}),
        await eve.request("PATCH", f"{at}/members/{ann.user_id}", {"role": "member"}),
        await eve.request("DELETE", f"{at}/members/{ann.user_id}"),
        await eve.request("DELETE", f"{at}/members/user_unknown"),
        await eve.post(f"{at}/messages", message()),
        await eve.get(f"{at}/messages"),
        await eve.get(f"{at}/messages", before=5),
    ]


async def test_a_rename_is_an_entry(place: Place) -> None:
    """The new title is shown, and the log says who gave it."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        answer = await served.as_(ann).request("PATCH", f"/v1/chats/{chat}", {"title": "New"})
        assert (answer.status, answer.body["title"], answer.body["head"]) == (200, "New", 1)
        (entry,) = await entries(served.as_(ben), chat)
        assert (entry["kind"], entry["sender_id"]) == ("chat", ann.user_id)
        assert_refused(
            await served.as_(ben).request("PATCH", f"/v1/chats/{chat}", {"title": "x"}), 403, "forbidden"
        )


async def test_members_are_listed_in_pages(place: Place) -> None:
    """Pages of members follow each other by `next_after`, which is null at the end."""
    async with place.serving() as served:
        people = await served.people("ann", "ben", "cem")
        chat = await served.as_(people[0]).create_group(*people[1:])
        first = (await served.as_(people[1]).get(f"/v1/chats/{chat}/members", limit=2)).body
        rest = (
            await served.as_(people[1]).get(f"/v1/chats/{chat}/members", after=first["next_after"], limit=2)
        ).body
        found = [member["user_id"] for member in first["members"] + rest["members"]]
        assert (found, rest["next_after"]) == (sorted(person.user_id for person in people), None)


async def test_adding_and_removing_are_entries(place: Place) -> None:
    """Each change of members answers with its position in the log."""
    async with place.serving() as served:
        ann, ben, cem = await served.people("ann", "ben", "cem")
        owner = served.as_(ann)
        chat = await owner.create_group()
        added = await owner.post(f"/v1/chats/{chat}/members", {"user_ids": [ben.user_id, cem.user_id]})
        promoted = await owner.request("PATCH", f"/v1/chats/{chat}/members/{ben.user_id}", {"role": "admin"})
        removed = await owner.request("DELETE", f"/v1/chats/{chat}/members/{cem.user_id}")
        left = await served.as_(ben).request("DELETE", f"/v1/chats/{chat}/members/{ben.user_id}")
        answers = [(answer.status, answer.body["sequence"]) for answer in (added, promoted, removed, left)]
        assert answers == [(201, 2), (200, 3), (200, 4), (200, 5)]
        changes = [entry["content"] for entry in await entries(owner, chat)]
        assert [text.split('"')[3] for text in changes] == ["joined", "joined", "role", "removed", "left"]


async def test_what_a_role_does_not_allow_is_403(place: Place) -> None:
    """Members change nobody, admins change members only, and the last owner stays."""
    async with place.serving() as served:
        ann, ben, cem = await served.people("ann", "ben", "cem")
        chat = await served.as_(ann).create_group(ben, cem)
        members = f"/v1/chats/{chat}/members"
        for client, who in ((served.as_(ben), cem), (served.as_(ben), ann), (served.as_(ann), ann)):
            assert_refused(await client.request("DELETE", f"{members}/{who.user_id}"), 403, "forbidden")
        answer = await served.as_(ben).request("PATCH", f"{members}/{ben.user_id}", {"role": "owner"})
        assert_refused(answer, 403, "forbidden")


async def test_wrong_changes_of_members_are_told_apart(place: Place) -> None:
    """Nobody named, somebody unknown, somebody there already, and a role that is none."""
    async with place.serving() as served:
        ann, ben, cem = await served.people("ann", "ben", "cem")
        chat = await served.as_(ann).create_group(ben)
        owner, members = served.as_(ann), f"/v1/chats/{chat}/members"
        assert_refused(await owner.post(members, {}), 400, "bad_request")
        assert_refused(await owner.post(members, {"user_id": ben.user_id}), 400, "bad_request")
        assert_refused(await owner.post(members, {"user_id": "user_unknown"}), 404, "not_found")
        assert_refused(
            await owner.post(members, {"user_id": cem.user_id, "role": "king"}), 400, "bad_request"
        )
        assert_refused(await owner.request("DELETE", f"{members}/{cem.user_id}"), 404, "not_found")


async def test_an_open_group_is_joined_by_anybody(place: Place) -> None:
    """Who joins an open group by themselves is a member of it."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        made = await create(served.as_(ann), "group", [], open_to_join=True)
        chat = made.body["chat_id"]
        joined = await served.as_(ben).post(f"/v1/chats/{chat}/members", {"user_id": ben.user_id})
        assert joined.status == 201
        assert (await served.as_(ben).get(f"/v1/chats/{chat}")).body["role"] == "member"


async def test_chats_are_listed_with_what_a_person_reads(place: Place) -> None:
    """The list holds title, last entry, unread count and cursors, and pages by its token."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        one = await served.as_(ann).create_group(ben, title="one")
        two = await served.as_(ann).create_group(ben, title="two")
        await served.said(ann, one, "first", "second")
        page = (await served.as_(ben).get("/v1/chats", limit=1)).body
        rest = (await served.as_(ben).get("/v1/chats", limit=1, changed_since=page["token"])).body
        assert [page["complete"], rest["complete"]] == [False, True]
        by_id = {chat["chat_id"]: chat for chat in page["chats"] + rest["chats"]}
        assert (by_id[one]["title"], by_id[one]["unread"], by_id[one]["head"]) == ("one", 2, 2)
        assert by_id[one]["last_entry"]["content"] == "second"
        assert (by_id[two]["last_entry"], by_id[two]["unread"]) == (None, 0)
        assert {"last_acked_sequence", "read_up_to", "unread_more", "epoch", "type"} <= set(by_id[one])


async def test_a_chat_that_was_left_shows_nothing_of_its_later_life(place: Place) -> None:
    """After removal neither the title nor the head nor the last entry of the chat is shown."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben, title="before")
        token = (await served.as_(ben).get("/v1/chats")).body["token"]
        await served.as_(ann).request("DELETE", f"/v1/chats/{chat}/members/{ben.user_id}")
        await served.as_(ann).request("PATCH", f"/v1/chats/{chat}", {"title": "secret"})
        await served.said(ann, chat, "secret")
        (listed,) = (await served.as_(ben).get("/v1/chats", changed_since=token)).body["chats"]
        assert (listed["left"], listed["head"], listed["unread"]) == (True, 1, 0)
        assert "secret" not in str(listed)
        assert (await served.as_(ben).get("/v1/chats")).body["chats"] == []


async def test_a_token_that_is_none_is_400(place: Place) -> None:
    """The list refuses a token that no list has said."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        assert_refused(await served.as_(ann).get("/v1/chats", changed_since="x"), 400, "bad_request")


async def create(client: HttpClient, kind: str, members: list[Person], **fields: object) -> Answer:
    body = {"type": kind, "member_ids": [member.user_id for member in members], **fields}
    return await client.post("/v1/chats", body)


async def entries(client: HttpClient, chat: str) -> list[Frame]:
    found: list[Frame] = (await client.get(f"/v1/chats/{chat}/messages")).body["entries"]
    return found
