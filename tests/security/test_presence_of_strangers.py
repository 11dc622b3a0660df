"""A stranger tries to watch when somebody is there, with nothing but that person's id."""

from tests.harness.clients import Person, RawClient
from tests.integration.gateway.serving import Place, Served

HIDDEN = {"status": "offline", "last_seen": "unavailable"}


async def befriend(served: Served, person: Person, other: Person) -> None:
    """One has the other as a contact from now on."""
    assert (await served.as_(person).put(f"/v1/contacts/{other.user_id}")).status == 200


async def asked(client: RawClient, kind: str, person: Person) -> dict[str, str]:
    (presence,) = (await client.request(kind, user_ids=[person.user_id]))["presences"]
    return {name: presence[name] for name in HIDDEN}


async def test_adding_a_stranger_as_a_contact_shows_nothing_of_them(place: Place) -> None:
    """A contact of one's own making opens no way to see another person: not by query, profile or frame."""
    async with place.serving() as served:
        eve, ann = await served.people("eve", "ann")
        await befriend(served, eve, ann)
        async with served.client(eve) as client:
            async with served.client(ann):
                profile = (await served.as_(eve).get(f"/v1/users/{ann.user_id}")).body
                seen = [
                    await asked(client, "presence_query", ann),
                    await asked(client, "presence_subscribe", ann),
                    {name: profile[name] for name in HIDDEN},
                ]
            await client.heartbeat()
            assert seen == [HIDDEN] * 3
            assert not client.heard("presence")


async def test_whoever_adds_a_person_shows_themself_to_them(place: Place) -> None:
    """The contact works for the other side: the person who was added may see who added them."""
    async with place.serving() as served:
        eve, ann = await served.people("eve", "ann")
        await befriend(served, eve, ann)
        async with served.client(eve), served.client(ann) as client:
            assert (await asked(client, "presence_query", eve))["status"] == "online"


async def test_a_subscription_of_a_stranger_hears_only_from_the_day_they_are_added(place: Place) -> None:
    """Who subscribed as a stranger is shown the person once these add them, and hidden when they undo it."""
    async with place.serving() as served:
        eve, ann = await served.people("eve", "ann")
        await befriend(served, eve, ann)
        async with served.client(ann), served.client(eve) as client:
            assert await asked(client, "presence_subscribe", ann) == HIDDEN
            await befriend(served, ann, eve)
            assert (await client.hear("presence", user_id=ann.user_id))["status"] == "online"
            client.unasked.clear()
            await served.as_(ann).delete(f"/v1/contacts/{eve.user_id}")
            told = await client.hear("presence", user_id=ann.user_id)
            assert {name: told[name] for name in HIDDEN} == HIDDEN


async def test_adding_a_watched_person_does_not_open_their_presence(place: Place) -> None:
    """Rights are checked again when contacts change, and each side by its own right."""
    async with place.serving() as served:
        eve, ann = await served.people("eve", "ann")
        async with served.client(ann) as hers, served.client(eve) as client:
            assert await asked(client, "presence_subscribe", ann) == HIDDEN
            assert await asked(hers, "presence_subscribe", eve) == HIDDEN
            await befriend(served, eve, ann)
            assert (await hers.hear("presence", user_id=eve.user_id))["status"] == "online"
            await client.heartbeat()
            assert not client.heard("presence")
