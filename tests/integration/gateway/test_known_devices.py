"""Positions are kept of so many devices of a person, however many ids their clients make up."""

import pytest

from parley.clock import MS_PER_DAY, wall_clock
from tests.harness.clients import Person
from tests.harness.clock import VirtualClock
from tests.harness.jwts import SETTINGS, claims, signed
from tests.integration.gateway.serving import Place, Served
from tests.waiting import eventually

DEVICES = "SELECT DISTINCT device_id FROM user_device_cursors ORDER BY device_id"


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person has three devices at most."""
    monkeypatch.setattr("parley.core.known_devices.DEVICES_MAX", 3)


async def acked(served: Served, person: Person, device_id: str, chat_id: str) -> None:
    """A device connects and says how far it is; both are stored."""
    here = Person(person.username, person.user_id, device_id, "", person.token)
    async with served.client(here) as client:
        await client.tell("ack", chat_id=chat_id, last_acked_sequence=1)
        await client.heartbeat()
    await served.app.store.cursors.flush()

    async def is_noted() -> bool:
        known = await served.app.kinds.device_lists.get(person.user_id)
        return known is not None and device_id in known.devices

    await eventually(is_noted)


def kept(served: Served) -> list[str]:
    return [row[0] for row in served.sqlite.database.reader.execute(DEVICES)]


async def test_made_up_devices_end_the_oldest(place: Place) -> None:
    """With a JWT, whose device ids are its own choice; the latest are kept, and one that was used stays."""
    clock = VirtualClock(wall_clock())
    async with place.serving(SETTINGS, clock=clock) as served:
        token = signed(claims(clock(), exp=clock() // 1_000 + 30 * 86_400))
        me = served.http.__class__(served.session, served.url, token)
        person = Person("ann", (await me.get("/v1/me")).body["user_id"], "", "", token)
        (ben,) = await served.people("ben")
        chat = await me.create_group(ben)
        await served.said(ben, chat, "hi")
        for number in range(6):
            await acked(served, person, f"d{number}", chat)
            clock.advance(1_000)
        assert kept(served) == ["d3", "d4", "d5"]
        clock.advance(MS_PER_DAY)
        await acked(served, person, "d3", chat)
        await acked(served, person, "d6", chat)
        assert kept(served) == ["d3", "d5", "d6"]


async def test_the_devices_of_a_deleted_person_are_forgotten(place: Place) -> None:
    """Their ids are the person's own words."""
    async with place.serving() as served:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        await served.said(ben, chat, "hi")
        await acked(served, ann, "phone", chat)
        await served.as_(root).delete(f"/v1/admin/users/{ann.user_id}")
        await served.app.deletions.look()
        assert await served.app.kinds.device_lists.get(ann.user_id) is None
