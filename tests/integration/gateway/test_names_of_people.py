"""Names that a page shows: people by their ids, and members by how their names begin."""

from typing import Any

import pytest

from parley.gateway.api import chats
from parley.wire import limits
from parley.wire.limits import PROFILES_MAX
from tests.harness.clients import Person
from tests.integration.gateway.serving import Place, Served, assert_refused

NAMES = {"ann": "Ann Berg", "ben": "Ben von Arnim", "cem": "Jürgen CEM", "annika": "Zoe"}


async def named(served: Served) -> list[Person]:
    """Four people with names, the first of them in a chat with all."""
    people = await served.people(*NAMES)
    for person in people:
        await served.as_(person).patch("/v1/me", {"display_name": NAMES[person.username]})
    return people


async def called(served: Served, person: Person, chat: str, begin: str, **query: Any) -> list[str]:
    answer = await served.as_(person).get(f"/v1/chats/{chat}/members", q=begin, **query)
    assert answer.status == 200, answer
    return sorted(member["username"] for member in answer.body["members"])


async def test_people_are_named_by_their_ids(place: Place) -> None:
    """In the order asked for, each once and as `GET /v1/users/{user_id}` has them, without those unknown."""
    async with place.serving() as served:
        ann, ben, cem, _ = await named(served)
        ids = [cem.user_id, "user_nobody", ann.user_id, cem.user_id]
        found = (await served.as_(ben).get("/v1/users", ids=",".join(ids))).body
        alone = [(await served.as_(ben).get(f"/v1/users/{one.user_id}")).body for one in (cem, ann)]
        assert found == {"users": alone}
        assert (await served.as_(ben).get("/v1/users", ids="")).body == {"users": []}
        many = ",".join(f"user_{number}" for number in range(PROFILES_MAX + 1))
        assert_refused(await served.as_(ben).get("/v1/users", ids=many), 400, "bad_request")


async def test_who_left_keeps_a_name(place: Place) -> None:
    """A page shows who wrote a message, also when they are no member any more."""
    async with place.serving() as served:
        ann, ben, *_ = await named(served)
        chat = await served.as_(ann).create_group(ben)
        await served.as_(ann).delete(f"/v1/chats/{chat}/members/{ben.user_id}")
        (found,) = (await served.as_(ann).get("/v1/users", ids=ben.user_id)).body["users"]
        assert found["display_name"] == "Ben von Arnim"


@pytest.mark.parametrize(
    ("begin", "wanted"),
    [
        ("ann", ["ann", "annika"]),
        ("ARN", ["ben"]),
        ("jü", ["cem"]),
        ("ju\u0308r", ["cem"]),
        ("ben v", ["ben"]),
        ("erg", []),
        ("z", ["annika"]),
    ],
)
async def test_members_are_found_by_how_their_names_begin(
    place: Place, begin: str, wanted: list[str]
) -> None:
    """The username or any word of the name, whatever its case; members alone may ask."""
    async with place.serving() as served:
        ann, ben, cem, annika = await named(served)
        (eve,) = await served.people("anneve")
        chat = await served.as_(ann).create_group(ben, cem, annika)
        assert await called(served, ann, chat, begin) == wanted
        answer = await served.as_(eve).get(f"/v1/chats/{chat}/members", q=begin)
        assert_refused(answer, 403, "not_a_member")


async def test_a_search_among_many_members_goes_on(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page looks at a bounded number of members and says where the next goes on; together they have all."""
    monkeypatch.setattr(limits, "PAGE_ENTRIES_MAX", 2)
    monkeypatch.setattr(chats, "MEMBERS_LOOKED_AT_MAX", 2)
    async with place.serving() as served:
        people = await served.people(*(f"{name}{number}" for number in range(4) for name in ("ann", "ben")))
        chat = await served.as_(people[0]).create_group(*people[1:])
        found: list[str] = []
        after: str | None = ""
        pages = 0
        while after is not None:
            answer = await served.as_(people[0]).get(
                f"/v1/chats/{chat}/members", q="ann", after=after, limit=1
            )
            found += [member["username"] for member in answer.body["members"]]
            after, pages = answer.body["next_after"], pages + 1
        assert sorted(found) == [f"ann{number}" for number in range(4)]
        assert pages >= 4
