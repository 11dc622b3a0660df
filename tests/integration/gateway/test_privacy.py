"""Who may see when somebody is there: every cell of settings, contacts and blocks, on every path."""

import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import pytest

from tests.harness.clients import Frame, Person, RawClient
from tests.integration.gateway.serving import Place, Served
from tests.waiting import eventually

HIDDEN = ("offline", "unavailable")

SHOWS = {
    ("everyone", "stranger"): True,
    ("everyone", "contact"): True,
    ("contacts", "stranger"): False,
    ("contacts", "contact"): True,
    ("nobody", "stranger"): False,
    ("nobody", "contact"): False,
}
"""Whether a setting shows a person to somebody whom they have as a contact, or not."""


class Side(NamedTuple):
    """What one of the two has chosen towards the other."""

    privacy: str
    other_is: str
    blocks: bool

    @property
    def shows(self) -> bool:
        return SHOWS[self.privacy, self.other_is] and not self.blocks


SIDES = [Side(*cell, blocks) for cell, blocks in itertools.product(SHOWS, (False, True))]


class Pair:
    """A viewer and whom they look at, in a group and a direct chat; the other is online on one device."""

    def __init__(self, served: Served, viewer: Person, other: Person, group: str, direct: str) -> None:
        self.served = served
        self.viewer = viewer
        self.other = other
        self.group = group
        self.direct = direct
        self._chosen: dict[str, Side] = {}

    async def choose(self, person: Person, towards: Person, side: Side) -> None:
        """Make the choices of one of them so."""
        http, before = self.served.as_(person), self._chosen.get(person.user_id)
        if before is None or before.privacy != side.privacy:
            assert (await http.patch("/v1/me", {"last_seen_privacy": side.privacy})).status == 200
        if before is None or before.other_is != side.other_is:
            path = f"/v1/contacts/{towards.user_id}"
            answer = await (http.put(path) if side.other_is == "contact" else http.delete(path))
            assert answer.status in (200, 204)
        if before is None or before.blocks != side.blocks:
            path = f"/v1/blocks/{towards.user_id}"
            assert (await (http.put(path) if side.blocks else http.delete(path))).status in (200, 204)
        self._chosen[person.user_id] = side


async def by_query(pair: Pair, client: RawClient) -> Frame:
    return one(await client.request("presence_query", user_ids=[pair.other.user_id]))


async def by_subscription(pair: Pair, client: RawClient) -> Frame:
    return one(await client.request("presence_subscribe", user_ids=[pair.other.user_id]))


async def by_http(pair: Pair, client: RawClient) -> Frame:
    answer = await pair.served.as_(pair.viewer).get("/v1/presence", user_ids=pair.other.user_id)
    return one(answer.body)


async def by_profile(pair: Pair, client: RawClient) -> Frame:
    return body(await pair.served.as_(pair.viewer).get(f"/v1/users/{pair.other.user_id}"))


async def by_username(pair: Pair, client: RawClient) -> Frame:
    return body(await pair.served.as_(pair.viewer).get("/v1/users", username=pair.other.username))


async def by_chat_list(pair: Pair, client: RawClient) -> Frame:
    rows = body(await pair.served.as_(pair.viewer).get("/v1/chats"))["chats"]
    return peer_in(pair, rows)


async def by_overview(pair: Pair, client: RawClient) -> Frame:
    return peer_in(pair, (await client.request("sync_overview"))["chats"])


async def by_member_list(pair: Pair, client: RawClient) -> Frame:
    rows = body(await pair.served.as_(pair.viewer).get(f"/v1/chats/{pair.group}/members"))["members"]
    return next(row for row in rows if row["user_id"] == pair.other.user_id)


def body(answer: Any) -> Frame:
    assert answer.status == 200, answer
    return dict(answer.body)


def one(state: Frame) -> Frame:
    (presence,) = state["presences"]
    return dict(presence)


def peer_in(pair: Pair, rows: list[Frame]) -> Frame:
    return dict(next(row for row in rows if row["chat_id"] == pair.direct)["peer"])


Path = Callable[[Pair, RawClient], Awaitable[Frame]]
PATHS: list[Path] = [
    by_query,
    by_subscription,
    by_http,
    by_profile,
    by_username,
    by_chat_list,
    by_overview,
    by_member_list,
]


async def paired(served: Served) -> Pair:
    viewer, other = await served.people("viewer", "other")
    group = await served.as_(viewer).create_group(other)
    return Pair(served, viewer, other, group, await served.as_(viewer).create_direct(other))


@pytest.mark.parametrize("mine", SIDES)
async def test_every_cell_on_every_path(place: Place, mine: Side) -> None:
    """A person is seen exactly where each shows themself to the other; else nothing tells them apart."""
    async with place.serving() as served:
        await check_paths(await paired(served), mine, SIDES)


async def check_paths(pair: Pair, mine: Side, others: Sequence[Side]) -> None:
    """Whichever of these the other chooses, on every path."""
    await pair.choose(pair.viewer, pair.other, mine)
    async with pair.served.client(pair.other), pair.served.client(pair.viewer) as client:
        for theirs in others:
            await pair.choose(pair.other, pair.viewer, theirs)
            for path in PATHS:
                seen = await path(pair, client)
                told = (seen["status"], seen["last_seen"])
                if mine.shows and theirs.shows:
                    assert told[0] == "online", (path.__name__, mine, theirs)
                    assert told[1] not in (None, "unavailable"), (path.__name__, mine, theirs)
                else:
                    assert told == HIDDEN, (path.__name__, mine, theirs)


@pytest.mark.parametrize("mine", SIDES)
async def test_every_cell_when_somebody_goes(
    place: Place, mine: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who subscribed is told that a person went exactly if they may see them, and nothing otherwise."""
    monkeypatch.setattr("parley.people.presence_publisher.FLAP_SECONDS", 0.0)
    async with place.serving() as served:
        await check_going(await paired(served), mine, SIDES)


async def check_going(pair: Pair, mine: Side, others: Sequence[Side]) -> None:
    """Whichever of these the other chooses before they come and go."""
    registry = pair.served.app.ephemeral.registry
    await pair.choose(pair.viewer, pair.other, mine)
    async with pair.served.client(pair.viewer) as client:
        for theirs in others:
            await pair.choose(pair.other, pair.viewer, theirs)
            async with pair.served.client(pair.other):
                await by_subscription(pair, client)
                client.unasked.clear()
            await eventually(lambda: is_gone(registry, pair.other))
            if mine.shows and theirs.shows:
                told = await client.hear("presence", user_id=pair.other.user_id, status="offline")
                assert told["last_seen"] not in (None, "unavailable")
            else:
                await client.heartbeat()
                await client.heartbeat()
                assert not client.heard("presence"), (mine, theirs)


async def is_gone(registry: Any, person: Person) -> bool:
    (presence,) = await registry.presences([person.user_id])
    return not presence.is_online


async def test_a_change_of_mind_is_told_at_once(place: Place) -> None:
    """Whoever hides or blocks disappears for those who watch, and comes back with a change of mind."""
    async with place.serving() as served:
        pair = await paired(served)
        user_id = pair.other.user_id
        http = served.as_(pair.other)
        async with served.client(pair.other), served.client(pair.viewer) as client:
            assert (await by_subscription(pair, client))["status"] == "online"
            changes = [
                (http.patch("/v1/me", {"last_seen_privacy": "nobody"}), HIDDEN),
                (http.patch("/v1/me", {"last_seen_privacy": "contacts"}), None),
                (http.put(f"/v1/contacts/{pair.viewer.user_id}"), ("online",)),
                (http.put(f"/v1/blocks/{pair.viewer.user_id}"), HIDDEN),
                (http.delete(f"/v1/blocks/{pair.viewer.user_id}"), ("online",)),
                (http.delete(f"/v1/contacts/{pair.viewer.user_id}"), HIDDEN),
            ]
            for change, expected in changes:
                client.unasked.clear()
                await change
                if expected is None:
                    await client.heartbeat()
                    assert not client.heard("presence")
                    continue
                told = await client.hear("presence", user_id=user_id)
                assert (told["status"], told["last_seen"])[: len(expected)] == expected


async def test_strangers_unknown_and_hidden_people_look_alike(place: Place) -> None:
    """Nothing tells a stranger whether a person hides, is not known, or does not exist."""
    async with place.serving() as served:
        eve, ann, ben = await served.people("eve", "ann", "ben")
        await served.as_(ben).patch("/v1/me", {"last_seen_privacy": "nobody"})
        asked = [ann.user_id, ben.user_id, "user_nothing", "", "\u0000", "x" * 300]
        async with served.client(ann), served.client(ben), served.client(eve) as client:
            for kind in ("presence_query", "presence_subscribe"):
                state = await client.request(kind, user_ids=asked)
                assert state["presences"] == [
                    {"user_id": user_id, "status": "offline", "last_seen": "unavailable"} for user_id in asked
                ]
        assert not client.heard("presence")


async def test_a_contact_is_no_stranger(place: Place) -> None:
    """A person without a common chat is seen by those whom they have as a contact, for as long as they do."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        path = f"/v1/contacts/{ann.user_id}"
        async with served.client(ben), served.client(ann) as client:
            await served.as_(ben).put(path)
            state = await client.request("presence_query", user_ids=[ben.user_id])
            assert state["presences"][0]["status"] == "online"
            await served.as_(ben).delete(path)
            state = await client.request("presence_query", user_ids=[ben.user_id])
            assert state["presences"][0]["last_seen"] == "unavailable"
